package data

import (
	"fmt"

	"github.com/ringo-ml/ringo/tensor"
)

// Tensors is a Dataset in memory: sample i is row i of two tensors, as in PyTorch's TensorDataset.
type Tensors struct {
	x, y   tensor.Tensor
	xs, ys []byte
	n      int
}

// NewTensors returns a Dataset of the rows of x and y, which have the same number of rows, at least one. It uses their memory without a
// copy: do not change it while a Loader runs. Tensors on a device are copied to the host once.
func NewTensors(x, y tensor.Tensor) (*Tensors, error) {
	d := &Tensors{}
	for _, t := range []struct {
		name string
		from tensor.Tensor
		to   *tensor.Tensor
		all  *[]byte
	}{{"x", x, &d.x, &d.xs}, {"y", y, &d.y, &d.ys}} {
		switch {
		case !t.from.Valid():
			return nil, fmt.Errorf("data: %s is not a tensor that can be used", t.name)
		case t.from.Tape() != nil:
			return nil, fmt.Errorf("data: %s is of a tape, whose memory is used again in each step", t.name)
		case t.from.NDim() == 0 || !t.from.Contiguous():
			return nil, fmt.Errorf("data: %s is %v: want contiguous rows", t.name, t.from.Shape())
		}
		*t.to = tensor.ToHost(t.from)
		*t.all = t.to.Bytes()
	}
	d.n = x.Dim(0)
	if d.n == 0 || y.Dim(0) != d.n {
		return nil, fmt.Errorf("data: x has %d rows, y has %d", d.n, y.Dim(0))
	}
	return d, nil
}

// Len returns the number of rows.
func (d *Tensors) Len() int { return d.n }

// Shapes returns the shapes of a row of x and of y.
func (d *Tensors) Shapes() (x, y tensor.Shape) { return rowOf(d.x), rowOf(d.y) }

func rowOf(t tensor.Tensor) tensor.Shape {
	return tensor.Shape{DType: t.DType(), Dims: t.Shape().Dims[1:]}
}

// Batch copies rows idx.
func (d *Tensors) Batch(idx []int, x, y tensor.Tensor) error {
	nx, ny := len(d.xs)/d.n, len(d.ys)/d.n
	xs, ys := x.Bytes(), y.Bytes()
	if len(xs) != len(idx)*nx || len(ys) != len(idx)*ny {
		return fmt.Errorf("%d rows of %v and %v do not fit %v and %v", len(idx), rowOf(d.x), rowOf(d.y), x.Shape(), y.Shape())
	}
	for row, i := range idx {
		if i < 0 || i >= d.n {
			return fmt.Errorf("row %d, of %d", i, d.n)
		}
		copy(xs[row*nx:(row+1)*nx], d.xs[i*nx:])
		copy(ys[row*ny:(row+1)*ny], d.ys[i*ny:])
	}
	return nil
}

// String returns the number of rows and their shapes.
func (d *Tensors) String() string {
	x, y := d.Shapes()
	return fmt.Sprintf("%d rows of %v and %v", d.n, x, y)
}
