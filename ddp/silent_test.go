package ddp_test

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// program is a step of a small model on 4 of 8 rows, whose gradients would differ from one rank's.
type program struct {
	rank  *dist.Rank
	tape  *tensor.Tape
	model *nn.Linear
	x     nn.T // [4, 3]
	z     nn.T // the model's output [4, 2]
}

// host returns a constant that the host made of this rank's rows: it differs between ranks.
// everywhere is the sum over the ranks, whose gradients are summed, too.
func (p *program) everywhere(x nn.T) nn.T {
	return p.tape.Apply(&autograd.AllReduce{Group: p.rank.World}, x)
}

// prior is a parameter [2] that belongs to no rows.
func (p *program) prior() nn.T { return p.tape.Use(p.model.B) }

func (p *program) host(dims ...int) nn.T { return p.tape.Input(p.bare(dims...)) }

func (p *program) bare(dims ...int) nn.T {
	x := tensor.New(p.rank.Device, tensor.Float32, dims...)
	for i := range tensor.Data[float32](x) {
		tensor.Data[float32](x)[i] = float32(i%5+p.rank.World.Rank()) + 1
	}
	return x
}

func (p *program) rows(total, n int) tensor.Rows {
	return p.rank.World.Rows(n*p.rank.World.Rank(), total)
}

func (p *program) ids(dims ...int) nn.T {
	x := tensor.New(p.rank.Device, tensor.Int64, dims...)
	for i := range tensor.Data[int64](x) {
		tensor.Data[int64](x)[i] = int64(i+p.rank.World.Rank()) % 2
	}
	return p.tape.Input(x)
}

func sum2(x, _ nn.T) nn.T { return x.Square().Sum() }

func global(x nn.T) nn.T { return tensor.GlobalMean(x) }

// frozen runs the model on a NoGrad tape, as a teacher or an encoder.
func (p *program) frozen(fn func(z nn.T) nn.T) nn.T {
	tape := tensor.NewTape(p.rank.Device, tensor.NoGrad())
	return p.tape.Input(fn(p.model.Forward(tape.Input(p.bare(4, 3).WithRows(p.rows(8, 4))))))
}

const heldByHost, from = "if it belongs to them, it needs their place, x = x.WithRows(batch.X.Rows())", "it came from "

// silent are programs that one rank trains right, and that two would train wrong without an error.
var silent = map[string]struct {
	want string
	of   []func(p *program) nn.T
}{
	"constants of rows that the host made": {heldByHost, []func(p *program) nn.T{
		func(p *program) nn.T { return global(p.z.Mul(p.host(4, 1))) },                                // weights of samples
		func(p *program) nn.T { return global(ops.LogSoftmax(p.z).Mul(p.host(4, 2))) },                // advantages
		func(p *program) nn.T { return global(p.z.Sub(p.host(4, 2)).Square()) },                       // targets
		func(p *program) nn.T { return global(p.model.Forward(p.x.Add(p.host(4, 3))).Square()) },      // noise
		func(p *program) nn.T { return global(tensor.Concat(1, p.z, p.host(4, 1)).Square()) },         // a feature
		func(p *program) nn.T { return tensor.MatMul(p.host(1, 4), p.z, false, false).Sum() },         // weighted sum
		func(p *program) nn.T { return global(p.z.Permute(1, 0).Mul(p.host(4))) },                     // another layout
		func(p *program) nn.T { return global(ops.Where(p.host(4, 1).Gt(p.host()), p.z, p.z.Neg())) }, // a mask
		func(p *program) nn.T { return global(ops.Gather(ops.LogSoftmax(p.z), 1, p.ids(4, 1))) },      // actions
	}},
	"a mean over this rank's rows": {"GlobalMean", []func(p *program) nn.T{
		func(p *program) nn.T { return p.z.Square().Mean() },
		func(p *program) nn.T { return p.z.Sub(p.z.Mean(0)).Square().Sum() },
		func(p *program) nn.T { return p.z.Square().Sum(1).Mean(0) },
		func(p *program) nn.T { return p.z.Reshape(8).Mean() },
	}},
	"max, sort and top k over rows": {from, []func(p *program) nn.T{
		func(p *program) nn.T { return sum2(ops.Max(p.z, 0)) },
		func(p *program) nn.T { return sum2(ops.Sort(p.z, 0, true)) },
		func(p *program) nn.T { return sum2(ops.TopK(p.z.Sum(1), 2)) },
		func(p *program) nn.T { return sum2(ops.Min(p.z.Reshape(8), 0)) },
		func(p *program) nn.T { return ops.CumSum(p.z, 0).Square().Sum() },
		func(p *program) nn.T { return ops.LogSumExp(p.z.Permute(1, 0)).Sum() },
		func(p *program) nn.T { return ops.Softmax(p.z.Permute(1, 0)).Square().Sum() },
		func(p *program) nn.T { return sum2(ops.Max(p.lists().Reshape(1, -1), 1)) }, // of all lists of this rank
		func(p *program) nn.T { return ops.Softmax(p.lists().Reshape(1, -1)).Square().Sum() },
	}},
	"contrastive losses of this rank's rows": {from, []func(p *program) nn.T{
		func(p *program) nn.T { return ops.CrossEntropy(scores(p.z), p.ids(4), ops.CrossEntropyOptions{}) },
		func(p *program) nn.T { return ops.LogSoftmax(scores(p.z)).Sum() },
		func(p *program) nn.T { return global(scores(p.z).Sigmoid()) },
		func(p *program) nn.T { return p.z.Reshape(4, 1, 2).Sub(p.z.Reshape(1, 4, 2)).Square().Sum() },
	}},
	"pairs of this rank's rows": {from, []func(p *program) nn.T{
		func(p *program) nn.T { return global(p.z.Mul(rolled(p.z))) },
		func(p *program) nn.T { return global(p.model.Forward(p.x.Add(rolled(p.x)))) }, // mixup
		func(p *program) nn.T { return ops.MSE(p.z, rolled(p.z).Detach()) },
		func(p *program) nn.T { return p.z.Slice(0, 0, 2).Sub(p.z.Slice(0, 2, 4)).ReLU().Sum() },
		func(p *program) nn.T { return p.z.Add(ops.Embedding(p.z, p.ids(4))).Square().Sum() },
		func(p *program) nn.T { return global(tensor.Concat(1, p.z, rolled(p.z)).Square()) },
	}},
	"sums over rows in what is not linear": {"autograd.Sum", []func(p *program) nn.T{
		func(p *program) nn.T { return global(p.z.Sub(p.z.Sum(0).Scale(0.25).Detach())) },
		func(p *program) nn.T { return tensor.MatMul(p.z, p.z, true, false).Square().Sum() }, // Barlow twins
		func(p *program) nn.T { return p.z.Sum(0).Square().Sum() },
		func(p *program) nn.T { return p.z.Reshape(8).Sum(0).Exp() },
		func(p *program) nn.T { return p.z.Square().Sum().Sqrt() },
		func(p *program) nn.T { return tensor.MatMul(p.z.Permute(1, 0), p.z, false, false).Log().Sum() },
		func(p *program) nn.T { return global(p.z.Div(p.z.Abs().Sum())) },
		func(p *program) nn.T { // Barlow twins of two views
			return tensor.MatMul(p.z, p.model.Forward(p.x.Scale(2)), true, false).Affine(1, -1).Square().Sum()
		},
		func(p *program) nn.T { return tensor.AsPart(tensor.MatMul(p.z, p.z, true, false).Square().Sum(), 1) },
		func(p *program) nn.T { return ops.Softmax(p.z).Sum(0).Log().Sum() }, // entropy of the batch
	}},
	"losses that all ranks compute of all rows": {"needs autograd.Sum or Gather", []func(p *program) nn.T{
		func(p *program) nn.T { return p.everywhere(p.z.Square().Sum(0)).Sqrt().Mean() },
		func(p *program) nn.T { return p.everywhere(global(p.z.Square())).Sqrt().Add(p.prior().Square().Sum()) },
	}},
	"statistics of this rank's rows": {"nn.SyncBatchNorm(model, &autograd.AllReduce{Group: g})", []func(p *program) nn.T{
		func(p *program) nn.T { return global(p.normed(2, p.z)) },
		func(p *program) nn.T {
			return global(p.model.Forward(p.normed(1, p.x.Reshape(4, 1, 3, 1)).Reshape(4, 3)))
		},
		func(p *program) nn.T { return global(p.normed(2, tensor.Concat(0, p.z, p.z.Scale(2)))) },
	}},
	"unequal parts that are gathered": {"set AllGather.Counts to their sizes", []func(p *program) nn.T{
		func(p *program) nn.T { return global(ops.LogSumExp(tensor.MatMul(p.z, p.gathered(p.z), false, true))) },
		func(p *program) nn.T {
			return global(ops.LogSumExp(tensor.MatMul(p.z, p.gathered(p.z.Detach()), false, true)))
		},
		func(p *program) nn.T {
			return global(p.z.Reshape(4, 1, 2).Sub(p.gathered(p.x).Slice(1, 0, 2).Reshape(1, -1, 2)))
		},
	}},
	"labels that do not count, and nobody says how many do": {", and 1 if ", []func(p *program) nn.T{
		func(p *program) nn.T {
			return ops.CrossEntropy(p.z, p.ids(4), ops.CrossEntropyOptions{Ignore: new(int64)})
		},
		func(p *program) nn.T {
			return ops.CrossEntropy(p.z, p.ids(4), ops.CrossEntropyOptions{Weights: p.bare(2)})
		},
		func(p *program) nn.T {
			return ops.CrossEntropy(p.z, p.ids(4), ops.CrossEntropyOptions{Ignore: new(int64), Weights: p.bare(2), Smoothing: 0.1})
		},
	}},
	"groups of rows by Reshape": {"Rows.Group", []func(p *program) nn.T{
		func(p *program) nn.T { return p.z.Reshape(2, 2, 2).Mean(1).Square().Sum() },
		func(p *program) nn.T { return p.z.Reshape(2, 4).Sum(1).Square().Sum() },
		func(p *program) nn.T {
			g := p.z.Reshape(2, 2, 2)
			return g.Sub(g.Mean(1).Reshape(2, 1, 2)).Square().Sum()
		},
	}},
	"statistics over groups, of which each rank has one": {from, []func(p *program) nn.T{
		func(p *program) nn.T { return p.lists().Reshape(-1, 8).Mean(0).Square().Sum() },
		func(p *program) nn.T { z := p.lists().Reshape(-1, 8); return global(z.Sub(z.Mean(0)).Square()) },
		func(p *program) nn.T { return p.lists().Sum(1).Reshape(-1, 1, 4).Mean(0).Square().Sum() },
		func(p *program) nn.T {
			z := p.lists().Sum(1).Reshape(-1, 1, 2, 2)
			return global(z.Sub(z.Mean(0)).Square())
		},
	}},
	"features of a frozen model": {from, []func(p *program) nn.T{
		func(p *program) nn.T { return global(p.z.Sub(p.frozen(func(z nn.T) nn.T { return z.Mean(0) }))) },
		func(p *program) nn.T {
			return global(p.z.Mul(p.frozen(func(z nn.T) nn.T { return ops.Softmax(z.Permute(1, 0)).Permute(1, 0) })))
		},
		func(p *program) nn.T { return global(p.z.Mul(p.frozen(rolled))) },
		func(p *program) nn.T {
			return global(p.z.Mul(p.frozen(func(z nn.T) nn.T { v, _ := ops.Max(z, 0); return v })))
		},
	}},
	"a mean over some of the rows": {"scaled by a count over all ranks", []func(p *program) nn.T{
		func(p *program) nn.T { return global(p.z.Slice(0, 1, 3)) },
		func(p *program) nn.T { return global(ops.Embedding(p.z, p.ids(3))) },
		func(p *program) nn.T { return ops.MSE(p.z.Slice(0, 0, 2), p.host(2, 2)) },
		func(p *program) nn.T {
			return ops.CrossEntropy(p.z.Slice(0, 2, 4), p.ids(2), ops.CrossEntropyOptions{})
		},
	}},
	"rows that have other numbers of elements": {"their rows have other numbers of elements", []func(p *program) nn.T{
		func(p *program) nn.T { return global(p.padded().Square()) },
		func(p *program) nn.T { return ops.MSE(p.padded().Reshape(-1), p.padded().Detach().Reshape(-1)) },
		func(p *program) nn.T {
			z := p.padded()
			return ops.CrossEntropy(z, p.ids(4, z.Dim(1)), ops.CrossEntropyOptions{})
		},
		func(p *program) nn.T { // the same in one of two losses
			v, _ := ops.TopK(p.padded().Sum(2), 3+p.rank.World.Rank())
			return global(v).Add(global(p.z))
		},
		func(p *program) nn.T { return ops.BCEWithLogits(p.padded(), p.padded().Detach()) },
		func(p *program) nn.T { return global(p.padded().Slice(1, 1, 4+p.rank.World.Rank()).Tanh()) },
		func(p *program) nn.T { return global(ops.Pad(p.z, 1, 0, p.rank.World.Rank()).Square()) },
		func(p *program) nn.T { // masked words
			at := tensor.New(p.rank.Device, tensor.Int64, 4, 2+p.rank.World.Rank(), 2)
			return global(ops.LogSoftmax(ops.Gather(p.padded(), 1, p.tape.Input(at.WithRows(p.rows(8, 4))))))
		},
		func(p *program) nn.T { // boxes of each picture
			boxes := tensor.New(p.rank.Device, tensor.Int64, 4, 1+p.rank.World.Rank(), 2)
			return global(ops.Gather(p.padded(), 1, p.tape.Input(boxes.WithRows(p.rows(8, 4)))))
		},
	}},
	"rows that the input does not tell": {"Does the input lack its Rows?", []func(p *program) nn.T{
		func(p *program) nn.T { return global(p.model.Forward(p.host(4, 3))) },
		func(p *program) nn.T { return p.model.Forward(p.host(4, 3)).Square().Mean() },
		func(p *program) nn.T { return p.model.Forward(p.host(2, 3)).Sum() },
		func(p *program) nn.T {
			p.tape.Input(p.bare(4, 3).WithRows(p.rows(8, 4)))
			return global(p.model.Forward(p.host(4, 3)))
		},
	}},
	"means of what belongs to no rows": {"The mean of what belongs to no rows is x.Mean()", []func(p *program) nn.T{
		func(p *program) nn.T { return global(p.z).Add(global(p.prior().Broadcast(4, 2).Square())) },
		func(p *program) nn.T {
			return global(p.z).Sub(global(p.model.Forward(p.tape.Zeros(tensor.Float32, 4, 3))))
		},
		func(p *program) nn.T { return global(p.z).Add(global(p.model.Forward(p.host(4, 3)).Square())) }, // a bank
		func(p *program) nn.T {
			return global(p.z).Add(global(ops.Embedding(p.tape.Use(p.model.W), p.ids(4)).Square()))
		},
		func(p *program) nn.T { return global(p.z).Add(ops.MSE(p.prior().Broadcast(4, 2), p.host(4, 2))) },
	}},
	"repetitions for each of this rank's rows": {"repeats the same for each of this rank's 4 rows", []func(p *program) nn.T{
		func(p *program) nn.T { return global(p.z).Add(p.prior().Broadcast(4, 2).Square().Sum().Scale(0.125)) },
		func(p *program) nn.T { return global(p.z).Add(p.prior().Broadcast(4, 2).Square().Sum(0).Exp().Sum()) },
		func(p *program) nn.T { return global(p.z).Add(p.prior().Broadcast(4, 2).Square().Sum(-2).Exp().Sum()) },
		func(p *program) nn.T {
			return global(p.z).Add(p.model.Forward(p.tape.Zeros(tensor.Float32, 4, 3)).Sum())
		},
	}},
	"nothing": {"", []func(p *program) nn.T{
		func(p *program) nn.T { return global(p.z).Add(p.prior().Broadcast(4, 2).Square().Mean()) },
		func(p *program) nn.T { return global(p.z).Add(p.prior().Broadcast(3, 2).Square().Sum()) },
		func(p *program) nn.T {
			return global(p.z).Add(p.model.Forward(p.tape.Zeros(tensor.Float32, 4, 3)).Mean())
		},
		func(p *program) nn.T { return global(p.z.Sub(p.prior().Broadcast(4, 2)).Square()) },
		func(p *program) nn.T { return ops.MSE(p.prior().Broadcast(4, 2), p.z) },
		func(p *program) nn.T { return global(p.z.Mul(p.tape.Input(p.bare(4, 1).WithRows(p.rows(8, 4))))) },
		func(p *program) nn.T { return ops.MSE(p.z, p.frozen(nn.T.Tanh)) },
		func(p *program) nn.T { return global(p.padded().Square().Mean(1)) },
		func(p *program) nn.T {
			z := p.padded()
			return ops.CrossEntropy(z, p.ids(4, z.Dim(1)), ops.CrossEntropyOptions{Count: 44})
		},
		func(p *program) nn.T { // a loss that would be 0 on the other rank
			if p.rank.World.Rank() == 0 {
				return global(p.z)
			}
			return global(p.z).Add(global(p.z.Sum(1)))
		},
		func(p *program) nn.T { // the right Barlow twins
			all := p.tape.Apply(&autograd.Sum{Group: p.rank.World}, tensor.MatMul(p.z, p.z, true, false))
			return tensor.AsPart(all.Square().Sum(), 1)
		},
	}},
}

func TestSilentPrograms(t *testing.T) {
	for name, c := range silent {
		t.Run(name, func(t *testing.T) {
			for i, of := range c.of {
				if err := tryProgram(of); c.want == "" {
					assert.NoError(t, err, "case %d", i)
				} else {
					assert.ErrorContains(t, err, c.want, "case %d", i)
				}
			}
		})
	}
}

// lists are outputs [4, 2], of which all belong together.
func (p *program) lists() nn.T {
	of := p.rows(8, 4)
	of.Group = 4
	return p.model.Forward(p.tape.Input(p.bare(4, 3).WithRows(of)))
}

// scores are the products of each row with each row of this rank.
func scores(z nn.T) nn.T { return tensor.MatMul(z, z, false, true) }

// rolled returns each row of this rank in the place of the next.
func rolled(z nn.T) nn.T { return tensor.Concat(0, z.Slice(0, 3, 4), z.Slice(0, 0, 3)) }

// padded returns outputs for sequences, which are as long as the longest one on this rank.
func (p *program) padded() nn.T {
	return p.model.Forward(p.tape.Input(p.bare(4, 5+p.rank.World.Rank(), 3).WithRows(p.rows(8, 4))))
}

// normed is a batch norm, which nobody has told of the other ranks.
func (p *program) normed(channels int, x nn.T) nn.T {
	n := nn.NewBatchNorm2d(channels)
	nn.Init(n, p.rank.Device, tensor.Float32, 1)
	return n.Forward(x)
}

// gathered returns all rows but those that ranks leave out: as many as their number.
func (p *program) gathered(x nn.T) nn.T {
	return p.tape.Apply(&autograd.AllGather{Group: p.rank.World}, x.Slice(0, p.rank.World.Rank(), 4))
}

// tryProgram runs the step on two ranks.
func tryProgram(loss func(p *program) nn.T) error {
	cfg := dist.Config{Ranks: 2, Threads: 1, Log: io.Discard}
	return dist.Run(context.Background(), cfg, func(_ context.Context, r *dist.Rank) error {
		p := &program{rank: r, tape: tensor.NewTape(r.Device), model: nn.NewLinear(3, 2)}
		disttest.Must(ddp.Attach(r.World, p.model, ddp.Config{}))
		return tensor.Try(func() {
			p.x = p.tape.Input(p.bare(4, 3).WithRows(p.rows(8, 4)))
			p.z = p.model.Forward(p.x)
			p.tape.Backward(loss(p))
		})
	})
}
