package data

import (
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/tensor"
)

// Dataset is a fixed number of samples; each is a pair of an input x and a target y.
type Dataset interface {
	// Len returns the number of samples.
	Len() int
	// Shapes returns the element types and dimensions of one sample. Dims is empty for a single number, such as a
	// class label.
	Shapes() (x, y tensor.Shape)
	// Batch writes sample idx[i] into row i of x and of y. These are contiguous tensors in host memory of shapes [len(idx), sample
	// dimensions...]; tensor.Data gives their memory as slices. Their old content is undefined, so all of it must be written. idx is not
	// empty. Batch does not keep its arguments, and does not change idx. A Loader calls it from one goroutine; if several loaders share a
	// Dataset, it must allow concurrent calls. After an error or a panic, the Loader calls Batch again for single samples, so that its
	// error can name the sample that failed. If Batch knows more about the place, such as a file and a line, its own error should say it.
	// If the Dataset has a String method, errors use it as its name.
	Batch(idx []int, x, y tensor.Tensor) error
}

// Augmented is a Dataset whose samples are other ones in each epoch, such as images that are cropped by chance.
type Augmented interface {
	Dataset
	// BatchAt is Batch in an epoch; a Loader calls it in place of Batch. A sample depends on nothing but the epoch and its number, so that it
	// is the same on any number of ranks, and after a resume. A type that embeds an Augmented and has its own Batch needs its own BatchAt.
	BatchAt(epoch int, idx []int, x, y tensor.Tensor) error
}

const noEpoch = -1 // Batch is called, also where a Subset lies between

func batchAt(ds Dataset, epoch int, idx []int, x, y tensor.Tensor) error {
	if a, ok := ds.(Augmented); ok && epoch != noEpoch {
		return a.BatchAt(epoch, idx, x, y)
	}
	return ds.Batch(idx, x, y)
}

// Sharder says which part of each batch a rank trains on. The groups of package dist are Sharders.
type Sharder interface {
	// Rank returns this rank's number, from 0 to Size()-1.
	Rank() int
	// Size returns the number of ranks.
	Size() int
}

// Single is the Sharder of a program with one rank.
var Single Sharder = single{}

type single struct{}

func (single) Rank() int { return 0 }
func (single) Size() int { return 1 }

// Batch is one rank's part of a global batch. The tensors are valid until the next iteration; after a loop, until the next Epoch.
// One that is used later is a Failure (not a View of one: do not keep these either).
type Batch struct {
	X, Y   tensor.Tensor // [Rows, sample dimensions...]; they know the places of their rows in the global batch (tensor.Rows)
	First  int           // place of this rank's first row in the global batch
	Rows   int           // rows of this rank; 0 if the last batch of an epoch has fewer rows than there are ranks
	Global int           // rows of all ranks

	Samples []int // of the dataset, in the rows of all ranks; those of this rank begin at First
}

func fail(format string, a ...any) {
	panic(&tensor.Failure{Op: "data", Err: fmt.Errorf(format, a...)})
}

func checkDataset(ds Dataset) error {
	if n := ds.Len(); n <= 0 {
		return fmt.Errorf("the dataset has %d samples", n)
	}
	x, y := ds.Shapes()
	return errors.Join(checkSample("x", x), checkSample("y", y))
}

func checkSample(name string, s tensor.Shape) error {
	if s.DType >= tensor.NumDTypes || len(s.Dims) >= tensor.MaxNDim {
		return fmt.Errorf("%s of a sample is %v: unknown element type, or more than %d dimensions", name, s, tensor.MaxNDim-1)
	}
	for _, d := range s.Dims {
		if d <= 0 {
			return fmt.Errorf("%s of a sample is %v: dimensions must be positive", name, s)
		}
	}
	return nil
}
