package gpt_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/models/decode"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// To write a text of a thousand tokens needs the memory of the weights and of its keys and values, and at most 5% more.
func TestGenerationMemory(t *testing.T) {
	const tokens, layers, width = 1000, 4, 64
	for _, d := range []tensor.DType{tensor.Float32, tensor.BFloat16} {
		dev := cpu.New(1)
		m, err := gpt.New(gpt.Config{Vocab: 256, Positions: tokens + 1, Width: width, Layers: layers, Heads: 4, Tied: true})
		require.NoError(t, err)
		weights := nn.Init(m, dev, d, 1).Count() * d.Size()
		n := 0
		for range m.Generate(dev, []int{1}, decode.Sampling{Tokens: tokens}) {
			n++
		}
		require.Equal(t, tokens, n)
		cache := 2 * layers * (tokens + 1) * width * d.Size()
		peak := dev.Memory().Total().Peak
		t.Logf("%v: weights %d, cache %d, peak %d: %.3f", d, weights, cache, peak, float64(peak)/float64(weights+cache))
		require.LessOrEqual(t, float64(peak), 1.05*float64(weights+cache))
		dev.Close()
	}
}
