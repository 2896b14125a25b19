package train_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/train"
)

// summary is what a program prints.
type summary struct {
	train.Summary
	Sent uint64 `json:"sent"`
}

// evaluated does five steps on two ranks, and measures the mean of the labels by this name. It returns rank 0's summary and the steps of
// the value.
func evaluated(t *testing.T, o train.Options, name string) (s summary, at []int, out string) {
	var text bytes.Buffer
	require.NoError(t, o.Run(dist.Config{Ranks: 2, Log: &text}, func(ctx context.Context, r *dist.Rank) error {
		model, g := nn.NewLinear(3, 1), r.World.With(dist.Name("measured"))
		params := disttest.Must(ddp.Attach(g, model, ddp.Config{DType: tensor.Float64, Seed: 1}))
		opt, tape := optim.NewSGD(params, optim.SGDConfig{LR: 0.01}), tensor.NewTape(r.Device)
		l := disttest.Must(train.Start(ctx, r, &o, ckpt.State{Params: params, Optimizer: opt, Tape: tape}))
		l.Measure(g)
		l.Evaluate(name, 2, data.NewLoader(points{}, data.Config{Batch: 7, Sharder: r.World}), func(b data.Batch) (sum float64, err error) {
			for _, v := range tensor.Floats(b.Y) {
				sum += v
			}
			return sum, g.SumFloats([]float64{1})
		})
		for _, b := range l.Batches(data.NewLoader(points{}, data.Config{Batch: 6, Sharder: r.World}), 5) {
			loss := nn.MSE(model.Forward(tape.Input(b.X)), b.Y)
			l.Sum("loss", loss)
			tape.Backward(loss)
			disttest.OK(opt.Step())
			tape.Reset()
		}
		mine := summary{l.Summary(train.Summary{Example: "points", Batch: 6}), l.Sent(g)}
		disttest.OK(l.Report(mine, mine.String(), "bye", ""))
		if r.World.Rank() == 0 {
			var values []float64
			s = mine
			at, values = l.Values(name)
			for _, v := range values {
				require.InDelta(t, meanLabel(), v, 1e-12)
			}
		}
		return l.Close()
	}))
	return s, at, text.String()
}

// meanLabel is the mean of the points' labels.
func meanLabel() (mean float64) {
	for k := range 20 {
		for j := range 3 {
			mean += float64(j+1) * math.Sin(float64(3*k+j)) / 20
		}
	}
	return mean
}

// A value is measured after every second step and the last one. A training that resumes behind its last step measures what it has no value
// of. What that sends is no part of the steps.
func TestEvaluate(t *testing.T) {
	o := train.Options{Threads: 1, Save: t.TempDir(), SaveEvery: 5}
	s, at, out := evaluated(t, o, "label")
	require.Equal(t, []int{2, 4, 5}, at)
	require.Equal(t, uint64(5*4*8), s.CommBytes["allreduce"])
	require.Equal(t, s.CommBytes["allreduce"]+s.CommBytes["allgather"]+s.CommBytes["allgatherv"], s.Sent) // ranks compare themselves, too
	require.Contains(t, out, "5 steps, world size 2 (local, 1 threads each) in ")
	require.Regexp(t, `step 4  loss [\d.]+  label -?[\d.]+\n`, out)
	require.Regexp(t, "memory of rank 0 .* at most: .*parameters 32 B.*\nbye\n$", out)
	o.Resume = true
	_, at, out = evaluated(t, o, "label")
	require.Equal(t, []int{2, 4, 5}, at)
	require.Contains(t, out, "0 steps (5 in all), world size 2 ")
	require.NotContains(t, out, "step 5 ", "the checkpoint has what was measured then")
	_, at, _ = evaluated(t, o, "other")
	require.Equal(t, []int{5}, at)
}

// measured trains 9 steps at most, with a value after every second step that does not become better, and one of another set after every
// third. It returns how many steps are done, and the steps of both values, which are 1.
func measured(t *testing.T, o train.Options, f func(l *train.Loop, b *data.Loader)) (done int, steps [2][]int, err error) {
	err = o.Run(dist.Config{Ranks: 2, Log: io.Discard}, func(ctx context.Context, r *dist.Rank) error {
		params := nn.Init(nn.NewLinear(2, 2), r.Device, tensor.Float32, 1)
		l := disttest.Must(train.Start(ctx, r, &o, ckpt.State{Params: params}))
		rows := func(b data.Batch) (float64, error) { return float64(b.Rows), nil }
		all := data.NewLoader(points{}, data.Config{Batch: 7, Sharder: r.World})
		l.Evaluate("a", 2, all, rows)
		l.Evaluate("b", 3, data.NewLoader(points{}, data.Config{Batch: 3, Sharder: r.World}), rows)
		f(l, all)
		for range l.Steps(9) {
			disttest.OK(l.Flush())
		}
		if r.World.Rank() == 0 {
			done, _ = l.Done()
			for i, name := range []string{"a", "b"} {
				at, values := l.Values(name)
				require.ElementsMatch(t, slices.Repeat([]float64{1}, len(at)), values)
				steps[i] = at
			}
		}
		return l.Close()
	})
	return done, steps, err
}

// Several values are measured, each at its own steps and at the last one, also where patience ends the training. A training that resumes
// there does nothing more; with more patience it goes on.
func TestEvaluateSeveral(t *testing.T) {
	o := train.Options{Threads: 1, Save: t.TempDir(), KeepBest: "a", Patience: 1}
	nothing := func(*train.Loop, *data.Loader) {}
	for range 3 {
		done, steps, err := measured(t, o, nothing)
		require.NoError(t, err)
		require.Equal(t, 4, done)
		require.Equal(t, [2][]int{{2, 4}, {3, 4}}, steps)
		o.Resume = true
	}
	o.Patience = 4
	done, steps, err := measured(t, o, nothing)
	require.NoError(t, err)
	require.Equal(t, 9, done)
	require.Equal(t, [2][]int{{2, 4, 6, 8, 9}, {3, 4, 6, 9}}, steps)
}

// A second value of a name over other data would be lost, or mixed with the first. That of the same data may be named again.
func TestEvaluateTwice(t *testing.T) {
	_, steps, err := measured(t, train.Options{Threads: 1}, func(l *train.Loop, b *data.Loader) {
		l.Evaluate("a", 4, b, func(b data.Batch) (float64, error) { return float64(b.Rows), nil })
	})
	require.NoError(t, err)
	require.Equal(t, []int{4, 8, 9}, steps[0])
	_, _, err = measured(t, train.Options{Threads: 1}, func(l *train.Loop, _ *data.Loader) {
		l.Evaluate("a", 2, data.NewLoader(points{}, data.Config{Batch: 7}), func(data.Batch) (float64, error) { return 0, nil })
	})
	require.ErrorContains(t, err, `train: Evaluate measures "a" over another Loader already: give the second value another name`)
}

// Where ranks have the same rows, and all add the same, it counts several times. Nothing is said where they add parts, or one adds it.
func TestEvaluateOnSharedRows(t *testing.T) {
	labels := func(b data.Batch) (sum float64) {
		for _, v := range tensor.Floats(b.Y) {
			sum += v
		}
		return sum
	}
	first := func(m *dist.Mesh) float64 { return float64(1 - m.Group("tp").Rank()) }
	some := func(m *dist.Mesh) float64 { return 0.25 + 0.5*float64(m.Group("tp").Rank()) }
	for name, c := range map[string]struct {
		layout string
		ranks  int
		times  func(m *dist.Mesh) float64 // what a rank adds; nil: 1
		want   string                     // of a warning
		value  float64
	}{
		"rows of their own":   {"dp=3,tp=1", 3, nil, "", 1},
		"the same":            {"dp=2,tp=2", 4, nil, "2 ranks at a time", 2},
		"one of two":          {"dp=2,tp=2", 4, first, "", 1},
		"parts":               {"dp=2,tp=2", 4, some, "", 1},
		"nothing":             {"dp=2,tp=2", 4, func(*dist.Mesh) float64 { return 0 }, "", 0},
		"without the Sharder": {"dp=1,tp=3", 3, nil, "3 ranks at a time", 3},
	} {
		t.Run(name, func(t *testing.T) {
			log, before := new(reliability.Log), slog.Default()
			slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
			defer slog.SetDefault(before)
			o := train.Options{Threads: 1, Quiet: true}
			require.NoError(t, o.Run(dist.Config{Ranks: c.ranks, Log: io.Discard}, func(ctx context.Context, r *dist.Rank) error {
				m := disttest.Must(r.Mesh(c.layout))
				l := disttest.Must(train.Start(ctx, r, &o, ckpt.State{}))
				l.Evaluate("label", 1, data.NewLoader(points{}, data.Config{Batch: 7, Sharder: m.Group("dp")}), func(b data.Batch) (float64, error) {
					if c.times != nil {
						return c.times(m) * labels(b), nil
					}
					return labels(b), nil
				})
				for range l.Steps(2) {
				}
				_, values := l.Values("label")
				require.InDeltaSlice(t, []float64{c.value * meanLabel(), c.value * meanLabel()}, values, 1e-12)
				return l.Close()
			}))
			if c.want == "" {
				require.Empty(t, log.String())
			} else {
				require.Equal(t, 1, strings.Count(log.String(), c.want), log.String())
			}
		})
	}
}

// With Quiet, the summary is one line of JSON.
func TestReport(t *testing.T) {
	want, _, out := evaluated(t, train.Options{Threads: 1, Quiet: true}, "label")
	var got summary
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	require.Equal(t, [3]any{"points", "local", 5}, [3]any{got.Example, got.Backend, got.Steps})
	require.Less(t, float64(got.FinalLoss), float64(got.FirstLoss))
	require.Equal(t, want.LossesSHA256, got.LossesSHA256)
	require.InEpsilon(t, 6*got.StepsPerS, got.SamplesPerS, 1e-9)
	require.Zero(t, got.TokensPerS, "numbers are no tokens")
	require.Positive(t, got.Memory["parameters"].Peak)
}

// labeled are integers of these dimensions, with four labels each.
type labeled []int

func (labeled) Len() int { return 6 }

func (l labeled) Shapes() (x, y tensor.Shape) {
	return tensor.Shape{DType: tensor.Uint8, Dims: l}, tensor.Shape{DType: tensor.Int64, Dims: []int{4}}
}

func (labeled) Batch(_ []int, x, y tensor.Tensor) error {
	clear(tensor.Data[uint8](x))
	clear(tensor.Data[int64](y))
	return nil
}

// Tokens have a label each: also in rows that say more of them, such as the numbers of documents. Pictures have none.
func TestWhatAreTokens(t *testing.T) {
	for want, dims := range map[int][][]int{0: {{3, 5, 5}, {5}, {}}, 6 * 4: {{4}, {2, 4}}} {
		for _, x := range dims {
			require.NoError(t, dist.Run(t.Context(), dist.Config{Ranks: 1}, func(ctx context.Context, r *dist.Rank) error {
				l := disttest.Must(train.Start(ctx, r, &train.Options{Quiet: true}, ckpt.State{}))
				for range l.Batches(data.NewLoader(labeled(x), data.Config{Batch: 6}), 1) {
				}
				s := l.Summary(train.Summary{})
				require.InDelta(t, float64(want)*s.StepsPerS, s.TokensPerS, 1e-6*s.StepsPerS, "%v", x)
				return l.Close()
			}))
		}
	}
}

// Tokens are counted over all ranks, also those of the smaller batch at the end of an epoch.
func TestTokens(t *testing.T) {
	require.NoError(t, dist.Run(t.Context(), dist.Config{Ranks: 2}, func(ctx context.Context, r *dist.Rank) error {
		l := disttest.Must(train.Start(ctx, r, &train.Options{Quiet: true}, ckpt.State{}))
		text := disttest.Must(data.NewText([]int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, 4, 1))
		require.Equal(t, 11, text.Len())
		for range l.Batches(data.NewLoader(text, data.Config{Batch: 5, Sharder: r.World}), 3) {
		}
		s := l.Summary(train.Summary{})
		require.InEpsilon(t, 11*4*s.StepsPerS/3, s.TokensPerS, 1e-9)
		require.Regexp(t, ` samples/s, \d+ tokens/s\n`, s.String())
		return l.Close()
	}))
}
