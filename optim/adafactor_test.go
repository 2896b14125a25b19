package optim_test

import (
	"encoding/json"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

var adafactorShapes = [][]int{{6, 4}, {3}, {2, 3, 5}, {4, 4}, {}}

// adafactorInTorch has the configuration of each of gen_adafactor.py's runs.
var adafactorInTorch = map[string]optim.AdafactorConfig{
	"default": {},
	"decay":   {LR: 0.3, WeightDecay: 0.1, Beta2Decay: -0.6, ClipThreshold: 1.5, Eps: [2]float64{1e-4, 0.2}},
	"small_d": {LR: 0.05, ClipThreshold: 1, Eps: [2]float64{0.3, 1e-3}},
}

// adafactorOnRank returns a rank's parts of gen_adafactor.py's parameters, and its optimizer. Without a group, the rank has all.
func adafactorOnRank(d tensor.DType, c optim.AdafactorConfig, group *ranks, rank int, divide dividing) (nn.Params, *optim.Optimizer) {
	dev := cpu.New(1)
	var ps nn.Params
	for i, dims := range adafactorShapes {
		p := tensor.NewParam(tensor.Constant(0), dims...)
		p.SetName("p" + strconv.Itoa(i))
		if divide != nil {
			divide(p, rank, group.n)
		}
		p.Make(dev, d, 0)
		if p.Placement().Sharded() {
			p.Local = tensor.New(dev, d, p.Placement().Len())
		}
		p.Grad = tensor.New(dev, d, p.Local.Len())
		store(p.Local.View(p.Local.Len()), partOf(p, value(i, p.GlobalLen())))
		ps = append(ps, p)
	}
	if group != nil {
		c.Ranks = numbered{group, rank}
	}
	return ps, optim.NewAdafactor(ps, c)
}

// partOf returns this rank's part of a whole parameter.
func partOf(p *tensor.Param, whole []float64) (part []float64) {
	lo, hi := p.Placement().Range()
	for global, n := range p.Runs(lo, hi) {
		part = append(part, whole[global:global+n]...)
	}
	return part
}

// adafactorStep does a step with gen_adafactor.py's gradients.
func adafactorStep(ps nn.Params, opt *optim.Optimizer, step int) error {
	for i, p := range ps {
		if i == 3 && step%3 == 0 {
			continue
		}
		g, x := partOf(p, value(1000+10*step+i, p.GlobalLen())), tensor.Floats(p.Local.ToLocal())
		for k := range g {
			g[k] += x[k] / 8
		}
		store(p.Grad.ToLocal(), g)
		p.FillGrad()
	}
	return opt.Step()
}

func TestAdafactorMatchesTorch(t *testing.T) {
	b, err := os.ReadFile("testdata/adafactor.json")
	require.NoError(t, err)
	var kinds map[string]map[string]run
	require.NoError(t, json.Unmarshal(b, &kinds))
	require.Len(t, kinds, len(adafactorInTorch))
	for name, by := range kinds {
		for d, tol := range map[tensor.DType]float64{tensor.Float64: 1e-12, tensor.Float32: 1e-5} {
			t.Run(name+"/"+d.String(), func(t *testing.T) {
				ps, opt := adafactorOnRank(d, adafactorInTorch[name], nil, 0, nil)
				compared := 0
				for step := range 12 {
					require.NoError(t, adafactorStep(ps, opt, step))
					if want, ok := by[d.String()].Params[strconv.Itoa(step+1)]; ok {
						compared++
						require.InDeltaSlice(t, want, flat(ps), tol, "after step %d", step+1)
					}
				}
				assert.Equal(t, 3, compared)
			})
		}
	}
}

// However ranks divide parameters, they change as on one rank.
func TestAdafactorOnRanks(t *testing.T) {
	for kind, c := range adafactorInTorch {
		want, one := adafactorOnRank(tensor.Float64, c, nil, 0, nil)
		for step := range 12 {
			require.NoError(t, adafactorStep(want, one, step))
		}
		for name, on := range map[string]struct {
			ranks  int
			divide dividing
		}{
			"ddp": {2, copies}, "fsdp": {3, shards}, "tp, rows": {2, alongDim(0)}, "tp, columns": {3, alongDim(1)}, "tp and fsdp": {4, both},
		} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				group := &ranks{n: on.ranks}
				var wg sync.WaitGroup
				for r := range on.ranks {
					wg.Go(func() {
						ps, opt := adafactorOnRank(tensor.Float64, c, group, r, on.divide)
						for step := range 12 {
							if !assert.NoError(t, adafactorStep(ps, opt, step)) {
								return
							}
						}
						for i, p := range ps {
							if part := partOf(p, tensor.Floats(want[i].Value)); len(part) > 0 {
								assert.InDeltaSlice(t, part, tensor.Floats(p.Local.ToLocal()), 1e-10, "rank %d, %v", r, p)
							}
						}
						for i, x := range one.State().Tensors {
							if got := opt.State().Tensors[i]; got.Tensor.Len() == x.Tensor.Len() {
								assert.InDeltaSlice(t, tensor.Floats(x.Tensor), tensor.Floats(got.Tensor), 1e-10, x.Name)
							}
						}
					})
				}
				wg.Wait()
			})
		}
	}
}

// The state is rows + columns numbers of a matrix, on all ranks.
func TestAdafactorState(t *testing.T) {
	ps, one := adafactorOnRank(tensor.Float64, optim.AdafactorConfig{}, nil, 0, nil)
	shapes, numbers := map[string][]int{}, 0
	for _, x := range one.State().Tensors {
		shapes[x.Name] = x.Param.Global()
		require.Equal(t, x.Param.GlobalLen(), x.Tensor.Len(), x.Name)
		numbers += x.Tensor.Len()
	}
	assert.Equal(t, map[string][]int{"p0.row_var": {6, 1}, "p0.col_var": {1, 4}, "p1.variance": {3}, "p2.row_var": {2, 3, 1},
		"p2.col_var": {2, 1, 5}, "p3.row_var": {4, 1}, "p3.col_var": {1, 4}, "p4.variance": {}}, shapes)
	assert.Equal(t, 6+4+3+2*3+2*5+4+4+1, numbers)

	for step := range 5 {
		require.NoError(t, adafactorStep(ps, one, step))
	}
	got, other := adafactorOnRank(tensor.Float64, optim.AdafactorConfig{}, nil, 0, nil)
	require.NoError(t, other.SetState(one.State()))
	for i, p := range got {
		tensor.Copy(p.Value, ps[i].Value)
	}
	require.NoError(t, adafactorStep(ps, one, 5))
	require.NoError(t, adafactorStep(got, other, 5))
	assert.Equal(t, flat(ps), flat(got))
}

func TestAdafactorRefuses(t *testing.T) {
	p := func(c optim.AdafactorConfig) func() {
		return func() { adafactorOnRank(tensor.Float64, c, nil, 0, nil) }
	}
	for want, f := range map[string]func(){
		"ClipThreshold is 0.5, want 1 or more": p(optim.AdafactorConfig{ClipThreshold: 0.5}),
		"Beta2Decay is 0.8, want less than 0":  p(optim.AdafactorConfig{Beta2Decay: 0.8}),
		"Eps is -1, want 0 or more":            p(optim.AdafactorConfig{Eps: [2]float64{-1}}),
		"this rank holds 4 of the 12 elements of part, and Adafactor needs means": func() {
			optim.NewAdafactor(nn.Params{held{"part", 2, 6, nil}.param()}, optim.AdafactorConfig{})
		},
	} {
		assert.ErrorContains(t, tensor.Try(f), want)
	}
}
