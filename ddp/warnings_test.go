package ddp_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// warned returns what two steps of 8 rows on two ranks log.
func warned(t *testing.T, ranks int, do step) string { return warnedOn(t, dist.Run, ranks, do) }

func warnedOn(t *testing.T, launch disttest.Launcher, ranks int, do step) string {
	return warnedIn(t, launch, ranks, 2, do)
}

func warnedIn(t *testing.T, launch disttest.Launcher, ranks, steps int, do step) string {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	cfg := dist.Config{Ranks: ranks, Threads: 1, Log: io.Discard}
	require.NoError(t, launch(t.Context(), cfg, func(_ context.Context, r *dist.Rank) error {
		model := newParts()
		params := disttest.Must(attachParts(r, model, false))
		tape := tensor.NewTape(r.Device)
		for i := range steps {
			disttest.OK(tensor.Try(func() { do(model.split(tape, r.World, 8, i)) }))
			for _, p := range params {
				p.Consume()
			}
			tape.Reset()
		}
		return nil
	}))
	return log.String()
}

// With equally many rows on all ranks, the factors of all are the same. A mean over a rank's rows is a warning: it may be another number.
func TestFactorsOfEqualRows(t *testing.T) {
	wrong := []string{"mean of own rows", "mean by Affine", "mean by Backward", "of each column", "one of two losses", "twice, by halves",
		"in a Checkpoint", "around a Checkpoint"}
	for _, name := range wrong {
		assert.Contains(t, warned(t, 2, ownFactors[name]), "which is 1 / the number of a rank's own rows", name)
	}
	for name, do := range wholeFactors {
		assert.Empty(t, warned(t, 2, do), name)
	}
	for name, do := range map[string]step{
		"a weight as large as the ranks": func(r *rows) { r.backward(nn.GlobalMean(r.losses()).Scale(2)) },
		"the count of the batch": func(r *rows) {
			l := r.losses()
			r.backward(l.Sum().Scale(2 / float64(tensor.GlobalCount(l))))
		},
		"a count that all ranks have": func(r *rows) {
			r.tape.Agree(4)
			r.backward(r.losses().Sum().Scale(1. / 4))
		},
		"another number in the second step": func(r *rows) { r.backward(r.losses().Sum().Scale(1 / float64(4+r.step))) },
	} {
		assert.Empty(t, warned(t, 2, do), name)
	}
	assert.Empty(t, warned(t, 1, ownFactors["mean of own rows"]), "one rank has all")
	require.NoError(t, tryFactors(false, 2, wholeFactors["a sum"]), "of one row on each rank")
}

// ownPart adds a term of this rank's own to the loss.
func ownPart(f func(r *rows) nn.T) step {
	return func(r *rows) {
		share := float64(r.n) / float64(r.total)
		r.backward(nn.GlobalMean(r.losses()).Add(tensor.AsPart(f(r).Scale(share), r.group.Axes())))
	}
}

func hardest(r *rows) nn.T { v, _ := ops.TopK(r.losses(), 2); return v.Mean() }

// batchOf is a step whose input has these values.
func batchOf(value func(r *rows, i, j int) float64) step {
	return func(r *rows) { batchWith(r, r.group.Rows(r.lo, r.total), value) }
}

func batchWith(r *rows, of tensor.Rows, value func(r *rows, i, j int) float64) {
	x := r.filled(0, 12)
	for i := range x.Len() {
		tensor.Data[float64](x)[i] = value(r, i/12, i%12)
	}
	r.backward(nn.GlobalMean(r.D.Forward(r.A.Forward(r.tape.Input(x.WithRows(of))))))
}

func oneFile(_ *rows, i, j int) float64 { return float64(1 + 12*i + j) }

// Behind AsPart, what is made of several rows of a rank together is a warning: it is right where a rank has all that belongs together.
func TestOwnRowsBehindAsPart(t *testing.T) {
	const warning = "tensor.AsPart has what is made of several of a rank's rows together"
	for name, f := range map[string]func(r *rows) nn.T{
		"the largest losses": hardest,
		"the largest one":    func(r *rows) nn.T { v, _ := ops.Max(r.losses(), 0); return v },
		"the worst quarter":  func(r *rows) nn.T { v, _ := ops.Sort(r.losses(), 0, true); return v.Slice(0, 0, 1).Sum() },
		"weights by their order": func(r *rows) nn.T {
			v, _ := ops.Sort(r.losses(), 0, true)
			return v.Mul(ops.Arange(r.tape, tensor.Float64, 1, float64(1+r.n), 1)).Mean()
		},
		"a soft maximum":      func(r *rows) nn.T { return ops.LogSumExp(r.losses()) },
		"a deviation":         func(r *rows) nn.T { h := r.hidden(); return h.Sub(h.Mean(0)).Square().Mean(0).Sqrt().Mean() },
		"of the mean":         func(r *rows) nn.T { p := ops.Softmax(r.hidden()).Mean(0); return p.Mul(p.Log()).Sum() },
		"products of rows":    func(r *rows) nn.T { h := r.hidden(); return ops.LogSoftmax(tensor.MatMul(h, h, false, true)).Mean() },
		"pairs":               func(r *rows) nn.T { l := r.losses(); return l.Slice(0, 0, 2).Sub(l.Slice(0, 2, 4)).ReLU().Mean() },
		"chosen, against all": func(r *rows) nn.T { return r.losses().Sub(r.losses().Mean()).ReLU().Sum() },
	} {
		log := warned(t, 2, ownPart(f))
		assert.Contains(t, log, warning, name)
		assert.Regexp(t, `; it is the AsPart of \S*warnings_test\.go:\d`, log, name)
	}
	pick := func(r *rows, x nn.T) nn.T {
		return ops.Gather(x, 0, r.tape.Input(tensor.FromSlice(slices.Repeat([]int64{1, 3}, 8), 8, 2)).Transpose(0, 1))
	}
	for name, f := range map[string]func(r *rows) nn.T{
		"chosen rows":              func(r *rows) nn.T { return r.row(r.losses(), 1).Sum() },
		"chosen rows, then layers": func(r *rows) nn.T { return r.D.Forward(pick(r, r.hidden()).Tanh()).Square().Sum() },
		"chosen, and their mean":   func(r *rows) nn.T { return pick(r, r.hidden()).Square().Sum(1).Mean() },
		"sorted, and all":          func(r *rows) nn.T { v, _ := ops.Sort(r.losses(), 0, true); return v.Neg().Mean() },
		"a weighted mean of columns": func(r *rows) nn.T {
			return r.hidden().Mean(0).Mul(ops.Arange(r.tape, tensor.Float64, 0, 8, 1)).Slice(0, 2, 6).Sum()
		},
		"a Function": func(r *rows) nn.T { return r.tape.Apply(&scaled{by: 1}, r.losses()).Mean() },
	} {
		assert.Empty(t, warned(t, 2, ownPart(f)), name)
	}
}

// chosen returns the k rows with the largest losses, by their indices.
func chosen(r *rows, k int) nn.T {
	_, at := ops.TopK(r.losses().Detach(), k)
	return at
}

// Rows that a rank chose by values of its own rows are others on another number of ranks. It is a warning: a rank may have all that belongs
// together.
func TestRowsChosenByOwnValues(t *testing.T) {
	run := func(f func(r *rows) nn.T) string {
		return warnedIn(t, dist.Run, 2, 5, func(r *rows) { r.backward(f(r)) })
	}
	for name, f := range map[string]func(r *rows) nn.T{
		"the largest losses": func(r *rows) nn.T { return ops.Gather(r.losses(), 0, chosen(r, 2)).Sum().Scale(1. / 7) },
		"the smaller half, besides all": func(r *rows) nn.T {
			l := r.losses()
			_, at := ops.Sort(l.Detach(), 0, false)
			return nn.GlobalMean(l).Add(ops.Gather(l, 0, at.Slice(0, 0, r.n/2)).Sum().Scale(1. / 7))
		},
		"the largest of each column": func(r *rows) nn.T {
			h := r.hidden()
			return r.D.Forward(ops.Gather(h, 0, ops.ArgMax(h.Detach(), 0).Reshape(1, 8))).Sum()
		},
		"of features": func(r *rows) nn.T {
			return r.D.Forward(ops.Embedding(r.hidden(), chosen(r, 3)).Tanh()).Sum().Scale(1. / 7)
		},
		"of inputs": func(r *rows) nn.T {
			x := r.in()
			h := ops.Embedding(x, r.tape.Input(r.frozen(func(x, _ nn.T) nn.T {
				_, at := ops.TopK(r.B.Forward(r.A.Forward(x)).Square().Sum(1), 2)
				return at
			})))
			return r.A.Forward(h).Square().Sum().Scale(1. / 7)
		},
		"twice as much of some": func(r *rows) nn.T {
			l := r.losses()
			_, at := ops.Sort(l.Detach(), 0, false)
			return ops.Gather(l, 0, at.Slice(0, 0, 2)).Sum().Scale(2. / 7).Add(ops.Gather(l, 0, at.Slice(0, 2, r.n)).Sum().Scale(1. / 7))
		},
		"and AsPart": func(r *rows) nn.T {
			return tensor.AsPart(ops.Gather(r.losses(), 0, chosen(r, 2)).Sum().Scale(1./7), r.group.Axes())
		},
	} {
		assert.Regexp(t, `rows that a rank chose by values of its own rows.*; they are chosen in \S*warnings_test\.go:\d`, run(f), name)
	}
	for name, f := range map[string]func(r *rows) nn.T{
		"sorted, and all": func(r *rows) nn.T {
			l := r.losses()
			_, at := ops.Sort(l.Detach(), 0, false)
			return ops.Gather(l, 0, at).Sum().Scale(1. / 7)
		},
		"sorted, in two parts": func(r *rows) nn.T {
			x := r.in()
			_, at := ops.Sort(x.Sum(1), 0, false)
			short, long := ops.Embedding(x, at.Slice(0, 0, 1)), ops.Embedding(x, at.Slice(0, 1, r.n))
			return r.A.Forward(short).Square().Sum().Scale(1. / 7).Add(r.A.Forward(long).Square().Sum().Scale(1. / 7))
		},
		"for a metric": func(r *rows) nn.T {
			l := r.losses()
			ops.Gather(l, 0, chosen(r, 2)).Sum()
			return nn.GlobalMean(l)
		},
		"of all ranks": func(r *rows) nn.T {
			top, _ := ops.TopK(r.tape.Apply(&autograd.Gather{Group: r.group}, ops.Gather(r.losses(), 0, chosen(r, 2))), 2)
			return top.Mean()
		},
		"a class of each row": func(r *rows) nn.T {
			h := r.C.Forward(r.hidden())
			return nn.GlobalMean(ops.Gather(h, 1, ops.ArgMax(h.Detach(), 1).Reshape(-1, 1)))
		},
	} {
		assert.Empty(t, run(f), name)
	}
	one := func(r *rows) { r.backward(ops.Gather(r.losses(), 0, chosen(r, 2)).Sum()) }
	assert.Empty(t, warnedIn(t, dist.Run, 1, 5, one), "one rank has all")
}

// Ranks with other rows of the batch and the same values in them read the same data: a warning, as data may repeat itself.
func TestSameDataOfOtherRows(t *testing.T) {
	for name, c := range map[string]struct {
		same  bool
		value func(r *rows, i, j int) float64
	}{
		"one file":            {true, oneFile},
		"one seed":            {true, func(r *rows, i, j int) float64 { return float64((7*i + j + 3*r.step) % 5) }},
		"own rows":            {false, func(r *rows, i, j int) float64 { return float64(12*(r.lo+i) + j) }},
		"one sample":          {false, func(_ *rows, _, j int) float64 { return float64(j) }},
		"zeros":               {false, func(*rows, int, int) float64 { return 0 }},
		"only in the first":   {false, func(r *rows, i, j int) float64 { return float64(12*(r.step*r.lo+i) + j) }},
		"others in one place": {false, func(r *rows, i, j int) float64 { return float64(i + j + r.lo*(i/3)*(j/11)) }},
	} {
		log := warned(t, 2, batchOf(c.value))
		if c.same {
			assert.Contains(t, log, "rank 0 has rows of the batch from 0 on, and rank 1 from 4 on, with the same values", name)
		} else {
			assert.Empty(t, log, name)
		}
	}
}

// raw is data of which no part adds up to a round number.
func raw(r *rows, row, j int) float64 { return math.Sin(float64(12*row + j + r.step)) }

// less returns raw without the mean of n rows from first on, of features from j on.
func less(r *rows, first, n, row, j, features int) float64 {
	sum := 0.0
	for i := range n * features {
		sum += raw(r, first+i/features, j+i%features)
	}
	return raw(r, row, j) - sum/float64(n*features)
}

// weighted is a step whose rows have weights: raw² + 1, times what scale makes of their sum.
func weighted(scale func(r *rows, sum float64) float64) step {
	return func(r *rows) {
		w, sum := r.filled(0, 1).Reshape(-1).WithRows(r.group.Rows(r.lo, r.total)), 0.0
		for i := range r.n {
			tensor.Data[float64](w)[i] = 1 + math.Pow(raw(r, r.lo+i, 0), 2)
			sum += tensor.Data[float64](w)[i]
		}
		for i := range r.n {
			tensor.Data[float64](w)[i] *= scale(r, sum)
		}
		r.backward(nn.GlobalMean(r.losses().Mul(r.tape.Input(w))))
	}
}

// onOtherTape is weighted by what a tape without gradients has computed of a batch, as of a teacher's.
func onOtherTape(scale func(r *rows, sum float64) float64) step {
	return func(r *rows) {
		x := r.filled(0, 1)
		for i := range r.n {
			tensor.Data[float64](x)[i] = raw(r, r.lo+i, 0)
		}
		teacher := tensor.NewTape(x.Device(), tensor.NoGrad())
		defer teacher.Close()
		w := teacher.Input(x.WithRows(r.group.Rows(r.lo, r.total))).Square().Affine(1, 1).Reshape(-1)
		by := teacher.Input(tensor.FromSlice([]float64{scale(r, w.Sum().Item())}, 1)) // a number of Scale is an error
		r.backward(nn.GlobalMean(r.losses().Mul(r.tape.Input(w.Mul(by)))))
	}
}

// What the host normalized by a rank's own rows is a warning: the sum over them shows it.
func TestInputsNormalizedByOwnRows(t *testing.T) {
	own := func(r *rows, i, j int) float64 { return less(r, r.lo, r.n, r.lo+i, j, 1) }
	for name, c := range map[string]struct {
		warning string
		do      step
	}{
		"each feature":            {"adds up to 0", batchOf(own)},
		"all together":            {"adds up to 0", batchOf(func(r *rows, i, j int) float64 { return own(r, i, 0) + own(r, i, 1)*float64(j) })},
		"weights":                 {"adds up to 1", weighted(func(_ *rows, sum float64) float64 { return 1 / sum })},
		"weights of mean 1":       {"has the mean 1", weighted(func(r *rows, sum float64) float64 { return float64(r.n) / sum })},
		"weights on another tape": {"has the mean 1", onOtherTape(func(r *rows, sum float64) float64 { return float64(r.n) / sum })},
		"behind labels of zeros": {"adds up to 0", func(r *rows) { // on the first rank
			y := r.filled(0, 1).WithRows(r.group.Rows(r.lo, r.total))
			for i := range r.n {
				tensor.Data[float64](y)[i] = float64(r.group.Rank() * i)
			}
			r.tape.Input(y)
			batchOf(own)(r)
		}},
		"by all rows":            {"", batchOf(func(r *rows, i, j int) float64 { return less(r, 0, r.total, r.lo+i, j, 1) })},
		"each row by itself":     {"", batchOf(func(r *rows, i, j int) float64 { return raw(r, r.lo+i, j/2) * float64(1-2*(j%2)) })},
		"whole numbers":          {"", batchOf(func(r *rows, i, j int) float64 { return float64((1 - 2*(i%2)) * (1 + j + r.lo)) })},
		"nothing":                {"", batchOf(func(r *rows, i, j int) float64 { return raw(r, r.lo+i, j) })},
		"the first rank":         {"", batchOf(func(r *rows, i, j int) float64 { return own(r, i, j) + float64(r.group.Rank())/8 })},
		"the last rank":          {"", batchOf(func(r *rows, i, j int) float64 { return own(r, i, j) + float64(1-r.group.Rank())/8 })},
		"the first step":         {"", batchOf(func(r *rows, i, j int) float64 { return own(r, i, j) + float64(r.step)/8 })},
		"others on that tape":    {"", onOtherTape(func(*rows, float64) float64 { return 1. / 8 })},
		"weights by all rows":    {"", weighted(func(*rows, float64) float64 { return 1. / 8 })},
		"weights of either kind": {"", weighted(func(r *rows, sum float64) float64 { return math.Pow(float64(r.n), float64(r.step)) / sum })},
		"a group that is together": {"", func(r *rows) {
			of := r.group.Rows(r.lo, r.total)
			of.Group = 4
			batchWith(r, of, own)
		}},
	} {
		if log := warned(t, 2, c.do); c.warning == "" {
			assert.Empty(t, log, name)
		} else {
			assert.Contains(t, log, "with rows, in the order of their use, "+c.warning+" on each rank", name)
		}
	}
	assert.Empty(t, warned(t, 1, batchOf(own)), "one rank has all")
}

// So is a mean in every second or third step; but not a number that is now 1 / the number of rows and now another one.
func TestOwnMeansByTurns(t *testing.T) {
	for period := 2; period <= 3; period++ {
		for phase := range period {
			by := func(n func(r *rows) int) step {
				return func(r *rows) {
					if l := r.losses(); r.step%period == phase {
						r.backward(l.Sum().Scale(1 / float64(n(r))))
					} else {
						r.backward(nn.GlobalMean(l))
					}
				}
			}
			log := warnedIn(t, dist.Run, 2, 2*period, by(func(r *rows) int { return r.n }))
			assert.Contains(t, log, "which is 1 / the number of a rank's own rows", phase)
			assert.Empty(t, warnedIn(t, dist.Run, 2, 10, by(func(r *rows) int { return r.n + r.step/period%2 })), phase)
		}
	}
}

// A number that is 1 / the number of ranks is a warning, but for accumulation, and for a half, which many losses have.
func TestFactorsOfRanks(t *testing.T) {
	const third = 1. / 3
	warning := "which is 1 / the number of ranks"
	for name, do := range map[string]step{
		"GlobalMean":   func(r *rows) { r.backward(nn.GlobalMean(r.losses()).Scale(third)) },
		"CrossEntropy": func(r *rows) { r.backward(ce(r.C.Forward(r.hidden()), r.y).Scale(third)) },
		"by Backward":  func(r *rows) { r.backward(nn.GlobalMean(r.losses()), tensor.Scale(third)) },
		"one of losses": func(r *rows) {
			r.backward(nn.MSE(r.D.Forward(r.hidden()), r.w).Scale(third).Add(nn.GlobalMean(r.losses())))
		},
		"a penalty": func(r *rows) {
			r.backward(nn.GlobalMean(r.losses()).Add(r.tape.Use(r.B.W).Square().Sum().Scale(0.1).Scale(third)))
		},
	} {
		assert.Contains(t, warned(t, 3, do), warning, name)
	}
	for name, do := range map[string]step{
		"accumulation": func(r *rows) {
			for i := range 3 {
				o := []tensor.BackwardOption{tensor.Scale(third), tensor.More()}
				r.backward(nn.GlobalMean(r.losses().Scale(float64(1+i))), o[:2-i/2]...)
			}
		},
		"a weight":         func(r *rows) { r.backward(nn.GlobalMean(r.losses()).Scale(0.3)) },
		"a count of three": func(r *rows) { r.backward(r.losses().Sum().Scale(third)) },
	} {
		assert.NotContains(t, warned(t, 3, do), warning, name)
	}
	assert.Empty(t, warned(t, 2, func(r *rows) { r.backward(nn.GlobalMean(r.losses()).Scale(0.5)) }))
}

// A DType that is the type of nothing, because all parameters have values, is a warning. A part of them may have another type.
func TestTypeOfNothing(t *testing.T) {
	const want = "ddp: Config.DType is bfloat16, and all parameters have values already, such as weight, float32: they keep their types"
	for _, c := range []struct {
		have, dtype tensor.DType
		made        []int // which parameters have values
		want        string
	}{
		{tensor.Float32, tensor.BFloat16, []int{0, 1}, want}, {tensor.Float32, tensor.BFloat16, []int{1}, ""},
		{tensor.BFloat16, tensor.BFloat16, []int{0, 1}, ""}, {tensor.Float64, tensor.Float32, []int{0, 1}, ""},
		{tensor.Float32, tensor.BFloat16, nil, ""},
	} {
		var log bytes.Buffer
		before := slog.Default()
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
		defer slog.SetDefault(before)
		require.NoError(t, disttest.OnRanks(2, func(r *dist.Rank) error {
			model := nn.NewLinear(2, 3)
			params := nn.ParamsOf(model)
			for _, i := range c.made {
				params[i].Make(r.Device, c.have, 1)
			}
			_, err := ddp.Attach(r.World, model, ddp.Config{DType: c.dtype})
			return err
		}))
		require.Equal(t, c.want != "", log.Len() > 0, log.String())
		require.Contains(t, log.String(), c.want)
		require.LessOrEqual(t, bytes.Count(log.Bytes(), []byte("\n")), 1)
	}
}
