package powersgd_test

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/ddp/powersgd"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// matrix is rows of numbers.
type matrix [][]float64

func newMatrix(rows, cols int, f func(i, k int) float64) matrix {
	m := make(matrix, rows)
	for i := range m {
		m[i] = make([]float64, cols)
		for k := range m[i] {
			m[i][k] = f(i, k)
		}
	}
	return m
}

func (m matrix) t() matrix {
	return newMatrix(len(m[0]), len(m), func(i, k int) float64 { return m[k][i] })
}
func (m matrix) plus(s float64, o matrix) matrix {
	return newMatrix(len(m), len(m[0]), func(i, k int) float64 { return m[i][k] + s*o[i][k] })
}
func (m matrix) times(o matrix) matrix {
	return newMatrix(len(m), len(o[0]), func(i, k int) (s float64) {
		for l := range o {
			s += m[i][l] * o[l][k]
		}
		return s
	})
}

// span returns r orthonormal rows that span what the first rows of m do.
func (m matrix) span(r int) matrix {
	var q matrix
	for _, row := range m[:r] {
		v := matrix{row}
		for range 2 {
			for _, u := range q {
				v = v.plus(-v.times(matrix{u}.t())[0][0], matrix{u})
			}
		}
		q = append(q, v.plus(1/math.Sqrt(v.times(v.t())[0][0])-1, v)[0])
	}
	return q
}

func normal(rng *rand.Rand, rows, cols int) matrix {
	return newMatrix(rows, cols, func(int, int) float64 { return rng.NormFloat64() })
}

func (m matrix) flat() (x []float64) {
	for _, row := range m {
		x = append(x, row...)
	}
	return x
}

// fed is a training of one matrix whose gradients are given, by step and rank.
type fed struct {
	grads  [][]matrix
	hook   ddp.CommHook
	launch disttest.Launcher
	step   func(step int, w *tensor.Param)
}

// sums returns what the ranks had as gradients, in each step.
func (f fed) sums(t *testing.T) (got []matrix) {
	t.Helper()
	if f.launch == nil {
		f.launch = dist.Run
	}
	ranks, rows, cols := len(f.grads[0]), len(f.grads[0][0]), len(f.grads[0][0][0])
	all := make([][]matrix, ranks)
	require.NoError(t, f.launch(t.Context(), dist.Config{Ranks: ranks, Threads: 1}, func(_ context.Context, r *dist.Rank) error {
		model := &struct{ W, B *tensor.Param }{tensor.NewParam(tensor.Constant(1), rows, cols), tensor.NewParam(tensor.Constant(1), cols)}
		params := disttest.Must(ddp.Attach(r.World, model, ddp.Config{DType: tensor.Float64, Hook: f.hook}))
		opt, tape, rank := optim.NewSGD(params, optim.SGDConfig{LR: 1e-3}), tensor.NewTape(r.Device), r.World.Rank()
		for i, g := range f.grads {
			if f.step != nil {
				f.step(i, model.W)
			}
			x := tensor.FromSlice(g[rank].flat(), 1, rows, cols).WithRows(r.World.Rows(rank, ranks))
			tape.Backward(tape.Use(model.W).Add(tape.Use(model.B)).Reshape(1, rows, cols).Mul(tape.Input(x)).Sum())
			sum := tensor.Floats(model.W.Grad)
			all[rank] = append(all[rank], newMatrix(rows, cols, func(i, k int) float64 { return sum[i*cols+k] }))
			disttest.OK(opt.Step())
			tape.Reset()
		}
		return nil
	}))
	for _, mine := range all {
		require.Equal(t, all[0], mine, "bits differ over ranks")
	}
	return all[0]
}

func requireMatrix(t *testing.T, want, got matrix, tol float64, what string, step int) {
	t.Helper()
	for i := range want {
		for k := range want[i] {
			require.InDelta(t, want[i][k], got[i][k], tol, "%s, step %d, element %d %d", what, step, i, k)
		}
	}
}

// Algorithms 1 and 2 of the paper, in float64, with each rank's error: from the random start, which the first gradient that is compressed,
// the unit matrix, shows.
func TestIsTheAlgorithm(t *testing.T) {
	const n, steps = 16, 12
	for _, c := range []struct{ ranks, rank int }{{1, 1}, {2, 1}, {3, 2}, {2, 3}} {
		rng := rand.New(rand.NewPCG(1, uint64(c.rank)))
		unit := newMatrix(n, n, func(i, k int) float64 {
			if i == k {
				return 1 / float64(c.ranks)
			}
			return 0
		})
		f := fed{hook: powersgd.New(powersgd.Config{Rank: c.rank, Start: 1})}
		for step := range steps {
			var of []matrix
			for range c.ranks {
				if g := normal(rng, n, n); step == 1 {
					of = append(of, unit)
				} else {
					of = append(of, g)
				}
			}
			f.grads = append(f.grads, of)
		}
		got := f.sums(t)
		whole := f.grads[0][0]
		for _, g := range f.grads[0][1:] {
			whole = whole.plus(1, g)
		}
		requireMatrix(t, whole, got[0], 1e-12, "a whole step", 0)
		q := got[1].span(c.rank)
		errs := make([]matrix, c.ranks)
		for step := 1; step < steps; step++ {
			var p, next matrix
			for rank, g := range f.grads[step] {
				if step > 1 {
					g = g.plus(1, errs[rank])
				}
				errs[rank] = g
				if mine := q.times(g.t()); rank == 0 {
					p = mine
				} else {
					p = p.plus(1, mine)
				}
			}
			p = p.span(c.rank)
			for rank, m := range errs {
				mine := p.times(m)
				errs[rank] = m.plus(-1, p.t().times(mine))
				if rank == 0 {
					next = mine
				} else {
					next = next.plus(1, mine)
				}
			}
			requireMatrix(t, p.t().times(next), got[step], 1e-9, "a compressed step", step)
			q = next
		}
	}
}

// Nothing is lost: what one step of rank 1 lacks of a gradient of rank 3 comes in the next two. A gradient of lower rank than the hook's
// arrives at once, also the first one behind gradients of zero.
func TestSendsTheRestLater(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	zero := newMatrix(12, 17, func(int, int) float64 { return 0 })
	low := func(rank int) matrix { return normal(rng, 12, rank).times(normal(rng, rank, 17)) }
	for _, rank := range []int{1, 3} {
		f, sum, arrived := fed{hook: powersgd.New(powersgd.Config{Rank: rank, Start: 1})}, zero, zero
		for step := range 12 {
			g := []matrix{zero, zero}
			switch step {
			case 4:
				g = []matrix{low(1), low(2)}
			case 8:
				g[1] = low(1)
			}
			f.grads = append(f.grads, g)
		}
		for step, got := range f.sums(t) {
			sum, arrived = sum.plus(1, f.grads[step][0]).plus(1, f.grads[step][1]), arrived.plus(1, got)
			if step < 4 || step >= 4+3-rank {
				requireMatrix(t, sum, arrived, 1e-9, "all until now", step)
			} else {
				require.Greater(t, math.Abs(sum[0][0]-arrived[0][0]), 1e-3)
			}
		}
	}
}

// A parameter that is frozen in between gets no part of its errors meanwhile, and all of it later.
func TestKeepsErrorsOfFrozenParameters(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	zero, g := newMatrix(12, 17, func(int, int) float64 { return 0 }), normal(rng, 12, 2).times(normal(rng, 2, 17))
	f := fed{hook: powersgd.New(powersgd.Config{Start: 1}), grads: [][]matrix{{zero}, {zero}, {g}, {zero}, {zero}, {zero}}}
	f.step = func(step int, w *tensor.Param) {
		if w.Unfreeze(); step == 3 || step == 4 {
			w.Freeze()
		}
	}
	got := f.sums(t)
	requireMatrix(t, zero, got[3], 0, "frozen", 3)
	requireMatrix(t, zero, got[4], 0, "frozen", 4)
	requireMatrix(t, g, got[2].plus(1, got[5]), 1e-9, "all", 5)
}

// powerJob trains the odd small network.
func powerJob(ranks, steps int, c powersgd.Config) job {
	j := job{training: simple(ranks, steps, 26), cfg: ddp.Config{BucketBytes: 3000, Hook: powersgd.New(c)}}
	j.Micro, j.Rule = 2, func(p nn.Params, _ optim.Norm) *optim.Optimizer {
		return optim.NewSGD(p, optim.SGDConfig{LR: 0.1, Momentum: 0.9, Clip: 1})
	}
	return j
}

// What ranks send depends on the sum of their gradients: any number of ranks trains as one does, also on devices: in the short
// form on remote memory, or on GPUs where there are any.
func TestEqualsOneRank(t *testing.T) {
	c := powersgd.Config{Rank: 2, Start: 3}
	want := powerJob(1, 15, c).run(t)
	plain := powerJob(1, 15, powersgd.Config{Start: 100}).run(t)
	require.NotEqual(t, plain.Last, want.Last)
	require.Equal(t, plain.Losses[:4], want.Losses[:4])
	for _, ranks := range []int{2, 3} {
		disttest.RequireEqual(t, want, powerJob(ranks, 15, c).run(t), 1e-8)
	}
	machines := disttest.Machines()
	switch {
	case reliability.Long(t):
	case emu.OnGPU():
		machines = disttest.GPUs()[2:]
	default:
		machines = machines[:1]
	}
	disttest.OnEach(t, machines, 2, func(t *testing.T, launch disttest.Launcher) {
		j := powerJob(2, 15, c)
		j.On = launch
		disttest.RequireEqual(t, want, j.run(t), 1e-8)
	})
}

func TestLongEqualsOneRank(t *testing.T) { reliability.AsLong(t, TestEqualsOneRank) }

// Each compressed step sends the bytes of the formula: rank·(n+m) numbers of a matrix that becomes smaller by MinRate, and what is whole.
func TestBytes(t *testing.T) {
	layers := [][2]int{{31, 19}, {17, 31}, {5, 17}} // and a bias of each row
	for _, c := range []powersgd.Config{{Start: 2}, {Rank: 2, Start: 2}, {Rank: 3, Start: 2, MinRate: 1}, {Rank: 2, Start: 2, MinRate: 5},
		{Rank: 40, Start: 2}, {Rank: 40, Start: 2, MinRate: 0.01}} {
		numbers, whole := 0, 0
		for _, l := range layers {
			n, m := l[0], l[1]
			rank, rate := min(max(c.Rank, 1), n, m), c.MinRate
			if rate == 0 {
				rate = 2
			}
			if float64(rank*(n+m))*rate < float64(n*m) {
				numbers += rank*(n+m) + n
			} else {
				numbers += n*m + n
			}
			whole += n*m + n
		}
		payload := func(steps int) int {
			sent := 0
			j := powerJob(2, steps, c)
			j.end = func(s *disttest.State) error {
				if s.Rank.World.Rank() == 0 {
					sent = int(s.Rank.World.Stats().Payload["allreduce"])
				}
				return nil
			}
			j.run(t)
			return sent
		}
		two, seven := payload(2), payload(7)
		require.Equal(t, 2*8*whole, two, "%+v: whole steps", c)
		require.Equal(t, 5*8*numbers, seven-two, "%+v: compressed steps", c)
	}
}

// With 22% of the bytes, the loss falls as without compression: the mean of ten steps is never 3.5% above the other. Without error
// feedback it is 12% above.
func TestLongLossCurve(t *testing.T) {
	reliability.SkipUnlessLong(t)
	curve := func(hook ddp.CommHook) (means []float64) {
		losses := job{training: simple(2, 90, 512), cfg: ddp.Config{Hook: hook}, model: func() nn.Layer {
			return nn.Sequential{nn.NewLinear(19, 64), nn.GELU, nn.NewLinear(64, 64), nn.GELU, nn.NewLinear(64, 5)}
		}}.run(t).Losses
		for i := 0; i < len(losses); i += 10 {
			sum := 0.0
			for _, v := range losses[i : i+10] {
				sum += v
			}
			means = append(means, sum/10)
		}
		return means
	}
	want, got := curve(nil), curve(powersgd.New(powersgd.Config{Rank: 4, Start: 10}))
	for i := range want {
		require.Less(t, got[i], 1.035*want[i], "steps from %d", 10*i)
	}
	require.Less(t, want[len(want)-1], want[0]/10)
	require.NotEqual(t, want, got)
}

// What does not go together is refused: in the configuration, and over ranks.
func TestRefuses(t *testing.T) {
	attach := func(of func(rank int) ddp.Config) error {
		return disttest.OnRanks(2, func(r *dist.Rank) error {
			_, err := ddp.Attach(r.World, nn.NewLinear(8, 8), of(r.World.Rank()))
			return err
		})
	}
	hook := powersgd.New(powersgd.Config{})
	require.NoError(t, attach(func(int) ddp.Config { return ddp.Config{Hook: hook} }))
	require.ErrorContains(t, attach(func(int) ddp.Config { return ddp.Config{Hook: hook, AllowUnused: true} }),
		"ddp: PowerSGD with Config.AllowUnused")
	require.ErrorContains(t, attach(func(int) ddp.Config { return ddp.Config{Hook: hook, DType: tensor.BFloat16} }),
		"ddp: PowerSGD needs gradients of float32 or float64, and weight has bfloat16")
	require.ErrorContains(t, attach(func(rank int) ddp.Config {
		return ddp.Config{Hook: powersgd.New(powersgd.Config{Rank: 1 + rank})}
	}), "rank 1 has BucketBytes=0 Hook=PowerSGD{Rank:2 Start:1000 MinRate:2} AllowUnused=false where rank 0 has BucketBytes=0 "+
		"Hook=PowerSGD{Rank:1")
}
