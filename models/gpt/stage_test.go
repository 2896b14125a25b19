package gpt_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/moe/router"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// staged returns a model of four layers, the second of which has experts.
func staged(t *testing.T, name string) *gpt.Model {
	c := small[name]
	c.Layers = 4
	m, err := gpt.New(c)
	require.NoError(t, err)
	m.Blocks[1].MLP = moe.NewLayer(moe.Config{Features: c.Width, Hidden: 5, Experts: 3, Router: router.Config{Top: 2}})
	return m
}

// Stages compute what the whole model does, bit for bit, with its initial values, names, and names in files; also where one rank has two of
// them.
func TestStages(t *testing.T) {
	dev := cpu.New(1)
	defer dev.Close()
	for name, ranks := range map[string][][]int{"gpt2": {{0, 2}, {1}}, "llama": {{0}, {1}, {2}}} {
		whole := staged(t, name)
		all := nn.Init(whole, dev, tensor.Float64, 5)
		stored := map[string][]tensor.Stored{}
		for _, p := range all {
			stored[p.Name()], _ = whole.Stored(p.Name(), p.Global())
		}
		parts, held := map[int]*gpt.Stage{}, map[string]int{}
		for _, mine := range ranks {
			m := staged(t, name)
			stages, err := m.Stages([]int{1, 2, 1}, mine...)
			require.NoError(t, err)
			for i, s := range stages {
				parts[i] = s
			}
			for _, p := range nn.Init(m, dev, tensor.Float64, 5) {
				as, _ := m.Stored(p.Name(), p.Global())
				assert.Equal(t, stored[p.Name()], as, p.Name())
				held[p.Name()]++
			}
			if !slices.Contains(mine, 2) || len(mine) == 1 {
				assert.ErrorContains(t, tensor.Try(func() {
					m.Forward(tensor.NewTape(dev).Input(tokens(7, 1)))
				}), "this rank does not have layer ")
			}
		}
		assert.Len(t, held, len(all))
		for _, p := range all {
			assert.Equal(t, 1, held[p.Name()], p.Name())
		}
		tape := tensor.NewTape(dev)
		ids := tape.Input(tokens(7, 1, 4))
		x := parts[0].Forward(ids, 2, 7)
		assert.Equal(t, []int{14, small[name].Width}, x.Shape().Dims)
		x = parts[2].Forward(parts[1].Forward(x, 2, 7), 2, 7)
		assert.Equal(t, tensor.Floats(whole.Forward(ids)), tensor.Floats(x), name)
	}
}

// The table of a tied model is on the first and on the last stage.
func TestStagesTied(t *testing.T) {
	for i, want := range []bool{true, false, true} {
		m := staged(t, "gpt2")
		_, err := m.Stages([]int{1, 2, 1}, i)
		require.NoError(t, err)
		assert.Equal(t, want, slices.ContainsFunc(nn.ParamsOf(m), func(p *tensor.Param) bool { return p.Name() == "tok.weight" }))
	}
}

func TestStagesRefused(t *testing.T) {
	for want, c := range map[string]struct{ layers, mine []int }{
		"stages of [1 2] layers have 3 of them, and the model has 4":         {[]int{1, 2}, []int{0}},
		"stage 1 has 0 layers: each stage needs one":                         {[]int{4, 0}, []int{0}},
		"this rank has stages [0 2], and there are stages 0 to 1, each once": {[]int{2, 2}, []int{0, 2}},
		"this rank has stages [1 1], and there are stages 0 to 1, each once": {[]int{2, 2}, []int{1, 1}},
	} {
		_, err := staged(t, "gpt2").Stages(c.layers, c.mine...)
		assert.ErrorContains(t, err, want)
	}
	dev := cpu.New(1)
	defer dev.Close()
	m := staged(t, "gpt2")
	s, err := m.Stages([]int{4}, 0)
	require.NoError(t, err)
	nn.Init(m, dev, tensor.Float64, 5)
	assert.ErrorContains(t, tensor.Try(func() { s[0].Forward(tensor.NewTape(dev).Input(tokens(7, 1)), 2, 7) }),
		"int64[1,7] are not 2 sequences of 7 tokens")
}
