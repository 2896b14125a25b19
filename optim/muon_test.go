package optim_test

import (
	"encoding/json"
	"math"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/optim/schedule"
	"github.com/ringo-ml/ringo/tensor"
)

var muonShapes = [][]int{{6, 4}, {3}, {4, 7}, {4, 4}}

// muonParams returns gen_muon.py's parameters, and what of them are matrices.
func muonParams(d tensor.DType) (ps nn.Params, matrices []nn.Matrix) {
	for i, dims := range muonShapes {
		p := tensor.NewParam(tensor.Constant(0), dims...)
		p.SetName("p" + strconv.Itoa(i))
		p.Make(host, d, 0)
		p.Grad = tensor.New(host, d, dims...)
		store(p.Value, value(i, p.Len()))
		if ps = append(ps, p); len(dims) == 2 {
			matrices = append(matrices, nn.Matrix{W: p})
		}
	}
	matrices[0].Parts = []int{4, 2}
	return ps, matrices
}

// muonGradients writes gen_muon.py's gradients of a step.
func muonGradients(ps nn.Params, step int) {
	for i, p := range ps {
		v, x := value(1000+10*step+i, p.Len()), tensor.Floats(p.Value)
		for j := range v {
			v[j] += x[j] / 8
		}
		store(p.Grad, v)
		p.FillGrad()
	}
}

// asTorch has the configuration of each of gen_muon.py's runs.
var asTorch = map[string]optim.MuonConfig{
	"original":        {LR: 0.02, WeightDecay: 0.1},
	"match_rms_adamw": {LR: 0.01, WeightDecay: 0.1, AdjustLR: optim.MatchRMSAdamW},
	"no_nesterov":     {LR: 0.02, Momentum: 0.8, NoNesterov: true},
}

// In float64, Muon is what PyTorch's code does with an iteration in float64. PyTorch iterates in bfloat16, in whatever type the
// parameters are: an element may differ by 0.15 rates a step.
func TestMuonMatchesTorch(t *testing.T) {
	b, err := os.ReadFile("testdata/muon.json")
	require.NoError(t, err)
	var kinds map[string]map[string]run
	require.NoError(t, json.Unmarshal(b, &kinds))
	require.Len(t, kinds, len(asTorch))
	for name, by := range kinds {
		for _, d := range []tensor.DType{tensor.Float64, tensor.Float32} {
			t.Run(name+"/"+d.String(), func(t *testing.T) {
				ps, matrices := muonParams(d)
				c := asTorch[name]
				c.Matrices, c.AdamW = matrices, optim.AdamWConfig{LR: 0.03, WeightDecay: 0.05}
				opt, compared := optim.NewMuon(ps, c), 0
				for step := range 20 {
					muonGradients(ps, step)
					require.NoError(t, opt.Step())
					done := strconv.Itoa(step + 1)
					if want, ok := by["float64"].Params[done]; ok {
						compared++
						tol := map[tensor.DType]float64{tensor.Float64: 1e-11, tensor.Float32: 2e-5}[d]
						require.InDeltaSlice(t, want, flat(ps), tol, "after step %d", step+1)
						require.InDeltaSlice(t, by["bfloat16"].Params[done], flat(ps), 0.15*0.02*float64(step+1), "after step %d", step+1)
					}
				}
				assert.Equal(t, 3, compared)
			})
		}
	}
}

// With Half, the iteration is torch.optim.Muon's, in bfloat16, and all else in the type of the parameters.
func TestMuonInHalf(t *testing.T) {
	b, err := os.ReadFile("testdata/muon.json")
	require.NoError(t, err)
	var kinds map[string]map[string]run
	require.NoError(t, json.Unmarshal(b, &kinds))
	for name, by := range kinds {
		for _, d := range []tensor.DType{tensor.Float64, tensor.Float32} {
			ps, matrices := muonParams(d)
			c := asTorch[name]
			c.Matrices, c.AdamW, c.Half = matrices, optim.AdamWConfig{LR: 0.03, WeightDecay: 0.05}, true
			opt := optim.NewMuon(ps, c)
			for step := range 20 {
				muonGradients(ps, step)
				require.NoError(t, opt.Step())
				if want, ok := by["bfloat16"].Params[strconv.Itoa(step+1)]; ok {
					require.InDeltaSlice(t, want, flat(ps), 0.25*0.02*float64(step+1), "%s, %v, after step %d", name, d, step+1) // both round
					exact := by["float64"].Params[strconv.Itoa(step+1)]
					require.InDeltaSlice(t, exact, flat(ps), 0.15*0.02*float64(step+1), "%s, %v, after step %d", name, d, step+1)
				}
			}
			most := 0.0
			for i, x := range by["float64"].Params["20"] {
				most = max(most, math.Abs(x-flat(ps)[i]))
			}
			require.Greater(t, most, 1e-4, "rounded as float64")
		}
	}
}

// What is no matrix is refused with a sentence.
func TestMuonRefuses(t *testing.T) {
	ps, matrices := muonParams(tensor.Float64)
	other := tensor.NewParam(tensor.Constant(0), 2, 2)
	other.SetName("other")
	for want, m := range map[string][]nn.Matrix{
		"Matrices is empty": nil,
		"matrix other[2 2] is not one of the parameters": {{W: other}},
		"Muon is for matrices, and p1 has shape [3]":     {{W: ps[1]}},
		"the parts [4 1] of p0 have 5 rows, not 6":       {{W: ps[0], Parts: []int{4, 1}}},
		"the parts [6 0] of p0 must have rows":           {{W: ps[0], Parts: []int{6, 0}}},
	} {
		assert.ErrorContains(t, tensor.Try(func() { optim.NewMuon(ps, optim.MuonConfig{Matrices: m}) }), want)
	}
	ps[3].SetStored([]tensor.Stored{{Name: "q", Rows: 2, Total: 2}, {Name: "k", Rows: 2, Total: 2}})
	assert.ErrorContains(t, tensor.Try(func() { optim.NewMuon(ps, optim.MuonConfig{Matrices: matrices}) }),
		"p3 has several matrices on top of each other")
	part := held{"part", 2, 6, nil}.param()
	assert.ErrorContains(t, tensor.Try(func() { optim.NewMuon(nn.Params{part}, optim.MuonConfig{Matrices: []nn.Matrix{{W: part}}}) }),
		"this rank holds 4 of the 12 elements of part, and a part of a matrix cannot be made orthogonal")
	fused := held{"fused", 0, 0, &layout.Division{Parts: []int{4, 2}}}.param()
	assert.ErrorContains(t, tensor.Try(func() { optim.NewMuon(nn.Params{fused}, optim.MuonConfig{Matrices: []nn.Matrix{{W: fused}}}) }),
		"fused has several matrices on top of each other")
}

// Groups, clipping and the schedule hold for matrices, too; frozen ones have no state, and what got no gradient stays.
func TestMuonSettings(t *testing.T) {
	ps, matrices := muonParams(tensor.Float64)
	ps[3].Freeze()
	opt := optim.NewMuon(ps, optim.MuonConfig{Matrices: matrices, LR: 0.02, WeightDecay: 0.1, AdamW: optim.AdamWConfig{Clip: 1,
		Schedule: schedule.Linear(1, 0, 2), Groups: []optim.Group{{Match: optim.Only(ps[2]), LRScale: 0.5}}}})
	assert.Len(t, opt.State().Tensors, 2+2, "a momentum for each matrix, two moments for the vector")
	before := flat(ps)
	muonGradients(ps[:2], 0)
	require.NoError(t, opt.Step())
	assert.NotZero(t, opt.GradNorm())
	after := flat(ps)
	assert.NotEqual(t, before[:24], after[:24])
	assert.Equal(t, before[27:], after[27:], "no gradient, or frozen")
	muonGradients(ps[:3], 1)
	require.NoError(t, opt.Step())
	half := flat(ps)
	muonGradients(ps[:3], 2)
	require.NoError(t, opt.Step())
	assert.Equal(t, half, flat(ps), "the schedule is at 0")

	a, b := firstChange(0), firstChange(0.5)
	for i := range a {
		assert.InDelta(t, a[i]/2, b[i], 1e-15, "half the rate")
	}
}

// firstChange returns how much the first step changes a matrix whose group has this LRScale and no decay.
func firstChange(scale float64) (change []float64) {
	ps, matrices := muonParams(tensor.Float64)
	opt := optim.NewMuon(ps, optim.MuonConfig{Matrices: matrices, WeightDecay: 0.1,
		AdamW: optim.AdamWConfig{Groups: []optim.Group{{Match: optim.Only(ps[2]), LRScale: scale}}}})
	before := tensor.Floats(ps[2].Value)
	muonGradients(ps, 0)
	if err := opt.Step(); err != nil {
		panic(err)
	}
	for i, x := range tensor.Floats(ps[2].Value) {
		change = append(change, x-before[i])
	}
	return change
}
