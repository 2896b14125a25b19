package ddp_test

import (
	"context"
	"io"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/ops"
)

func tryFactors(sharded bool, total int, do step) error {
	return disttest.OnRanks(2, stepOf(sharded, total, do))
}

// tryOn runs a step on an engine.
func tryOn(t *testing.T, launch disttest.Launcher, do step) error {
	f := stepOf(false, 7, do)
	return launch(t.Context(), dist.Config{Ranks: 2, Threads: 1, Log: io.Discard}, func(_ context.Context, r *dist.Rank) error { return f(r) })
}

func stepOf(sharded bool, total int, do step) func(r *dist.Rank) error {
	return func(r *dist.Rank) error {
		model := newParts()
		disttest.Must(attachParts(r, model, sharded))
		tape := tensor.NewTape(r.Device)
		return tensor.Try(func() { do(model.split(tape, r.World, total, 1)) })
	}
}

// A sum over rows has the same factor on all ranks. Ranks with other numbers of rows show it. The short form has some
// with fsdp, and the long one the others.
func TestFactorsOfSums(t *testing.T) {
	for _, sharded := range []bool{false, true} {
		for name, do := range ownFactors {
			if short := !sharded || slices.Contains(laterFactors, name); short == reliability.Long(t) {
				continue
			}
			err := tryFactors(sharded, 7, do)
			assert.ErrorContains(t, err, " in the same line", name)
			assert.ErrorContains(t, err, "the number is that of ", name)
		}
		if sharded != reliability.Long(t) {
			continue
		}
		for name, do := range wholeFactors {
			if !sharded || !otherGathers[name] {
				assert.NoError(t, tryFactors(sharded, 7, do), name)
			}
		}
	}
}

func TestLongFactorsOfSums(t *testing.T) { reliability.AsLong(t, TestFactorsOfSums) }

// laterFactors are some of ownFactors.
var laterFactors = []string{"mean of own rows", "of rows, before the Sum", "a penalty of the share", "a bound of Clamp"}

// A factor that is wrong from a later step on is found in the next one that is compared: at once in the first six. The long form has fsdp.
func TestFactorsOfLaterSteps(t *testing.T) {
	for _, sharded := range []bool{false, true} {
		if sharded != reliability.Long(t) {
			continue
		}
		for first, found := range map[int]int{2: 2, 5: 5, 6: 16} {
			for _, name := range laterFactors {
				done := 0
				err := disttest.OnRanks(2, func(r *dist.Rank) error {
					model := newParts()
					params := disttest.Must(attachParts(r, model, sharded))
					tape := tensor.NewTape(r.Device)
					for step := range 20 {
						do := ownFactors[name]
						if step < first {
							do = wholeFactors["a penalty"] // of the same layers
						}
						if err := tensor.Try(func() { do(model.split(tape, r.World, 7, 1)) }); err != nil {
							return err
						}
						for _, p := range params {
							p.Consume()
						}
						tape.Reset()
						if r.World.Rank() == 0 {
							done++
						}
					}
					return nil
				})
				assert.ErrorContains(t, err, " in the same line", name)
				assert.Equal(t, found, done, name)
			}
		}
	}
}

func TestLongFactorsOfLaterSteps(t *testing.T) { reliability.AsLong(t, TestFactorsOfLaterSteps) }

// Losses that take turns are compared, also those of every third step: 4, 16 and 64 are all the second one of three.
func TestFactorsOfTurns(t *testing.T) {
	for period := 2; period <= 6; period++ {
		for phase := range period {
			var found int
			err := disttest.OnRanks(2, func(r *dist.Rank) error {
				model := newParts()
				params := disttest.Must(attachParts(r, model, false))
				tape := tensor.NewTape(r.Device)
				for i := range 2 * period {
					if r.World.Rank() == 0 {
						found = i
					}
					b := model.split(tape, r.World, 7, 1)
					l := nn.GlobalMean(b.losses())
					if i%period == phase {
						l = l.Scale(1 / (1 + l.Item()))
					}
					if err := tensor.Try(func() { b.backward(l) }); err != nil {
						return err
					}
					for _, p := range params {
						p.Consume()
					}
					tape.Reset()
				}
				return nil
			})
			require.ErrorContains(t, err, " in the same line")
			require.Equal(t, phase, found)
		}
	}
}

// The first batch of a Loader is divided unevenly, though the others are not: it shows them.
func TestFactorsOfLoaders(t *testing.T) {
	set, err := data.NewTensors(tensor.New(cpu.New(1), tensor.Float64, 64, 12), tensor.New(cpu.New(1), tensor.Float64, 64, 1))
	require.NoError(t, err)
	for _, sharded := range []bool{false, true} {
		for name, do := range ownFactors {
			if short := !sharded && slices.Contains(laterFactors, name); short == reliability.Long(t) {
				continue
			}
			steps := 0
			err := dist.Run(t.Context(), dist.Config{Ranks: 2, Threads: 1, Log: io.Discard}, func(ctx context.Context, r *dist.Rank) error {
				model := newParts()
				if _, err := attachParts(r, model, sharded); err != nil {
					return err
				}
				tape, l := tensor.NewTape(r.Device), data.NewLoader(set, data.Config{Batch: 16, Sharder: r.World})
				for _, b := range l.Epoch(ctx, 0) {
					err := tensor.Try(func() { do(model.part(tape, r.World, b.Global, 1, b.First, b.Rows)) })
					if err != nil {
						return err
					}
					if r.World.Rank() == 0 {
						steps++
					}
				}
				return l.Err()
			})
			assert.ErrorContains(t, err, " in the same line", name)
			assert.Zero(t, steps, name)
		}
	}
}

func TestLongFactorsOfLoaders(t *testing.T) { reliability.AsLong(t, TestFactorsOfLoaders) }

// A step may have several batches of a Loader, also the first one.
func TestStepsOfTwoLoaderBatches(t *testing.T) {
	set, err := data.NewTensors(tensor.New(cpu.New(1), tensor.Float64, 128, 12), tensor.New(cpu.New(1), tensor.Float64, 128, 1))
	require.NoError(t, err)
	for _, sharded := range []bool{false, true} {
		require.NoError(t, disttest.OnRanks(3, func(r *dist.Rank) error {
			model := newParts()
			params := disttest.Must(attachParts(r, model, sharded))
			tape, l := tensor.NewTape(r.Device), data.NewLoader(set, data.Config{Batch: 32, Sharder: r.World})
			for i, b := range l.Epoch(t.Context(), 0) {
				loss := nn.GlobalMean(model.D.Forward(model.A.Forward(tape.Input(b.X))))
				if i%2 == 0 {
					tape.Backward(loss, tensor.More())
					continue
				}
				tape.Backward(loss)
				for _, p := range params {
					p.Consume()
				}
				tape.Reset()
			}
			return l.Err()
		}))
	}
}

// What ranks compare in the first steps travels over every engine: in the short form over tcp.
func TestFactorsOnEngines(t *testing.T) {
	for _, engine := range []string{"shm", "tcp"} {
		if (engine == "tcp") == reliability.Long(t) {
			continue
		}
		launch := disttest.LauncherFor(t, engine, 2)
		for _, name := range []string{"chosen rows, AsPart", "a threshold for each row", "Arange", "TopK"} {
			assert.ErrorContains(t, tryOn(t, launch, ownFactors[name]), " in the same line", engine+" "+name)
		}
		assert.ErrorContains(t, tryOn(t, launch, termOn(1)), "rank 1 adds a term of ", engine)
		assert.Contains(t, warnedOn(t, launch, 2, ownPart(hardest)), "several of a rank's rows together", engine)
		assert.Contains(t, warnedOn(t, launch, 2, batchOf(oneFile)), "with the same values", engine)
		ownMean := batchOf(func(r *rows, i, j int) float64 { return less(r, r.lo, r.n, r.lo+i, j, 1) })
		assert.Contains(t, warnedOn(t, launch, 2, ownMean), "input 1 with rows, in the order of their use, adds up to 0", engine)
	}
}

func TestLongFactorsOnEngines(t *testing.T) { reliability.AsLong(t, TestFactorsOnEngines) }

// termOn adds a penalty on one rank alone.
func termOn(rank int) step {
	return func(r *rows) {
		l := nn.GlobalMean(r.losses())
		if r.group.Rank() == rank {
			l = l.Add(r.tape.Use(r.A.W).Square().Sum().Scale(0.1))
		}
		r.backward(l)
	}
}

// A term of what all ranks have counts on the first rank, and is lost if that one does not add it.
func TestTermsOfOneRank(t *testing.T) {
	penalty := func(r *rows, l *nn.Linear) nn.T { return r.tape.Use(l.W).Square().Sum().Scale(0.1) }
	on := func(rank int, add func(r *rows, l nn.T) nn.T) step {
		return func(r *rows) {
			l := nn.GlobalMean(r.losses())
			if r.group.Rank() == rank {
				l = add(r, l)
			}
			r.backward(l)
		}
	}
	for name, do := range map[string]step{
		"on another rank": termOn(1),
		"subtracted":      on(1, func(r *rows, l nn.T) nn.T { return l.Sub(penalty(r, r.A)) }),
		"before the loss": on(1, func(r *rows, l nn.T) nn.T { return penalty(r, r.B).Add(l) }),
		"each rank a layer": func(r *rows) {
			r.backward(nn.GlobalMean(r.losses()).Add(penalty(r, []*nn.Linear{r.A, r.B}[r.group.Rank()])))
		},
		"a loss of the whole batch": func(r *rows) {
			l, whole := nn.GlobalMean(r.losses()), r.summed(nn.GlobalMean(r.hidden().Square())).Sqrt()
			if r.group.Rank() == 1 {
				l = l.Add(whole)
			}
			r.backward(l)
		},
	} {
		assert.ErrorContains(t, tryFactors(false, 7, do), "rank 1 adds a term of ", name)
	}
	for name, do := range map[string]step{
		"on the first": termOn(0),
		"in another order": func(r *rows) {
			l, a, b := nn.GlobalMean(r.losses()), penalty(r, r.A), penalty(r, r.B)
			if r.group.Rank() == 0 {
				r.backward(l.Add(a.Add(b)))
			} else {
				r.backward(l.Add(a).Add(b))
			}
		},
		"in another line": func(r *rows) {
			l := nn.GlobalMean(r.losses())
			if r.group.Rank() == 0 {
				r.backward(l.Add(penalty(r, r.A)))
			} else {
				r.backward(penalty(r, r.A).Add(l))
			}
		},
		"many in another order": func(r *rows) {
			l := nn.GlobalMean(r.losses())
			for i := range 20 {
				l = l.Add(penalty(r, r.A).Scale(float64(1 + (i+10*r.group.Rank())%20)))
			}
			r.backward(l)
		},
		"to look at it": on(1, func(r *rows, l nn.T) nn.T { l.Add(penalty(r, r.A)).Item(); return l }),
		"scaled by 0":   on(1, func(r *rows, l nn.T) nn.T { return l.Add(penalty(r, r.A).Scale(0)) }),
	} {
		assert.NoError(t, tryFactors(false, 7, do), name)
	}
}

// In a batch of one row, rank 0 has none.
func TestFactorsOfARankWithoutRows(t *testing.T) {
	for _, name := range []string{"mean of all rows", "own mean times share"} {
		require.NoError(t, tryFactors(false, 1, wholeFactors[name]), name)
	}
	require.NoError(t, tryFactors(false, 1, func(r *rows) { r.backward(r.losses().Sum().Scale(3 - float64(r.n))) }))
	require.NoError(t, tryFactors(false, 1, func(r *rows) {
		r.backward(nn.GlobalMean(r.losses()).Add(r.tape.Use(r.B.W).Square().Sum().Scale(3 - float64(r.n))))
	}))
}

// Agree compares the divisor of a sum of chosen rows in all steps.
func TestFactorBehindAsPart(t *testing.T) {
	chosen := func(divisor func(r *rows) int) step {
		return func(r *rows) {
			l, n := r.losses(), divisor(r)
			r.tape.Agree(float64(n))
			first := ops.Gather(l, 0, r.tape.Input(tensor.FromSlice([]int64{0}, 1))).Sum()
			r.backward(tensor.AsPart(first.Scale(1/float64(n)), r.group.Axes()))
		}
	}
	require.NoError(t, tryFactors(false, 7, chosen(func(r *rows) int { return r.total })))
	require.ErrorContains(t, tryFactors(false, 7, chosen(func(r *rows) int { return r.n })), "Count")
	without := tryFactors(false, 7, func(r *rows) { r.backward(r.row(r.losses(), 0).Sum().Scale(1 / float64(r.total))) })
	require.ErrorContains(t, without, "say tensor.AsPart(sum.Scale(1/n), group.Axes())", "the error names the line")
}
