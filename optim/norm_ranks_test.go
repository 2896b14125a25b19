package optim_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// numbered is ranks that knows its own number.
type numbered struct {
	*ranks
	rank int
}

func (n numbered) Rank() int { return n.rank }
func (n numbered) Size() int { return n.n }

// held is a rank's part of a parameter.
type held struct {
	name   string
	lo, hi int  // of 6 rows of 2
	copies bool // another rank counts these
	shard  bool
}

func (h held) param() *tensor.Param {
	p := tensor.NewParam(tensor.Constant(1), 6, 2)
	p.SetName(h.name)
	if h.shard && (h.lo > 0 || h.hi < 6) {
		p.Cut([]int{h.hi - h.lo, 2}, tensor.Box{Lo: []int{h.lo, 0}, Hi: []int{h.hi, 2}})
	} else if h.shard {
		p.NarrowCounts(true)
	}
	if h.copies {
		p.NarrowCounts(false)
	}
	p.Make(tensor.NewCPU(1), tensor.Float64, 0)
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
					p.Grad = tensor.New(p.Value.Device(), tensor.Float64, p.Dims()...)
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

// Before the first norm, ranks check that each element counts once, with the same parameters on all ranks and with different ones.
func TestEachElementCountsOnce(t *testing.T) {
	whole := held{name: "whole", hi: 6}
	counted, copied := held{name: "both", hi: 6, shard: true}, held{name: "both", hi: 6, shard: true, copies: true}
	part := func(lo, hi int) held { return held{name: "part", lo: lo, hi: hi, shard: true} }
	first, second := held{name: "first", hi: 6, shard: true}, held{name: "second", hi: 6, shard: true}
	for name, c := range map[string]struct {
		ranks [][]held
		sum   float64 // of squares: elements
		want  string
	}{
		"whole, parts and copies": {ranks: [][]held{{whole, counted, part(0, 1)}, {whole, copied, part(1, 6)}}, sum: 36},
		"a part is missing": {ranks: [][]held{{whole, part(0, 1)}, {whole, part(2, 6)}},
			want: "count 10 elements of part, which has 12: the norm of gradients would be too small"},
		"copies count": {ranks: [][]held{{whole, counted}, {whole, counted}},
			want: "count 24 elements of both, which has 12: the norm of gradients would be too large"},
		"nobody counts": {ranks: [][]held{{copied}, {copied}}, want: "count 0 elements of both, which has 12"},
		"a part, and elsewhere the whole": {ranks: [][]held{{part(0, 1)}, {held{name: "part", hi: 6}}},
			want: "1 of the 2 ranks of Norm take part to be whole on all of them"},
		"stages":                    {ranks: [][]held{{first, counted}, {copied, second}, {copied}}, sum: 36},
		"stages, and what all have": {ranks: [][]held{{first, whole}, {whole, second}}, sum: 36},
		"a stage that says nothing": {ranks: [][]held{{first}, {whole, second}}, want: "1 of the 2 ranks of Norm take "},
		"stages count copies":       {ranks: [][]held{{first, counted}, {counted, second}}, want: "count 24 elements of both"},
		"stages lack a part":        {ranks: [][]held{{first, part(0, 2)}, {second}}, want: "count 4 elements of "},
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
	group := &ranks{n: 2}
	_, errs := steps([][]held{{first}, {second}}, func(int) optim.Norm { return group })
	for _, err := range errs {
		assert.EqualError(t, err,
			"optim: ranks of Norm have other parameters than this one: Norm must be a group of package dist, not *optim_test.ranks")
	}
}

// Without a Norm, a rank must hold all of each parameter. With one, a parameter whose kind is Cut must have a Shard.
func TestPartsNeedANorm(t *testing.T) {
	part := func() *tensor.Param { return held{name: "part", lo: 1, hi: 3, shard: true}.param() }
	laid := func() *tensor.Param {
		p := held{name: "laid", hi: 6}.param()
		p.Lay(1, tensor.Cut)
		return p
	}
	for want, f := range map[string]func(){
		"this rank holds 4 of the 12 elements of part, and there is no Norm": func() {
			optim.NewSGD(nn.Params{part()}, optim.SGDConfig{LR: 1, Clip: 1})
		},
		"this rank holds 4 of the 12 elements of part": func() {
			optim.NewAdamW(nn.Params{part()}, optim.AdamWConfig{Scaler: optim.NewScaler()})
		},
		"laid[6 2] is sharded (Lay), but its part of the model's tensor is unknown": func() {
			optim.NewAdam(nn.Params{laid()}, optim.AdamConfig{Clip: 1, Norm: &ranks{n: 1}})
		},
	} {
		require.ErrorContains(t, tensor.Try(f), want)
	}
	require.NoError(t, tensor.Try(func() { optim.NewAdamW(nn.Params{part(), laid()}, optim.AdamWConfig{}) }), "no norm is asked for")
}
