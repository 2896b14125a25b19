package optim_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// ranks is a Norm that sums the vectors of n goroutines.
type ranks struct {
	n    int
	mu   sync.Mutex
	sum  []float64
	here int
	full chan struct{}
}

func (r *ranks) SumFloats(x []float64) error {
	if r.n == 1 {
		return nil
	}
	r.mu.Lock()
	if r.here == 0 {
		r.sum, r.full = make([]float64, len(x)), make(chan struct{})
	}
	for i, v := range x {
		r.sum[i] += v
	}
	r.here++
	sum, full := r.sum, r.full
	if r.here == r.n {
		r.here = 0
		close(full)
	}
	r.mu.Unlock()
	<-full
	copy(x, sum)
	return nil
}

// numbered is ranks that knows its own number.
type numbered struct {
	*ranks
	rank int
}

func (n numbered) Rank() int { return n.rank }
func (n numbered) Size() int { return n.n }

// cut gives each of n ranks its shards of gen.py's parameters. The first parameter has shards of different sizes (one rank has none). The
// others are whole on every rank, but the last rank alone has the third, unless there are two ranks.
func cut(n int) []nn.Params {
	bounds := [][]int{{0, 12}, {0, 5, 12}, {0, 5, 5, 12}}[n-1]
	out := make([]nn.Params, n)
	for r := range n {
		ps := start(tensor.Float64)
		if n > 1 {
			lo, hi := bounds[r], bounds[r+1]
			ps[0].Local = ps[0].Value.View(12).Range(lo, hi)
			ps[0].Shard(lo, hi)
		}
		if n == 3 && r < 2 {
			ps = ps[:2]
		}
		out[r] = ps
	}
	return out
}

func shardGradients(ps nn.Params, step int) {
	for i, p := range ps {
		lo, hi := 0, p.Len()
		if i == 0 {
			lo, hi = p.Placement().Range()
		}
		p.Grad = tensor.FromSlice(value(1000+10*step+i, p.Len())[lo:hi], hi-lo)
		p.FillGrad()
	}
}

// TestClippingOnRanks: n ranks with shards equal one rank with everything.
func TestClippingOnRanks(t *testing.T) {
	norms, values := map[int][]float64{}, map[int][]float64{}
	for n := 1; n <= 3; n++ {
		group := &ranks{n: n}
		all := cut(n)
		var wg sync.WaitGroup
		norm := make([][]float64, n)
		for r := range n {
			wg.Go(func() {
				opt := optim.NewAdamW(all[r], optim.AdamWConfig{LR: 0.1, Clip: 0.7, Norm: numbered{group, r}})
				for step := range 10 {
					shardGradients(all[r], step)
					if !assert.NoError(t, opt.Step()) {
						return
					}
					norm[r] = append(norm[r], opt.GradNorm())
				}
			})
		}
		wg.Wait()
		for r := 1; r < n; r++ {
			require.Equal(t, norm[0], norm[r], "all ranks clip alike")
		}
		for _, ps := range all {
			values[n] = append(values[n], tensor.Floats(ps[0].Local)...)
		}
		values[n] = append(values[n], flat(all[n-1][1:])...)
		norms[n] = norm[0]
	}
	for n := 2; n <= 3; n++ {
		assert.InDeltaSlice(t, norms[1], norms[n], 1e-14)
		assert.InDeltaSlice(t, values[1], values[n], 1e-14)
	}
	local := cut(1)[0] // no Norm at all
	opt := optim.NewAdamW(local, optim.AdamWConfig{LR: 0.1, Clip: 0.7})
	for step := range 10 {
		shardGradients(local, step)
		require.NoError(t, opt.Step())
		assert.InDelta(t, norms[1][step], opt.GradNorm(), 1e-14)
	}
}

// held is a rank's part of a parameter of 12 elements.
type held struct {
	name   string
	lo, hi int
	cut    *layout.Division // lo is the rank of two, then
}

func (h held) param() *tensor.Param {
	p := tensor.NewParam(tensor.Constant(1), 6, 2)
	p.SetName(h.name)
	if h.cut != nil {
		p.Place(layout.Axis{Axes: 1, Rank: h.lo, Ranks: 2}, *h.cut)
		p.Make(cpu.New(1), tensor.Float64, 0)
		return p
	}
	p.Make(cpu.New(1), tensor.Float64, 0)
	p.Shard(h.lo, h.hi)
	p.Local = p.Value.View(12).Range(h.lo, h.hi)
	return p
}

// steps makes each rank of a Norm do two steps with gradients of ones, and returns the norms and errors by rank.
func steps(all [][]held, norm func(rank int) optim.Norm) ([]float64, []error) {
	norms, errs := make([]float64, len(all)), make([]error, len(all))
	var wg sync.WaitGroup
	for r, list := range all {
		wg.Go(func() {
			var ps nn.Params
			for _, h := range list {
				ps = append(ps, h.param())
			}
			opt := optim.NewSGD(ps, optim.SGDConfig{LR: 0.1, Clip: 1, Norm: norm(r)})
			for range 2 {
				for _, p := range ps {
					p.Grad = tensor.New(p.Value.Device(), tensor.Float64, p.Local.Len())
					for i := range tensor.Data[float64](p.Grad) {
						tensor.Data[float64](p.Grad)[i] = 1
					}
					p.FillGrad()
				}
				if errs[r] = opt.Step(); errs[r] != nil {
					return
				}
			}
			norms[r] = opt.GradNorm()
		})
	}
	wg.Wait()
	return norms, errs
}

// Of ranks that hold the same elements, one counts them, with the same parameters on all ranks and with different ones. Before the first
// norm, ranks check that together they hold each element once.
func TestEachElementCountsOnce(t *testing.T) {
	whole, first, second := held{"whole", 0, 12, nil}, held{"first", 0, 12, nil}, held{"second", 0, 12, nil}
	part := func(lo, hi int) held { return held{"part", lo, hi, nil} }
	rows, columns := func(rank int) held { return held{"part", rank, 0, &layout.Division{}} }, held{"part", 0, 0, &layout.Division{Dim: 1}}
	for name, c := range map[string]struct {
		ranks [][]held
		sum   float64 // of squares: elements
		want  string
	}{
		"whole and parts":    {ranks: [][]held{{whole, part(0, 2)}, {whole, part(2, 12)}}, sum: 24},
		"copies of parts":    {ranks: [][]held{{part(0, 5)}, {part(5, 12)}, {part(0, 5)}, {part(5, 12)}}, sum: 12},
		"a rank has nothing": {ranks: [][]held{{part(0, 12)}, {part(12, 12)}}, sum: 12},
		"a part is missing": {ranks: [][]held{{whole, part(0, 2)}, {whole, part(4, 12)}},
			want: "count 2 elements of part, which has 12: the norm of gradients would be too small"},
		"parts overlap":                     {ranks: [][]held{{part(0, 8)}, {part(6, 12)}}, want: "count 8 elements of part"},
		"copies that are divided elsewhere": {ranks: [][]held{{part(0, 4)}, {part(0, 3)}, {part(3, 10)}, {part(10, 12)}, {part(4, 12)}}, sum: 12},
		"a part, and elsewhere the whole":   {ranks: [][]held{{part(0, 2)}, {part(0, 12)}}, want: "count 2 elements of part"},
		"rows":                              {ranks: [][]held{{rows(0)}, {rows(1)}}, sum: 12},
		"rows, elsewhere columns": {ranks: [][]held{{rows(0)}, {rows(1)}, {columns}},
			want: "count 18 elements of part, which has 12: the norm of gradients would be too large; ranks have cut it in different ways"},
		"stages":             {ranks: [][]held{{first, whole}, {whole, second}, {whole}}, sum: 36},
		"stages lack a part": {ranks: [][]held{{first, part(0, 4)}, {second}}, want: "count 4 elements of "},
	} {
		t.Run(name, func(t *testing.T) {
			group := &ranks{n: len(c.ranks)}
			norms, errs := steps(c.ranks, func(rank int) optim.Norm { return numbered{group, rank} })
			for r := range c.ranks {
				if c.want == "" {
					require.NoError(t, errs[r])
					assert.InDelta(t, c.sum, norms[r]*norms[r], 1e-12)
				} else {
					assert.ErrorContains(t, errs[r], c.want)
				}
			}
		})
	}
}

// Without a Norm, a rank must hold all of each parameter.
func TestPartsNeedANorm(t *testing.T) {
	part := func() *tensor.Param { return held{"part", 2, 6, nil}.param() }
	for want, f := range map[string]func(){
		"this rank holds 4 of the 12 elements of part, and there is no Norm": func() {
			optim.NewSGD(nn.Params{part()}, optim.SGDConfig{LR: 1, Clip: 1})
		},
		"this rank holds 4 of the 12 elements of part": func() {
			optim.NewAdamW(nn.Params{part()}, optim.AdamWConfig{Scaler: optim.NewScaler()})
		},
	} {
		require.ErrorContains(t, tensor.Try(f), want)
	}
	require.NoError(t, tensor.Try(func() { optim.NewAdamW(nn.Params{part()}, optim.AdamWConfig{}) }), "no norm is asked for")
}

// Ranks without parameters take part in the Norm, and in 10 steps that of the other one is as if it were alone.
func TestRankWithoutParameters(t *testing.T) {
	for name, create := range map[string]func(p nn.Params, n optim.Norm) *optim.Optimizer{
		"SGD": func(p nn.Params, n optim.Norm) *optim.Optimizer {
			return optim.NewSGD(p, optim.SGDConfig{LR: 0.1, Momentum: 0.5, Clip: 0.1, Norm: n})
		},
		"AdamW": func(p nn.Params, n optim.Norm) *optim.Optimizer {
			return optim.NewAdamW(p, optim.AdamWConfig{LR: 0.1, Clip: 0.1, Norm: n, Scaler: &optim.Scaler{Scale: 8}})
		},
		"Adafactor": func(p nn.Params, n optim.Norm) *optim.Optimizer {
			return optim.NewAdafactor(p, optim.AdafactorConfig{LR: 0.1, Clip: 0.1, Norm: n})
		},
	} {
		train := func(ranks int) (norms, values []float64) {
			require.NoError(t, disttest.OnRanks(ranks, func(r *dist.Rank) error {
				var ps nn.Params
				if r.World.Rank() == ranks-1 {
					ps = nn.Init(nn.NewLinear(3, 5), r.Device, tensor.Float64, 1)
				}
				o := create(ps, r.World)
				optim.NewEMA(o, 0.9)
				for step := range 10 {
					for _, p := range ps {
						p.Grad = tensor.New(r.Device, tensor.Float64, p.Dims()...)
						tensor.UniformInit(-1, 1).Fill(p.Grad, uint64(step), 0)
						p.FillGrad()
					}
					if err := o.Step(); err != nil {
						return err
					}
					if ps != nil {
						norms = append(norms, o.GradNorm())
					}
				}
				for _, p := range ps {
					values = append(values, tensor.Floats(p.Value)...)
				}
				return nil
			}))
			return norms, values
		}
		wantNorms, want := train(1)
		norms, got := train(3)
		require.Equal(t, wantNorms, norms, name)
		require.Equal(t, want, got, name)
	}
}
