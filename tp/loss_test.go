package tp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
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
			p.Make(tensor.NewCPU(1), d, 1)
			one := tensor.NewTape(p.Value.Device())
			o := tensor.CrossEntropyOptions{Ignore: &ignore, Count: 5}
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
					loss.Ignore, loss.Count = &ignore, 5
					tape := tensor.NewTape(r.Device)
					y := tensor.FromSlice(labels, rows)
					if ranks == 2 {
						y = tape.Input(y).Cast(tensor.Int32)
					}
					x := tape.Use(q)
					got := loss.Loss(x, y).Scale(0.25).Add(loss.Loss(x.Slice(0, 0, 2), y.Slice(0, 0, 2)).Scale(-2))
					tol := map[tensor.DType]float64{tensor.Float64: 1e-13, tensor.Float32: 1e-6, tensor.BFloat16: 1e-2}[d]
					require.InEpsilon(t, want.Item(), got.Item(), tol)
					tape.Backward(got)
					whole := tensor.Floats(p.Grad)
					for i := range rows {
						require.InDeltaSlice(t, whole[i*words+lo:i*words+hi], tensor.Floats(q.Grad)[i*(hi-lo):(i+1)*(hi-lo)], tol)
					}
					return nil
				}))
			}
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
				loss := lossOn(r.World, 5)
				loss.Ignore = new(int64)
				loss.Loss(logits, tensor.FromSlice([]int64{4, 4}, 2))
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
