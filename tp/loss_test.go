package tp_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/models/gpt/parallel"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/ops"
	"github.com/ringo-ml/ringo/tp"
)

// lossOn returns the loss of a group of ranks, for words.
func lossOn(g *dist.Group, words int) (loss *tp.CrossEntropy) {
	if err := tp.Parallelize(nn.Sequential{}, tp.Config{Group: g}, func(p *tp.Parallel) { loss = p.CrossEntropy(words) }); err != nil {
		panic(err)
	}
	return loss
}

// Backward of the loss is its adjoint, whoever has the labels.
func TestCrossEntropyAdjoint(t *testing.T) {
	for ranks := 1; ranks <= 4; ranks++ {
		part := func(rank, _ int) []int { return []int{4, layout.Shares(make([]int, ranks), 9)[rank]} }
		logits := disttest.Operand{Kind: tensor.Cut, Dims: part}
		labels := disttest.Operand{Const: func(*dist.Rank) tensor.Tensor { return tensor.FromSlice([]int64{0, 8, 1, 4}, 4) }}
		disttest.Adjoint(t, ranks, func(r *dist.Rank) disttest.Communicating { return lossOn(r.World, 9) }, logits, labels)
	}
}

// The loss and its gradient are nn.CrossEntropy's, in every type, with labels that do not count, and for extreme logits.
func TestCrossEntropy(t *testing.T) {
	const rows, words = 6, 7
	ignore := int64(-100)
	labels := []int64{0, 6, 3, 2, -100, 5}
	for _, d := range []tensor.DType{tensor.Float64, tensor.Float32, tensor.BFloat16} {
		for _, scale := range []float64{1, 1000} {
			p := tensor.NewParam(tensor.NormalInit(0, scale), rows, words)
			p.Make(cpu.New(1), d, 1)
			one := tensor.NewTape(p.Value.Device())
			o := ops.CrossEntropyOptions{Ignore: &ignore, Count: 5}
			// The losses of chunks have other gradients.
			want := nn.CrossEntropy(one.Use(p), one.Input(tensor.FromSlice(labels, rows)), o).Scale(0.25)
			want = want.Add(nn.CrossEntropy(one.Use(p).Slice(0, 0, 2), one.Input(tensor.FromSlice(labels[:2], 2)), o).Scale(-2))
			one.Backward(want)
			for ranks := 1; ranks <= 3; ranks++ {
				require.NoError(t, disttest.OnRanks(ranks, func(r *dist.Rank) error {
					mesh, err := r.Mesh("tp=" + string(rune('0'+ranks)))
					require.NoError(t, err)
					g := mesh.Group("tp")
					lo, hi := layout.Share(words, g.Rank(), ranks)
					q := tensor.NewParam(tensor.NormalInit(0, scale), rows, words)
					q.Place(g.Axis(), layout.Division{Dim: 1})
					q.Make(r.Device, d, 1)
					loss := lossOn(g, words)
					tape := tensor.NewTape(r.Device)
					y := tensor.FromSlice(labels, rows)
					if ranks == 2 {
						y = tape.Input(y).Cast(tensor.Int32)
					}
					x := tape.Use(q)
					got := loss.Loss(x, y, o).Scale(0.25).Add(loss.Loss(x.Slice(0, 0, 2), y.Slice(0, 0, 2), o).Scale(-2))
					tol := map[tensor.DType]float64{tensor.Float64: 1e-13, tensor.Float32: 1e-6, tensor.BFloat16: 1e-2}[d]
					require.InEpsilon(t, want.Item(), got.Item(), tol)
					tape.Backward(got)
					whole := tensor.Floats(p.Grad)
					for i := range rows {
						require.InDeltaSlice(t, whole[i*words+lo:i*words+hi], tensor.Floats(q.Grad.ToLocal())[i*(hi-lo):(i+1)*(hi-lo)], tol)
					}
					return nil
				}))
			}
		}
	}
}

// wholeLoss says what Loss does of the function: its output is the same on all ranks.
type wholeLoss struct {
	*ops.LinearCrossEntropy
	axes tensor.Axes
}

func (f *wholeLoss) Types(in []tensor.Types, _ tensor.Axes) ([]tensor.Types, error) {
	out, err := in[0].Convert(f.axes, tensor.Replicated, tensor.Invariant)
	return []tensor.Types{out}, err
}

// So is that of the loss without logits.
func TestLinearLossAdjoint(t *testing.T) {
	for ranks := 1; ranks <= 3; ranks++ {
		part := func(rank, _ int) []int { return []int{layout.Shares(make([]int, ranks), 9)[rank], 3} }
		x := disttest.Operand{Kind: tensor.Replicated, Dims: disttest.Dims(4, 3)}
		labels := disttest.Operand{Const: func(*dist.Rank) tensor.Tensor { return tensor.FromSlice([]int64{0, 8, 1, 4}, 4) }}
		disttest.Adjoint(t, ranks, func(r *dist.Rank) disttest.Communicating {
			f := lossOn(r.World, 9).Linear()
			f.SoftCap = 0.5
			return &wholeLoss{f, r.World.Axes()}
		}, x, disttest.Operand{Kind: tensor.Cut, Dims: part}, labels)
	}
}

type linearLoss func(f *tp.CrossEntropy, head *nn.Linear, x, y nn.T, options ...ops.CrossEntropyOptions) nn.T

// A head may be trained alone, on features without a gradient, and its gradient must be summed over ranks with other rows as elsewhere.
func TestLinearLossOfFixedFeatures(t *testing.T) {
	const rows, width, words = 6, 3, 5
	require.NoError(t, disttest.OnRanks(4, func(r *dist.Rank) error {
		mesh := disttest.Must(r.Mesh("dp=2,tp=2"))
		dp, g := mesh.Group("dp"), mesh.Group("tp")
		step := func(summed bool, loss linearLoss) (grad []float64, err error) {
			w := tensor.NewParam(tensor.NormalInit(0, 1), words, width)
			w.SetName("w")
			w.Place(g.Axis(), layout.Division{})
			if summed {
				w.SumOver(dp.Axes())
			}
			w.Make(r.Device, tensor.Float64, 2)
			x, y := make([]float64, rows*width), make([]int64, rows)
			for i := range x {
				x[i] = float64(i*i%7) - 3
			}
			for i := range y {
				y[i] = int64(i % words)
			}
			tape, at := tensor.NewTape(r.Device), dp.Rows(dp.Rank()*rows, 2*rows)
			err = tensor.Try(func() {
				in := tape.Input(tensor.FromSlice(x, rows, width).WithRows(at))
				head := &nn.Linear{W: w, Pre: &autograd.Copy{Group: g}}
				tape.Backward(loss(lossOn(g, words), head, in, tensor.FromSlice(y, rows).WithRows(at)))
				grad = tensor.Floats(w.Grad.ToLocal())
			})
			return grad, err
		}
		logits := func(f *tp.CrossEntropy, head *nn.Linear, x, y nn.T, _ ...ops.CrossEntropyOptions) nn.T {
			return f.Loss(head.Forward(x), y)
		}
		want := disttest.Must(step(true, logits))
		require.InDeltaSlice(t, want, disttest.Must(step(true, (*tp.CrossEntropy).LinearLoss)), 1e-13)
		for _, loss := range []linearLoss{logits, (*tp.CrossEntropy).LinearLoss} {
			_, err := step(false, loss)
			require.ErrorContains(t, err, "is the same on all ranks and counts its gradient once, input 0 is other rows on each")
		}
		return nil
	}))
}

// LinearLoss and its gradients are those of the whole head, which caps its logits, with labels that do not count; two calls may differ in
// them, and tokens may be of several parts of the rows.
func TestLinearLoss(t *testing.T) {
	const rows, width, words = 300, 4, 7
	ignore := int64(3)
	labels := make([]int64, rows)
	for i := range labels {
		labels[i] = int64(i * i % words)
	}
	step := func(dev tensor.Device, d tensor.DType, cut func(w *tensor.Param), loss func(head *nn.Linear, x, y nn.T, count float64) nn.T) (
		value float64, x, w *tensor.Param) {
		x = tensor.NewParam(tensor.NormalInit(0, 1), rows, width)
		w = tensor.NewParam(tensor.NormalInit(0, 1), words, width)
		x.SetName("x")
		w.SetName("w")
		cut(w)
		x.Make(dev, d, 1)
		w.Make(dev, d, 2)
		tape, y := tensor.NewTape(dev), tensor.FromSlice(labels, rows)
		head, in := &nn.Linear{W: w, SoftCap: 1.5}, tape.Use(x)
		l := loss(head, in, y, 250).Add(loss(head, in.Slice(0, 0, 9), y.Slice(0, 0, 9), 8).Scale(-0.1))
		tape.Backward(l)
		return l.Item(), x, w
	}
	for d, tol := range map[tensor.DType]float64{tensor.Float64: 1e-13, tensor.Float32: 1e-5, tensor.BFloat16: 3e-2} {
		want, wantX, wantW := step(cpu.New(1), d, func(*tensor.Param) {}, func(head *nn.Linear, x, y nn.T, count float64) nn.T {
			return nn.CrossEntropy(head.Forward(x), y, ops.CrossEntropyOptions{Ignore: &ignore, Count: count})
		})
		for ranks := 1; ranks <= 3; ranks++ {
			require.NoError(t, disttest.OnRanks(ranks, func(r *dist.Rank) error {
				mesh := disttest.Must(r.Mesh(fmt.Sprint("tp=", ranks)))
				g := mesh.Group("tp")
				loss := lossOn(g, words)
				in := &autograd.Copy{Group: g}
				got, x, w := step(r.Device, d, func(w *tensor.Param) { w.Place(g.Axis(), layout.Division{}) },
					func(head *nn.Linear, x, y nn.T, count float64) nn.T {
						head.Pre = in
						return loss.LinearLoss(head, x, y, ops.CrossEntropyOptions{Ignore: &ignore, Count: count})
					})
				require.InDelta(t, want, got, tol)
				require.InDeltaSlice(t, tensor.Floats(wantX.Grad), tensor.Floats(x.Grad), tol)
				lo, hi := layout.Share(words, g.Rank(), ranks)
				require.InDeltaSlice(t, tensor.Floats(wantW.Grad)[lo*width:hi*width], tensor.Floats(w.Grad.ToLocal()), tol)
				return nil
			}))
		}
	}
}

// The ranks exchange three numbers a token, and not the vocabulary.
func TestCrossEntropyBytes(t *testing.T) {
	const rows, words, ranks = 64, 1000, 2 // engines round up to 64 bytes
	require.NoError(t, disttest.OnRanks(ranks, func(r *dist.Rank) error {
		loss, tape := lossOn(r.World, words), tensor.NewTape(r.Device, tensor.NoGrad())
		before := r.World.Stats().Wire["allreduce"]
		loss.Loss(tape.Input(tensor.New(r.Device, tensor.Float32, rows, words/ranks)), tensor.New(r.Device, tensor.Int64, rows))
		require.LessOrEqual(t, r.World.Stats().Wire["allreduce"]-before, uint64(3*rows*4))
		require.Positive(t, r.World.Stats().Wire["allreduce"]-before)
		return nil
	}))
}

func TestWrongLabels(t *testing.T) {
	require.NoError(t, disttest.OnRanks(2, func(r *dist.Rank) error {
		loss, tape := lossOn(r.World, 5), tensor.NewTape(r.Device, tensor.NoGrad())
		logits := tape.Input(tensor.New(r.Device, tensor.Float32, 2, 3-r.World.Rank()))
		type wrong struct {
			want string
			call func()
		}
		for _, c := range []wrong{ // in one order on all ranks
			{"label 1 is 5, not in [0,5)", func() { loss.Loss(logits, tensor.FromSlice([]int64{4, 5}, 2)) }},
			{"label 0 is -100, not in [0,5)", func() { loss.Loss(logits, tensor.FromSlice([]int64{-100, 0}, 2)) }},
			{"labels that do not count need Count", func() {
				loss.Loss(logits, tensor.FromSlice([]int64{4, 4}, 2), ops.CrossEntropyOptions{Ignore: new(int64)})
			}},
			{"ranks that divide words take Ignore and Count, and no Weights, PerRow or Smoothing", func() {
				loss.Loss(logits, tensor.FromSlice([]int64{4, 4}, 2), ops.CrossEntropyOptions{Smoothing: 0.1})
			}},
			{"take Ignore and Count, and no Weights", func() {
				loss.LinearLoss(&nn.Linear{}, logits, logits, ops.CrossEntropyOptions{PerRow: true})
			}},
			{"of 3 classes; ranks have parts of the logits: if these are the classes, as behind Columns, the loss is tp.CrossEntropy", func() {
				ty := logits.Types().With(r.World.Axes(), tensor.Cut)
				part := tape.Input(tensor.New(r.Device, tensor.Float32, 2, 3).WithTypes(ty))
				nn.CrossEntropy(part, tensor.FromSlice([]int64{2, 4}, 2))
			}},
			{"labels are int64", func() { loss.Loss(logits, tensor.FromSlice([]float64{0, 0}, 2)) }},
			{"of 5, and labels", func() {
				loss.Loss(tape.Input(tensor.New(r.Device, tensor.Float32, 2, 5)), tensor.FromSlice([]int64{4, 4}, 2))
			}},
		} {
			require.ErrorContains(t, tensor.Try(c.call), c.want)
		}
		return nil
	}))
}

// Ranks that are given different batches, rows or random numbers are told so in their first step.
func TestRanksDisagree(t *testing.T) {
	for want, c := range map[string]struct {
		first, label, seed int
	}{
		"inputs some values (rank 0) vs others (rank 1), ranks that share the work on a batch need the same inputs and labels": {label: 1},
		"rows 2 from 0 on (rank 0) vs 2 from 1 on (rank 1)":                                                                    {first: 1},
		"seed 0 (rank 0) vs 1 (rank 1)": {seed: 1},
	} {
		disttest.EachFails(t, 2, want, func(r *dist.Rank) error {
			m, loss, _ := divided(t, r, models["gpt2"], tp.Config{})
			rank := r.World.Rank()
			ids, next := tokens(0, 2, tensor.Rows{First: c.first * rank, Stride: 1, Total: 3})
			tensor.Data[int64](next)[3] = int64(c.label * rank)
			loss.Loss(m.Forward(tensor.NewTape(r.Device, tensor.Seed(uint64(c.seed*rank))).Input(ids)), next)
			return nil
		})
	}
}

// divided returns a model on ranks that divide it, and its loss.
func divided(t *testing.T, r *dist.Rank, c gpt.Config, cfg tp.Config) (*gpt.Model, *tp.CrossEntropy, *dist.Group) {
	mesh, err := r.Mesh("tp=2")
	require.NoError(t, err)
	m, err := gpt.New(c)
	require.NoError(t, err)
	cfg.Group = mesh.Group("tp")
	loss, err := parallel.Divide(m, cfg, nil)
	require.NoError(t, err)
	nn.Init(m, r.Device, tensor.Float32, 1)
	return m, loss, mesh.Group("tp")
}

// A layer has two all-reduces forward and two backward, or as many all-gathers and reduce-scatters, which send what the formulas of
// package autograd say. Beside them stand the vocabulary's, and those of parameters that are used on a part of the tokens. Blocks that are
// computed again in backward communicate again, but for nothing else: two all-reduces each. Chunks send the same bytes, in more calls.
func TestCallsAndBytes(t *testing.T) {
	c := gpt.Config{Kind: gpt.GPT2, Vocab: 64, Positions: 16, Width: 32, Layers: 3, Heads: 4, Tied: true}
	const batch, ranks, floats = 2, 2, 4
	activations := uint64(batch * c.Positions * c.Width * floats)
	share := activations * (ranks - 1) / ranks // of an all-gather or reduce-scatter; an all-reduce sends twice that
	layers, sent := uint64(c.Layers), make([]uint64, len(forms))
	for i, cfg := range forms {
		require.NoError(t, disttest.OnRanks(ranks, func(r *dist.Rank) error {
			m, loss, g := divided(t, r, c, cfg)
			tape := tensor.NewTape(r.Device)
			ids := tensor.New(r.Device, tensor.Int64, batch, c.Positions)
			l := loss.Loss(m.Forward(tape.Input(ids)), ids)
			forward := g.Stats()
			tape.Backward(l)
			whole := g.Stats()
			if r.World.Rank() == 0 {
				sent[i] = whole.WireBytes()
			}
			if cfg.Chunks > 0 {
				return nil
			}
			numbers := uint64(2 * 3 * batch * c.Positions * floats * (ranks - 1) / ranks)
			if !cfg.Sequence {
				require.Equal(t, map[string]uint64{"allreduce": 1 + 2*layers + 2}, forward.Calls)
				require.Equal(t, map[string]uint64{"allreduce": 1 + 2*layers + 2 + 2*layers + 1}, whole.Calls)
				require.Equal(t, (1+2*layers)*2*share+numbers, forward.Wire["allreduce"])
				require.Equal(t, (2*layers+1)*2*share, whole.Wire["allreduce"]-forward.Wire["allreduce"])
				for _, p := range nn.ParamsOf(m) {
					p.Consume()
				}
				tape.Reset()
				m.Recompute = true
				tape.Backward(loss.Loss(m.Forward(tape.Input(ids)), ids))
				require.Equal(t, whole.Calls["allreduce"]+2*layers, g.Stats().Calls["allreduce"]-whole.Calls["allreduce"])
				return nil
			}
			small := 6*layers + 2 // a block's norms and late biases, and the last norm
			require.Equal(t, map[string]uint64{"allreduce": 1 + 2, "allgather": 2*layers + 1, "reducescatter": 2 * layers}, even(forward.Calls))
			again := 2 * layers // what columns read is not kept, but for the last ones, the logits
			require.Equal(t, map[string]uint64{"allreduce": 1 + 2 + small, "allgather": 2*layers + 1 + 2*layers + 1 + again,
				"reducescatter": 2*layers + 2*layers + 1}, even(whole.Calls))
			require.Equal(t, (2*layers+1+2*layers+1+again)*share, even(whole.Wire)["allgather"])
			require.Equal(t, (2*layers+2*layers+1)*share, even(whole.Wire)["reducescatter"])
			return nil
		}))
	}
	require.NotZero(t, sent[1])
	require.Equal(t, sent[1], sent[2])
}

// A rank keeps its part of the tokens from forward to backward, and what lies between the divided layers: what these read is gathered
// again.
func TestKeepsItsTokens(t *testing.T) {
	const ranks, batch, floats = 2, 4, 4
	c := gpt.Config{Kind: gpt.GPT2, Vocab: 64, Positions: 64, Width: 32, Layers: 6, Heads: 4, Tied: true}
	activation := batch * c.Positions * c.Width * floats
	live := map[string]int{}
	for name, cfg := range map[string]*tp.Config{"one rank": nil, "whole": {}, "parts": {Sequence: true}} {
		n := ranks
		if cfg == nil {
			n = 1
		}
		require.NoError(t, disttest.OnRanks(n, func(r *dist.Rank) error {
			tape, ids := tensor.NewTape(r.Device), tensor.New(r.Device, tensor.Int64, batch, c.Positions)
			var l nn.T
			if cfg != nil {
				m, loss, _ := divided(t, r, c, *cfg)
				l = loss.Loss(m.Forward(tape.Input(ids)), ids)
			} else {
				m, err := gpt.New(c)
				require.NoError(t, err)
				nn.Init(m, r.Device, tensor.Float32, 1)
				l = nn.CrossEntropy(m.Forward(tape.Input(ids)), ids)
			}
			if r.World.Rank() == 0 {
				live[name], _ = tape.Memory()
			}
			tape.Backward(l)
			return nil
		}))
	}
	between := 4 * activation // of a block: what each of two rows sums, before and behind the bias
	around := 6 * activation  // what looks tokens up, what the logits read, and the loss
	require.LessOrEqual(t, live["parts"], live["one rank"]/ranks+c.Layers*between/ranks+around)
	require.Greater(t, live["whole"]-live["parts"], c.Layers*5*activation) // norms, sums, residuals: half; what columns read: all but one
}

// even counts operations on parts of given sizes as those on equal ones.
func even(n map[string]uint64) map[string]uint64 {
	out := map[string]uint64{}
	for name, v := range n {
		switch name {
		case "allgatherv":
			name = "allgather"
		case "reducescatterv":
			name = "reducescatter"
		}
		out[name] += v
	}
	return out
}

// A step allocates nothing on the heap.
func TestStepAllocatesNothing(t *testing.T) {
	c := gpt.Config{Kind: gpt.Llama, Vocab: 33, Positions: 8, Width: 16, Layers: 2, Heads: 4, KVHeads: 2}
	for _, cfg := range forms {
		disttest.SteadySteps(t, dist.Run, 12, 6, func(r *dist.Rank) (func() error, error) {
			m, loss, _ := divided(t, r, c, cfg)
			params := nn.ParamsOf(m)
			tape, ids := tensor.NewTape(r.Device), tensor.New(r.Device, tensor.Int64, 3, 7)
			return func() error {
				tape.Backward(loss.Loss(m.Forward(tape.Input(ids)), ids))
				for _, p := range params {
					p.Consume()
				}
				tape.Reset()
				return nil
			}, nil
		})
	}
}
