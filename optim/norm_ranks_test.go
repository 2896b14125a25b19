package optim_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

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
		p.Make(tensor.NewCPU(1), tensor.Float64, 0)
		return p
	}
	p.Make(tensor.NewCPU(1), tensor.Float64, 0)
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
