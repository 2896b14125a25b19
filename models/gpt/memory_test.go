package gpt_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/models/decode"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// To write a text of a thousand tokens needs the memory of the weights and of its keys and values, and at most 5% more. The short form has
// 500 tokens.
func TestGenerationMemory(t *testing.T) {
	const layers, width = 4, 64
	tokens := 500
	if reliability.Long(t) {
		tokens = 1000
	}
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

func TestLongGenerationMemory(t *testing.T) { reliability.AsLong(t, TestGenerationMemory) }

// Muon has one moment of a matrix, and its iteration needs little beside it: a training has less memory than one by AdamW, also in tapes.
func TestMuonMemory(t *testing.T) {
	memory := func(half, muon bool) int {
		dev := cpu.New(1)
		defer dev.Close()
		m, err := gpt.New(gpt.Config{Vocab: 64, Positions: 16, Width: 128, Layers: 4, Heads: 4})
		require.NoError(t, err)
		params := nn.Init(m, dev, tensor.Float32, 1)
		opt := optim.NewAdamW
		if muon {
			opt = func(ps nn.Params, c optim.AdamWConfig) *optim.Optimizer {
				return optim.NewMuon(ps, optim.MuonConfig{Matrices: nn.Matrices(m, m.Head.W), AdamW: c, Half: half})
			}
		}
		o, tape := opt(params, optim.AdamWConfig{}), tensor.NewTape(dev)
		for range 3 {
			x := tape.Input(tensor.FromSlice(make([]int64, 16), 1, 16))
			tape.Backward(nn.CrossEntropy(m.Forward(x), x))
			require.NoError(t, o.Step())
			tape.Reset()
		}
		return dev.Memory().Total().Live + dev.Memory().Held().Live
	}
	adamw := memory(false, false)
	for _, half := range []bool{false, true} {
		if half && !reliability.Long(t) {
			continue
		}
		muon := memory(half, true)
		t.Logf("bytes: AdamW %d, Muon %d (%.3f)", adamw, muon, float64(muon)/float64(adamw))
		require.Less(t, muon, adamw)
	}
}

func TestLongMuonMemory(t *testing.T) { reliability.AsLong(t, TestMuonMemory) }
