package ddp_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// warnedOfGrads returns what three steps log, after whose Backward edit changes the gradients. Negative ranks are those of fsdp.
func warnedOfGrads(t *testing.T, ranks int, loss step, edit func(r *rows, params nn.Params)) string {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	cfg := dist.Config{Ranks: max(ranks, -ranks), Threads: 1, Log: io.Discard}
	require.NoError(t, dist.Run(t.Context(), cfg, func(_ context.Context, r *dist.Rank) error {
		model := newParts()
		params := disttest.Must(attachParts(r, model, ranks < 0))
		tape := tensor.NewTape(r.Device)
		opt := optim.NewSGD(params, optim.SGDConfig{LR: 0.01, Momentum: 0.9})
		for i := range 3 {
			b := model.split(tape, r.World, 11, i)
			disttest.OK(tensor.Try(func() { loss(b); edit(b, params) }))
			disttest.OK(opt.Step())
			tape.Reset()
		}
		return nil
	}))
	return log.String()
}

// times multiplies gradients by a number.
func times(by func(r *rows) float64) func(r *rows, params nn.Params) {
	return func(r *rows, params nn.Params) {
		for _, p := range params {
			if p.HasGrad() {
				g := tensor.Data[float64](p.Grad.ToLocal())
				for i := range g {
					g[i] *= by(r)
				}
			}
		}
	}
}

// Gradients that the program divides by the number of ranks, or adds up again, are a warning: they are those of one rank already.
func TestGradientsMultipliedByRanks(t *testing.T) {
	mean := func(r *rows) { r.backward(nn.GlobalMean(r.losses())) }
	over := times(func(r *rows) float64 { return 1 / float64(r.group.Size()) })
	again := func(r *rows, params nn.Params) {
		for _, p := range params {
			if p.HasGrad() {
				disttest.OK(r.group.AllReduce(p.Grad, dist.Sum).Wait())
			}
		}
	}
	const divided, summed = "which is 1 / the number of ranks", "which is the number of ranks"
	for name, c := range map[string]struct {
		ranks   int
		edit    func(r *rows, params nn.Params)
		warning string
	}{
		"divided":            {3, over, divided},
		"divided by two":     {2, over, divided},
		"divided, with fsdp": {-3, over, divided},
		"added up again":     {2, again, summed},
		"times 3":            {3, times(func(*rows) float64 { return 3 }), summed},
		"by Range": {3, func(r *rows, params nn.Params) {
			for _, p := range params {
				for i := range p.Grad.Len() {
					tensor.Data[float64](p.Grad.Range(i, i+1))[0] /= 3
				}
			}
		}, divided},
	} {
		assert.Contains(t, warnedOfGrads(t, c.ranks, mean, c.edit), c.warning, name)
	}
	micro := func(r *rows) {
		for i := range 3 {
			o := []tensor.BackwardOption{tensor.More()}
			r.backward(nn.GlobalMean(r.losses().Scale(float64(1+i))), o[:1-i/2]...)
		}
	}
	for name, c := range map[string]struct {
		ranks int
		loss  step
		edit  func(r *rows, params nn.Params)
	}{
		"nothing":        {3, mean, func(*rows, nn.Params) {}},
		"the average":    {3, mean, func(r *rows, p nn.Params) { over(r, p); again(r, p) }},
		"another number": {3, mean, times(func(*rows) float64 { return 0.3 })},
		"in one step": {3, mean, func(r *rows, p nn.Params) {
			if r.step == 1 {
				over(r, p)
			}
		}},
		"one of them":            {3, mean, func(r *rows, p nn.Params) { over(r, p[:1]) }},
		"all but one":            {3, mean, func(r *rows, p nn.Params) { over(r, p[1:]) }},
		"a mean of microbatches": {3, micro, over},
		"a loss that is scaled": {3, func(r *rows) {
			r.backward(nn.GlobalMean(r.losses()), tensor.Scale(3))
		}, over},
		"the number of rows": {3, func(r *rows) { r.backward(r.losses().Sum()) }, times(func(r *rows) float64 { return 1 / float64(r.total) })},
		"one rank":           {1, mean, over},
		"zeros":              {2, mean, times(func(*rows) float64 { return 0 })},
	} {
		assert.Empty(t, warnedOfGrads(t, c.ranks, c.loss, c.edit), name)
	}
}
