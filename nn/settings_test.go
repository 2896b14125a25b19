package nn_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor/ops"
)

func TestSettingsOf(t *testing.T) {
	type other struct {
		Rank int // of a user's struct: says nothing
		Fc   *nn.Linear
		Drop *nn.Dropout
		Norm *nn.LayerNorm
		Pool *nn.MaxPool2d
	}
	m := &other{3, nn.NewLinear(16, 32), nn.NewDropout(0.25), nn.NewLayerNorm(4), &nn.MaxPool2d{ops.Pool2dOptions{Kernel: [2]int{2, 3}}}}
	before := nn.SettingsOf(m)
	assert.Contains(t, before, "drop: P=0.25")
	assert.Contains(t, before, "norm: Eps=1e-05")
	assert.Contains(t, before, "fc: Float8=0")
	assert.Contains(t, before, "pool: Options={Kernel:[2 3] Stride:[0 0] Padding:[0 0]}")
	for _, line := range before {
		assert.NotContains(t, line, "Rank")
		assert.NotContains(t, line, "0x", "an address differs from process to process")
	}
	a := nn.NewAttention(8, 2)
	whole := nn.SettingsOf(a)
	a.Scores.Window = 3
	assert.NotEqual(t, whole, nn.SettingsOf(a))
	nn.Float8(m, ops.PerRow, "*")
	assert.NotEqual(t, before, nn.SettingsOf(m))
	assert.Equal(t, []string{"P=0.5"}, nn.SettingsOf(nn.NewDropout(0.5)))
}

// scaled is a layer of another package.
type scaled struct {
	Fc *nn.Linear
	by float64
}

func (s *scaled) Settings() any { return struct{ By float64 }{s.by} }

func TestSettingsOfOtherPackages(t *testing.T) {
	type model struct{ Layers []*scaled }
	lines := nn.SettingsOf(&model{[]*scaled{{nn.NewLinear(2, 3), 1}, {nn.NewLinear(2, 3), 4}}})
	assert.Contains(t, lines, "layers.0: By=1")
	assert.Contains(t, lines, "layers.1: By=4")
}
