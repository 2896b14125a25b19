package ddp_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// stacked puts tensors on top of each other, in front of their rows.
func stacked(xs ...nn.T) nn.T {
	for i, x := range xs {
		xs[i] = x.Reshape(1, -1, x.Dim(-1))
	}
	return tensor.Concat(0, xs...)
}

// gathered returns the rows of all ranks.
func (r *rows) gathered(x nn.T) nn.T {
	return r.tape.Apply(&autograd.AllGather{Group: r.group}, x)
}

// summed returns the sum over ranks, divided by the number of rows.
func (r *rows) summed(x nn.T) nn.T {
	return r.tape.Apply(&autograd.Sum{Group: r.group}, x.Scale(1/float64(r.total)))
}

// frozen computes on a tape without gradients.
func (r *rows) frozen(fn func(x, ids nn.T) nn.T) nn.T {
	t := tensor.NewTape(r.group.Device(), tensor.NoGrad())
	return fn(t.Input(r.x), t.Input(r.ids))
}

// own returns the numbers of this rank's rows.
func (r *rows) own() nn.T {
	at := make([]int64, r.n)
	for i := range at {
		at[i] = int64(r.lo + i)
	}
	return r.rowed(tensor.FromSlice(at, r.n))
}

// ignoring is a loss in which rows below hi do not count.
func (r *rows) ignoring(hi int) nn.T {
	ignored := int64(9)
	y := append([]int64{}, tensor.Data[int64](r.y)...)
	for i := range max(0, min(hi-r.lo, r.n)) {
		y[i] = ignored
	}
	o := ops.CrossEntropyOptions{Ignore: &ignored, Count: float64(max(r.total-hi, 1))}
	return ops.CrossEntropy(r.C.Forward(r.hidden()), tensor.FromSlice(y, r.n).WithRows(r.y.Rows()), o)
}

// relatives are right programs that are like those that were refused once.
var relatives = map[string]func(r *rows) nn.T{
	// Dimension 0 is not the batch, and may be as long.
	"ensemble": func(r *rows) nn.T {
		h := r.hidden()
		return ce(r.C.Forward(stacked(h, h.Scale(2).Tanh(), r.hidden(), h.ReLU()).Mean(0)), r.y)
	},
	"mixture by hand": func(r *rows) nn.T {
		h := r.hidden()
		gate := ops.Softmax(r.C.Forward(h).Slice(1, 0, 4)).Permute(1, 0).Reshape(4, -1, 1)
		return ce(r.C.Forward(stacked(h, h.Tanh(), h.ReLU(), h.Square()).Mul(gate).Sum(0)), r.y)
	},
	"IWAE": func(r *rows) nn.T {
		var all []nn.T
		for k := range 4 {
			z := r.hidden().Add(r.tape.Input(r.noise).Scale(float64(k)))
			all = append(all, r.B.Forward(z).Sub(r.in()).Square().Sum(1).Neg().Reshape(1, -1))
		}
		return nn.GlobalMean(ops.LogSumExp(tensor.Concat(0, all...).Permute(1, 0)).Neg())
	},
	"mean, largest and softmax of codes": func(r *rows) nn.T {
		c := r.tape.Use(r.Code)
		most, _ := ops.Max(c, 0)
		h := tensor.MatMul(r.hidden().Add(c.Mean(0)).Mul(most), ops.Softmax(c.Permute(1, 0)), false, false)
		return ce(r.C.Forward(tensor.MatMul(h, c, false, false)), r.y)
	},
	"normalized codes": func(r *rows) nn.T {
		c := r.tape.Use(r.Code)
		c = c.Div(c.Square().Sum(0).Affine(1, 1e-3).Sqrt())
		return ce(r.C.Forward(tensor.MatMul(r.hidden(), tensor.MatMul(c, c, true, false), false, false)), r.y)
	},
	"heads in front": func(r *rows) nn.T {
		x := r.text().Reshape(-1, words, 4, 2).Permute(2, 0, 1, 3)
		most, _ := ops.Max(x, 0)
		return ce(r.C.Forward(tensor.Concat(2, x.Sum(0), x.Mean(0), most, most)), clip(r.ids))
	},
	// A rank without rows loops once over none.
	"row by row": func(r *rows) nn.T {
		var loss nn.T
		for i := range max(r.n, 1) {
			hi := min(i+1, r.n)
			z := r.C.Forward(r.A.Forward(r.tape.Input(r.x.Slice(0, i, hi))))
			l := ops.CrossEntropy(z, r.y.Slice(0, i, hi), ops.CrossEntropyOptions{Count: float64(r.total)})
			if loss.IsZero() {
				loss = l
			} else {
				loss = loss.Add(l)
			}
		}
		return loss
	},
	// What is computed of the whole batch, beside a loss of rows.
	"Barlow twins": func(r *rows) nn.T {
		c := r.summed(tensor.MatMul(r.hidden(), r.A.Forward(r.in().Scale(1.1)), true, false))
		return c.Square().Sum()
	},
	"Barlow twins and a decoder": func(r *rows) nn.T {
		z := r.hidden()
		c := r.summed(tensor.MatMul(z, z, true, false))
		return nn.MSE(r.B.Forward(tensor.WithAux(z, c.Square().Sum(), 0.1)), r.x)
	},
	"VICReg": func(r *rows) nn.T {
		z := r.hidden()
		mean := r.tape.Apply(&autograd.AllReduce{Group: r.group}, z.Sum(0).Scale(1/float64(r.total)))
		spread := r.summed(z.Sub(mean).Square().Sum(0)).Affine(1, 1e-2).Sqrt()
		return ce(r.C.Forward(tensor.WithAux(z, spread.Affine(-1, 1).ReLU().Sum(), 0.1)), r.y)
	},
	"entropy of the batch": func(r *rows) nn.T {
		z := r.C.Forward(r.hidden())
		q := r.summed(ops.Softmax(z).Sum(0))
		return ce(tensor.WithAux(z, q.Mul(q.Log()).Sum(), 0.1), r.y)
	},
	// Features of a tape without gradients.
	"probe of two layers": func(r *rows) nn.T {
		return ce(r.C.Forward(r.A.Forward(r.tape.Input(r.frozen(func(x, _ nn.T) nn.T {
			h := r.A.Forward(x).Tanh()
			return tensor.Concat(1, h, r.B.Forward(h).Slice(1, 0, 4))
		})))), r.y)
	},
	"probe of features kept on the host": func(r *rows) nn.T {
		f := tensor.Floats(r.frozen(func(x, _ nn.T) nn.T { return r.A.Forward(x) }))
		return ce(r.C.Forward(r.rowed(tensor.FromSlice(f, r.n, 8))), r.y)
	},
	"probe of the mean of words": func(r *rows) nn.T {
		return ce(r.C.Forward(r.tape.Input(r.frozen(func(_, ids nn.T) nn.T { return r.Words.Forward(ids).Mean(1) }))), r.y)
	},
	"attention to frozen words": func(r *rows) nn.T {
		f := r.tape.Input(r.frozen(func(_, ids nn.T) nn.T { return r.Words.Forward(ids) }))
		return ce(r.C.Forward(ops.CrossAttention(r.text(), f, f, 2, ops.AttentionOptions{})), clip(r.ids))
	},
	"pseudo-labels and their weights": func(r *rows) nn.T {
		var w nn.T
		y := r.frozen(func(x, _ nn.T) (y nn.T) { w, y = ops.Max(ops.Softmax(r.C.Forward(r.A.Forward(x))), 1); return y })
		l := ops.CrossEntropy(r.C.Forward(r.hidden()), r.tape.Input(y), ops.CrossEntropyOptions{PerRow: true})
		return nn.GlobalMean(l.Mul(r.tape.Input(w)))
	},
	// Rows of all ranks.
	"CLIP": func(r *rows) nn.T {
		a, b := r.hidden(), r.text().Mean(1)
		return ce(tensor.MatMul(a, r.gathered(b), false, true), r.own()).Add(ce(tensor.MatMul(b, r.gathered(a), false, true), r.own()))
	},
	"SupCon": func(r *rows) nn.T {
		z, y := r.hidden(), r.tape.Input(r.y).Cast(tensor.Float64)
		same := y.Reshape(-1, 1).Eq(r.gathered(y).Reshape(1, -1)).Cast(tensor.Float64)
		return nn.GlobalMean(ops.LogSoftmax(tensor.MatMul(z, r.gathered(z), false, true)).Mul(same).Sum(1).Neg())
	},
	"farthest of all": func(r *rows) nn.T {
		far, _ := ops.Max(r.hidden().Reshape(-1, 1, 8).Sub(r.gathered(r.hidden().Scale(0.9)).Reshape(1, -1, 8)).Square().Sum(2), 1)
		return nn.GlobalMean(far.Affine(-1, 3).ReLU())
	},
	// Nothing counts, on a rank or on all.
	"no label counts":           func(r *rows) nn.T { return r.ignoring(9) },
	"no label of a rank counts": func(r *rows) nn.T { return r.ignoring(4) },
	"weights of classes, bare labels": func(r *rows) nn.T {
		o := ops.CrossEntropyOptions{Weights: tensor.FromSlice([]float64{1, 2, 0.5, 3, 0}, 5), Count: 3.5, Smoothing: 0.1}
		y := tensor.FromSlice(tensor.Data[int64](r.y), r.n)
		z := r.C.Forward(r.hidden())
		return ops.CrossEntropy(z, y, o).Add(ops.CrossEntropy(z, r.tape.Input(y), o))
	},
	"a mask of zeros": func(r *rows) nn.T {
		return nn.GlobalMean(r.C.Forward(r.hidden()).Square().Mul(r.rowed(r.filled(0, 1))))
	},
	// Indices of 32 bits.
	"int32 ids and labels": func(r *rows) nn.T {
		y := r.tape.Input(r.y.Cast(tensor.Int32))
		z := r.C.Forward(r.Words.Forward(r.tape.Input(r.ids.Cast(tensor.Int32))).Mean(1))
		return ce(z, r.y.Cast(tensor.Int32)).Add(nn.GlobalMean(ops.Gather(z, 1, y.Reshape(-1, 1)))).Add(ce(z, ops.OneHot(y, 5, tensor.Float64)))
	},
	"int32 positions": func(r *rows) nn.T {
		at := r.At.Forward(ops.Arange(r.tape, tensor.Int32, 0, words, 1))
		return ce(r.C.Forward(r.text().Add(at)), clip(r.ids).Cast(tensor.Int32))
	},
	"int32 places": func(r *rows) nn.T {
		y := r.tape.Input(r.y.Cast(tensor.Int32)).Reshape(-1, 1)
		return nn.GlobalMean(ops.ScatterAdd(r.tape.Zeros(tensor.Float64, r.n, 5), 1, y, r.D.Forward(r.hidden())).Square())
	},
	// Batches that the host cuts.
	"columns": func(r *rows) nn.T { return ce(r.C.Forward(r.tape.Input(r.x.Slice(1, 2, 10))), r.y) },
	"pieces": func(r *rows) nn.T {
		p := r.x.Split(1, 8, 4)
		return nn.MSE(r.C.Forward(r.tape.Input(p[0])).Slice(1, 0, 4), p[1])
	},
	"the next word": func(r *rows) nn.T {
		return ce(r.C.Forward(r.Words.Forward(r.tape.Input(r.ids.Slice(1, 0, words-1)))), clip(r.ids).Slice(1, 1, words))
	},
	"every other feature, beside others": func(r *rows) nn.T {
		x := r.x.Reshape(-1, 6, 2).Slice(2, 0, 1).Reshape(-1, 6)
		return ce(r.C.Forward(r.tape.Input(tensor.Concat(1, x, r.x.Slice(1, 0, 2)))), r.y)
	},
}

// networks are a generator and a discriminator, with an optimizer each.
type networks struct {
	G, D   *nn.Linear
	og, od *optim.Optimizer
	disttest.Batch
	x, noise tensor.Tensor
}

func (n *networks) judged(x nn.T, label float64) nn.T {
	y := tensor.FromSlice([]float64{label, label, label, label, label}[:n.N], n.N, 1)
	return nn.BCEWithLogits(n.D.Forward(x.Tanh()), y)
}

func (n *networks) made() nn.T { return n.G.Forward(n.Tape.Input(n.noise)) }

func (n *networks) real() nn.T { return n.judged(n.Tape.Input(n.x), 1) }

// step trains one of the networks by a loss.
func (n *networks) step(o *optim.Optimizer, loss nn.T) (float64, error) {
	value := loss.Item()
	n.Tape.Backward(loss)
	n.Tape.Reset()
	return value, o.Step()
}

// turns are the steps of programs that train two networks by turns.
var turns = map[string]func(n *networks) (float64, error){
	"detached, then the discriminator frozen": func(n *networks) (float64, error) {
		value, err := n.step(n.od, n.real().Add(n.judged(n.made().Detach(), 0)))
		if err != nil {
			return 0, err
		}
		n.D.W.Freeze()
		n.D.B.Freeze()
		defer n.D.W.Unfreeze()
		defer n.D.B.Unfreeze()
		other, err := n.step(n.og, n.judged(n.made(), 1))
		return value + other, err
	},
	"the discriminator frozen on the same tape": func(n *networks) (float64, error) {
		loss := n.real().Add(n.judged(n.made().Detach(), 0))
		n.Tape.Backward(loss)
		if err := n.od.Step(); err != nil {
			return 0, err
		}
		n.D.W.Freeze()
		n.D.B.Freeze()
		defer n.D.W.Unfreeze()
		defer n.D.B.Unfreeze()
		before := loss.Item()
		other, err := n.step(n.og, n.judged(n.made(), 1))
		if n.D.W.HasGrad() || n.D.B.HasGrad() {
			return 0, errors.New("frozen, and it has a gradient")
		}
		return before + other, err
	},
	"a bias frozen for a part of the forward pass": func(n *networks) (float64, error) {
		loss := n.real()
		n.D.B.Freeze()
		loss = loss.Add(n.judged(n.made().Detach(), 0))
		value, err := n.step(n.od, loss)
		if n.D.B.Unfreeze(); err != nil {
			return 0, err
		}
		other, err := n.step(n.og, n.judged(n.made(), 1))
		n.D.W.Consume()
		n.D.B.Consume()
		return value + other, err
	},
	"without a gradient, then dropped ones": func(n *networks) (float64, error) {
		t := tensor.NewTape(n.noise.Device(), tensor.NoGrad())
		made := n.Tape.Input(n.G.Forward(t.Input(n.noise)))
		value, err := n.step(n.od, n.real().Add(n.judged(made, 0)))
		if err != nil {
			return 0, err
		}
		other, err := n.step(n.og, n.judged(n.made(), 1))
		n.D.W.Consume()
		n.D.B.Consume()
		return value + other, err
	},
	"the generator in the first of two microbatches": func(n *networks) (float64, error) {
		loss := n.judged(n.made(), 1)
		value := loss.Item()
		n.Tape.Backward(loss, tensor.More())
		n.Tape.Reset()
		other, err := n.step(n.od, n.real().Add(n.judged(n.made().Detach(), 0)))
		return value + other, errors.Join(err, n.og.Step())
	},
	"the discriminator frozen in the second of two microbatches": func(n *networks) (float64, error) {
		loss := n.real()
		value := loss.Item()
		n.Tape.Backward(loss, tensor.More())
		n.Tape.Reset()
		n.D.W.Freeze()
		n.D.B.Freeze()
		other, err := n.step(n.og, n.judged(n.made(), 1))
		n.D.W.Unfreeze()
		n.D.B.Unfreeze()
		return value + other, errors.Join(err, n.od.Step())
	},
	"the generator first": func(n *networks) (float64, error) {
		value, err := n.step(n.og, n.judged(n.made(), 1))
		n.D.W.Consume()
		n.D.B.Consume()
		if err != nil {
			return 0, err
		}
		other, err := n.step(n.od, n.judged(n.made().Detach(), 0).Add(n.real()))
		return value + other, err
	},
}

// attached are ways to attach two networks.
var attached = map[string]func(r *dist.Rank, n *networks) error{
	"together": func(r *dist.Rank, n *networks) error {
		_, err := ddp.Attach(r.World, n, ddp.Config{DType: tensor.Float64, AllowUnused: true})
		return err
	},
	"apart": func(r *dist.Rank, n *networks) error {
		_, err := ddp.Attach(r.World, n.G, ddp.Config{DType: tensor.Float64})
		if err == nil {
			_, err = ddp.Attach(r.World, n.D, ddp.Config{DType: tensor.Float64})
		}
		return err
	},
	"sharded": func(r *dist.Rank, n *networks) error {
		for _, l := range []*nn.Linear{n.G, n.D} {
			s := fsdp.New(fsdp.Config{Shard: r.World, DType: tensor.Float64})
			s.Unit(l)
			disttest.Must(s.Attach(l))
		}
		return nil
	},
	"sharded together": func(r *dist.Rank, n *networks) error {
		s := fsdp.New(fsdp.Config{Shard: r.World, DType: tensor.Float64})
		s.Unit(n.G)
		s.Unit(n.D)
		_, err := s.Attach(n)
		return err
	},
}

// Two networks that are trained by turns train as on one rank.
func TestNetworksByTurns(t *testing.T) {
	for name, step := range turns {
		for how, attach := range attached {
			var want disttest.Result
			for ranks := 1; ranks <= 3; ranks++ {
				if ranks == 2 && !reliability.Long(t) {
					continue
				}
				c := training{Ranks: ranks, Steps: 4, Micro: 1, Batch: 5, Name: name + ", " + how}
				c.Attach = func(r *dist.Rank, _ *dist.Mesh) (a disttest.Attached, err error) {
					n := &networks{G: nn.NewLinear(6, 6), D: nn.NewLinear(6, 1)}
					err = attach(r, n)
					a.Params = nn.ParamsOf(n)
					n.og, n.od = sgd(a.Params[:2], nil), sgd(a.Params[2:], nil)
					a.Own, a.Step = n.og, func(s *disttest.State) ([]float64, error) {
						n.Batch = s.Batch(s.Tape, 0)
						set := disttest.Dataset{DType: tensor.Float64, Features: 6}
						x, _ := set.Samples(r.Device, n.First, n.N)
						noise, _ := set.Samples(r.Device, 1000+n.First, n.N)
						n.x, n.noise = x.WithRows(n.Rows), noise.WithRows(n.Rows)
						value, err := step(n)
						return []float64{value}, err
					}
					return a, err
				}
				got := c.Run(t)
				if ranks == 1 {
					want = got
				}
				disttest.RequireEqual(t, want, got, 1e-12)
				require.NotEqual(t, want.First, want.Last)
			}
		}
	}
}

func TestLongNetworksByTurns(t *testing.T) { reliability.AsLong(t, TestNetworksByTurns) }

// A network that some ranks train and others do not is an error on all, and so is one of which a part got no gradient.
func TestNetworksOnSomeRanks(t *testing.T) {
	for name, c := range map[string]struct {
		loss func(n *networks, rank int) nn.T
		want string
	}{
		"some ranks": {func(n *networks, rank int) nn.T {
			if rank == 0 {
				return n.judged(n.made(), 1)
			}
			return n.judged(n.made().Detach(), 1)
		}, "allreduce"},
		"a part of a network": {func(n *networks, _ int) nn.T {
			n.Tape.Use(n.G.W)
			return n.judged(n.Tape.Input(n.x).Add(n.Tape.Use(n.G.B)), 1)
		}, "no gradient for g.weight"},
	} {
		config := dist.Config{Ranks: 2, Timeout: 20 * time.Second, Log: io.Discard}
		err := dist.Run(context.Background(), config, func(_ context.Context, r *dist.Rank) error {
			n := &networks{G: nn.NewLinear(6, 6), D: nn.NewLinear(6, 1)}
			disttest.OK(attached["apart"](r, n))
			params := nn.ParamsOf(n)
			n.od, n.og = sgd(params[2:], nil), sgd(params[:2], nil)
			n.Tape = tensor.NewTape(r.Device)
			n.First, n.N = 3*r.World.Rank(), 3
			n.Rows = r.World.Rows(n.First, 6)
			set := disttest.Dataset{DType: tensor.Float64, Features: 6}
			x, _ := set.Samples(r.Device, n.First, n.N)
			n.x, n.noise = x.WithRows(n.Rows), x.WithRows(n.Rows)
			for range 3 {
				_, err := n.step(n.od, c.loss(n, r.World.Rank()))
				if err != nil {
					return err
				}
			}
			return nil
		})
		require.ErrorContains(t, err, c.want, name)
	}
}
