package disttest

import (
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// Dataset is an endless deterministic set of samples of five classes.
type Dataset struct {
	DType    tensor.DType
	Features int // five or more
}

// Samples returns n samples from the first on: x [n, Features], and as y the index of the largest of the first five features.
func (d Dataset) Samples(dev tensor.Device, first, n int) (x, y tensor.Tensor) {
	x, y = tensor.NewStaging(tensor.OtherMemory, dev, d.DType, n, d.Features), tensor.NewStaging(tensor.OtherMemory, dev, tensor.Int64, n)
	tensor.UniformInit(-1, 1).Fill(x, 11, uint64(first*d.Features))
	v := tensor.Floats(x)
	for i := range n {
		best := 0
		for c := range 5 {
			if v[i*d.Features+c] > v[i*d.Features+best] {
				best = c
			}
		}
		tensor.Data[int64](y)[i] = int64(best)
	}
	return x, y
}

// Backward computes the gradients of this rank's part of a step's batch, in so many microbatches. loss makes the loss of a microbatch;
// Backward returns their sum.
func (d Dataset) Backward(r *dist.Rank, tape *tensor.Tape, step, batch, micro int,
	loss func(x, y tensor.Tensor) tensor.Tensor) (sum float64) {
	rows := batch / micro
	first, n := Part(rows, r.World.Rank(), r.World.Size())
	for m := range micro {
		x, y := d.Samples(r.Device, step*batch+m*rows+first, n)
		x = x.WithRows(r.World.Rows(m*rows+first, batch))
		l := loss(tape.Input(x), y)
		sum += l.Item()
		if m < micro-1 {
			tape.Backward(l, tensor.More())
		} else {
			tape.Backward(l)
		}
		tape.Reset()
	}
	return sum
}
