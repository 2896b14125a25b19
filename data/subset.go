package data

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/ringo-ml/ringo/tensor"
)

// Subset is a Dataset of some samples of another one, as in PyTorch.
type Subset struct {
	Dataset
	Indices []int // its samples in Dataset; one may come several times
}

// NewSubset returns the samples with these indices. It keeps indices.
func NewSubset(ds Dataset, indices []int) (*Subset, error) {
	if len(indices) == 0 {
		return nil, errorf("a subset of no samples")
	}
	for _, i := range indices {
		if i < 0 || i >= ds.Len() {
			return nil, errorf("a subset has sample %d: the dataset has %d", i, ds.Len())
		}
	}
	return &Subset{ds, indices}, nil
}

// Len returns the number of samples.
func (s *Subset) Len() int { return len(s.Indices) }

// Batch reads samples idx, as in epoch 0.
func (s *Subset) Batch(idx []int, x, y tensor.Tensor) error { return s.BatchAt(noEpoch, idx, x, y) }

// BatchAt reads samples idx, as the Dataset has them in an epoch.
func (s *Subset) BatchAt(epoch int, idx []int, x, y tensor.Tensor) error {
	of := make([]int, len(idx))
	for row, i := range idx {
		if i < 0 || i >= len(s.Indices) {
			return fmt.Errorf("sample %d, of %d", i, len(s.Indices))
		}
		of[row] = s.Indices[i]
	}
	return batchAt(s.Dataset, epoch, of, x, y)
}

// String returns how many samples of which dataset it has.
func (s *Subset) String() string { return fmt.Sprintf("%d samples of %s", s.Len(), nameOf(s.Dataset)) }

// Split divides a dataset by chance, as PyTorch's random_split does: Split(ds, 1, 0.8, 0.2) returns a training and a test set. The parts of
// the whole sum to 1. The split depends on the seed and the number of samples alone: it is the same on all ranks, and for a folder of
// images that is opened twice, once with random crops for training and once without.
func Split(ds Dataset, seed uint64, parts ...float64) ([]*Subset, error) {
	return split(ds, seed, nil, parts)
}

// SplitByClass is Split with the classes in the same proportions in each part, or nearly so: what scikit-learn calls stratified. The
// targets are numbers of classes (see [Labels]).
func SplitByClass(ds Dataset, seed uint64, parts ...float64) ([]*Subset, error) {
	labels, err := Labels(ds)
	if err != nil {
		return nil, err
	}
	return split(ds, seed, labels, parts)
}

func split(ds Dataset, seed uint64, labels []int, parts []float64) ([]*Subset, error) {
	sizes, err := partSizes(ds.Len(), parts)
	if err != nil {
		return nil, err
	}
	order := make([]int, ds.Len())
	permute(order, 1, tensor.RandomKey(seed, splitKey), 0)
	indices := make([][]int, len(parts))
	if labels == nil {
		for p, n := range sizes {
			indices[p], order = order[:n:n], order[n:]
		}
	} else {
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(labels[a], labels[b]) })
		deal(order, sizes, indices)
	}
	var sets []*Subset
	for p, idx := range indices {
		s, err := NewSubset(ds, idx)
		if err != nil {
			return nil, errorf("a split of %d samples in parts %v: part %d gets none", ds.Len(), parts, p)
		}
		sets = append(sets, s)
	}
	return sets, nil
}

// splitKey makes splits other permutations than those of epochs: "split" in ASCII.
const splitKey = 0x73706c6974

// partSizes rounds the parts of n samples down, and gives what is left over to the first ones, as random_split does.
func partSizes(n int, parts []float64) ([]int, error) {
	sizes, sum, left := make([]int, len(parts)), 0.0, n
	for p, part := range parts {
		if !(part > 0 && part <= 1) {
			return nil, errorf("a split in parts %v: want numbers above 0 that sum to 1", parts)
		}
		sizes[p] = int(float64(float64(n)*part) + 1e-9) // 0.29 * 100 is less than 29
		sum, left = sum+part, left-sizes[p]
	}
	if math.Abs(sum-1) > 1e-6 {
		return nil, errorf("a split in parts %v, which sum to %v: want 1", parts, sum)
	}
	for p := 0; left > 0; p, left = (p+1)%len(parts), left-1 {
		sizes[p]++
	}
	return sizes, nil
}

// deal gives each sample to the part that lacks most, so that every stretch of the order is divided in proportion.
func deal(order, sizes []int, indices [][]int) {
	for k, i := range order {
		best, lack := 0, math.Inf(-1)
		for p, n := range sizes {
			if l := float64(n)*float64(k+1)/float64(len(order)) - float64(len(indices[p])); l > lack && len(indices[p]) < n {
				best, lack = p, l
			}
		}
		indices[best] = append(indices[best], i)
	}
}

// Labels returns the class of every sample. A Dataset with a method Label(i int) int says it without reading the sample. A type with its
// own Batch or BatchAt needs its own Label for that: that of what it embeds does not know which targets they write.
func Labels(ds Dataset) ([]int, error) {
	labels := make([]int, ds.Len())
	if l, ok := ds.(interface{ Label(i int) int }); ok {
		if batch, at, label := own(ds); label || !batch && !at {
			for i := range labels {
				labels[i] = l.Label(i)
			}
			return labels, nil
		}
	}
	if d, ok := ds.(*Subset); ok {
		all, err := Labels(d.Dataset)
		for i, k := range d.Indices {
			if err == nil {
				labels[i] = all[k]
			}
		}
		return labels, err
	}
	if _, y := ds.Shapes(); y.DType != tensor.Int64 || len(y.Dims) > 0 {
		return nil, errorf("targets of %s are %v: want numbers of classes, int64", nameOf(ds), y)
	}
	err := eachSample(ds, 0, func(i int, _, y tensor.Tensor) { labels[i] = int(tensor.Data[int64](y)[0]) }, nil)
	return labels, err
}

// Balance returns a weight for each sample with which a Loader draws every class equally often ([Config].Weights).
func Balance(labels []int) []float64 {
	count, weights := map[int]int{}, make([]float64, len(labels))
	for _, c := range labels {
		count[c]++
	}
	for i, c := range labels {
		weights[i] = 1 / float64(count[c])
	}
	return weights
}

// Filter returns the samples for which keep is true. It reads each sample once; x and y are [1, sample dimensions...], and valid during
// the call.
func Filter(ds Dataset, keep func(i int, x, y tensor.Tensor) bool) (*Subset, error) {
	var indices []int
	if err := eachSample(ds, noEpoch, func(i int, x, y tensor.Tensor) {
		if keep(i, x, y) {
			indices = append(indices, i)
		}
	}, nil); err != nil {
		return nil, err
	}
	if len(indices) == 0 {
		return nil, errorf("the filter keeps none of %s", nameOf(ds))
	}
	return NewSubset(ds, indices)
}

// Skipped says what was left out because it could not be read.
type Skipped struct {
	Count int
	First error // of the first one
}

// String returns the number, and the first error.
func (s Skipped) String() string {
	if s.Count == 0 {
		return "0 skipped"
	}
	return fmt.Sprintf("%d skipped, the first one: %v", s.Count, s.First)
}

func (s *Skipped) add(err error) {
	s.Count++
	s.First = cmp.Or(s.First, err)
}

// Readable returns the samples that can be read, such as images that are not damaged, and says what it has left out. It reads each sample
// once. It is an error if none can be read.
func Readable(ds Dataset) (*Subset, Skipped, error) {
	var indices []int
	var skipped Skipped
	_ = eachSample(ds, noEpoch, func(i int, _, _ tensor.Tensor) { indices = append(indices, i) }, &skipped)
	if len(indices) == 0 {
		return nil, skipped, errorf("%s: none of the samples can be read: %w", nameOf(ds), cmp.Or(skipped.First, errors.New("it has none")))
	}
	s, err := NewSubset(ds, indices)
	return s, skipped, err
}

// eachSample reads all samples, as they are in an epoch, several at a time. Those that cannot be read are an error, or go to skipped.
func eachSample(ds Dataset, epoch int, f func(i int, x, y tensor.Tensor), skipped *Skipped) error {
	const most = 32
	sx, sy := ds.Shapes()
	xs, ys := newRows(hostDevice, sx, most), newRows(hostDevice, sy, most)
	for lo := 0; lo < ds.Len(); lo += most {
		idx := make([]int, min(most, ds.Len()-lo))
		for k := range idx {
			idx[k] = lo + k
		}
		all := batchAt(ds, epoch, idx, firstRows(xs, sx, len(idx)), firstRows(ys, sy, len(idx)))
		for k, i := range idx {
			x, y := oneRow(xs, sx, k), oneRow(ys, sy, k)
			if all != nil {
				x, y = oneRow(xs, sx, 0), oneRow(ys, sy, 0)
				if err := batchAt(ds, epoch, []int{i}, x, y); err != nil && skipped == nil {
					return errorf("%s, sample %d: %w", nameOf(ds), i, err)
				} else if err != nil {
					skipped.add(fmt.Errorf("sample %d: %w", i, err))
					continue
				}
			}
			f(i, x, y)
		}
	}
	return nil
}

func oneRow(x tensor.Tensor, s tensor.Shape, row int) tensor.Tensor {
	n := x.Len() / x.Dim(0)
	return x.Range(row*n, (row+1)*n).View(append([]int{1}, s.Dims...)...)
}
