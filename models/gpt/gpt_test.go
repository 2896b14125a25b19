package gpt_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/models/decode"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// Small models of each kind.
var small = map[string]gpt.Config{
	"gpt2":  {Vocab: 13, Positions: 12, Width: 12, Layers: 2, Heads: 3, Tied: true},
	"llama": {Kind: gpt.Llama, Vocab: 13, Positions: 12, Width: 12, Layers: 2, Heads: 6, KVHeads: 2, Hidden: 20},
	"wide heads": {Kind: gpt.Llama, Vocab: 13, Positions: 12, Width: 10, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 6, Hidden: 7, Base: 500,
		Scaling: nn.RotaryScaling{Type: "linear", Factor: 2}},
	"qwen2":  {Kind: gpt.Qwen2, Vocab: 13, Positions: 12, Width: 12, Layers: 1, Heads: 6, KVHeads: 2, Hidden: 7},
	"window": {Kind: gpt.Qwen2, Vocab: 13, Positions: 12, Width: 12, Layers: 2, Heads: 6, KVHeads: 2, Hidden: 7, Window: 3, FullLayers: 1},
	"qwen3":  {Kind: gpt.Qwen3, Vocab: 13, Positions: 12, Width: 12, Layers: 1, Heads: 4, KVHeads: 2, HeadDim: 4, Hidden: 7},
	"mixtral": {Kind: gpt.Mixtral, Vocab: 13, Positions: 12, Width: 12, Layers: 2, Heads: 6, KVHeads: 2, Hidden: 7, Window: 5,
		Experts: 5, Top: 2},
	"qwen3_moe": {Kind: gpt.Qwen3MoE, Vocab: 13, Positions: 12, Width: 12, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 4, Hidden: 7, Experts: 6,
		Top: 3, Normalize: true},
	"smollm3": {Kind: gpt.SmolLM3, Vocab: 13, Positions: 12, Width: 12, Layers: 3, Heads: 6, KVHeads: 2, Hidden: 7, NoRopeEvery: 2},
	"gemma2": {Kind: gpt.Gemma2, Vocab: 13, Positions: 12, Width: 12, Layers: 3, Heads: 6, KVHeads: 2, HeadDim: 4, Hidden: 7, Tied: true,
		Window: 3, FullEvery: 2, QueryScalar: 3, AttnSoftCap: 2, LogitSoftCap: 5},
	"gemma3": {Kind: gpt.Gemma3, Vocab: 13, Positions: 12, Width: 12, Layers: 3, Heads: 6, KVHeads: 2, HeadDim: 4, Hidden: 7, Tied: true,
		Window: 3, FullEvery: 3, Base: 500, LocalBase: 10},
}

func made(t *testing.T, c gpt.Config, d tensor.DType) (*gpt.Model, nn.Params, tensor.Device) {
	m, err := gpt.New(c)
	require.NoError(t, err)
	dev := cpu.New(1)
	t.Cleanup(func() { dev.Close() })
	params := nn.Init(m, dev, d, 5)
	tape := tensor.NewTape(dev)
	for _, p := range params { // the initial values are small: all tokens would be about equally likely
		scale := 25.0
		if p.Name() == "tok.weight" {
			scale = 5
		}
		tensor.Copy(p.Value, tape.Input(p.Value).Scale(scale))
	}
	return m, params, dev
}

func tokens(n int, rows ...int) tensor.Tensor {
	ids := []int64{}
	for _, r := range rows {
		for i := range n {
			ids = append(ids, int64((5*i*i+3*r+i)%13))
		}
	}
	return tensor.FromSlice(ids, len(rows), n)
}

// In pieces of any length through a cache, a model's last logits equal those of the whole sequence.
func TestNext(t *testing.T) {
	for name, c := range small {
		for d, tol := range map[tensor.DType]float64{tensor.Float64: 1e-13, tensor.Float32: 1e-4} {
			m, _, dev := made(t, c, d)
			tape := tensor.NewTape(dev, tensor.NoGrad())
			ids := tape.Input(tokens(12, 1, 2))
			whole, cache := m.Forward(ids), m.NewCache(100)
			for again := range 2 {
				for _, piece := range [][2]int{{0, 4}, {4, 5}, {5, 6}, {6, 11}, {11, 12}} {
					y := m.Next(ids.Slice(1, piece[0], piece[1]), cache)
					want := whole.Slice(1, piece[1]-1, piece[1]).Reshape(2, 13)
					assert.InDeltaSlice(t, tensor.Floats(want), tensor.Floats(y), tol, fmt.Sprint(name, d, again, piece))
				}
				assert.Equal(t, 12, cache.Len())
				cache.Truncate(0)
			}
		}
	}
}

// seen is the identity, and remembers what it saw.
type seen struct{ values []float64 }

func (*seen) Name() string { return "seen" }

func (s *seen) Forward(_ *tensor.Ctx, in []tensor.Tensor) tensor.Tensor {
	s.values = tensor.Floats(in[0])
	return in[0]
}

func (*seen) Backward(_ *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) { grads[0] = g }

// Gemma multiplies embeddings by the root of their number, in the type that they have: √20 is 4.46875 in bfloat16.
func TestEmbeddingScale(t *testing.T) {
	for d, scale := range map[tensor.DType]float64{tensor.Float64: math.Sqrt(20), tensor.BFloat16: 4.46875} {
		c := small["gemma2"]
		c.Width = 20
		m, params, dev := made(t, c, d)
		s := &seen{}
		m.Embedded = s
		tape := tensor.NewTape(dev, tensor.NoGrad())
		table := params.ByName("tok.weight").Value
		tensor.Copy(table, tape.Input(table).Affine(0, 3))
		m.Forward(tape.Input(tokens(3, 1)))
		product := scale * 3
		if d == tensor.BFloat16 {
			product = 13.375 // of 13.40625, which lies between it and 13.4375
		}
		require.Equal(t, slices.Repeat([]float64{product}, 60), s.values, d)
	}
}

// collect returns the tokens of Generate.
func collect(m *gpt.Model, dev tensor.Device, prompt []int, s decode.Sampling) []int {
	return slices.Collect(m.Generate(dev, prompt, s))
}

// greedy computes what Generate must return without a temperature: for each token, Forward of the whole text.
func greedy(m *gpt.Model, dev tensor.Device, text []int, n int) (made []int) {
	tape := tensor.NewTape(dev, tensor.NoGrad())
	for range n {
		if len(text) > m.Config.Positions {
			text = text[len(text)/2:]
		}
		ids := make([]int64, len(text))
		for i, id := range text {
			ids[i] = int64(id)
		}
		last := m.Forward(tape.Input(tensor.FromSlice(ids, 1, len(ids)))).Slice(1, len(ids)-1, len(ids))
		next := int(tensor.Data[int64](ops.ArgMax(last.Reshape(13), 0))[0])
		made, text = append(made, next), append(slices.Clone(text), next)
	}
	return made
}

// Generate writes the same text as without a cache, also if it becomes longer than the positions.
func TestGenerate(t *testing.T) {
	for name, c := range small {
		m, _, dev := made(t, c, tensor.Float64)
		for _, prompt := range [][]int{{3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}} {
			want := greedy(m, dev, prompt, 30)
			require.Equal(t, want, collect(m, dev, prompt, decode.Sampling{Tokens: 30}), name)
			require.Greater(t, len(slices.Compact(slices.Sorted(slices.Values(want)))), 1, "a text of one token shows nothing")
			var some []int
			for id := range m.Generate(dev, prompt, decode.Sampling{}) { // without end
				if some = append(some, id); len(some) == 5 {
					break
				}
			}
			require.Equal(t, want[:5], some)
			require.Equal(t, want, collect(m, dev, prompt, decode.Sampling{Tokens: 30, Temperature: 1, TopK: 1}), "the likeliest one of one")
			for id := range m.Generate(dev, prompt, decode.Sampling{Tokens: math.MaxInt}) {
				require.Equal(t, want[0], id)
				break
			}
			require.Equal(t, want, collect(m, dev, prompt, decode.Sampling{Tokens: 30, Temperature: 1, TopP: 1e-9}))
			last := slices.IndexFunc(want, func(id int) bool { return id != want[0] })
			require.Equal(t, want[:last], collect(m, dev, prompt, decode.Sampling{Tokens: 30, End: []int{99, want[last]}}))
			require.Empty(t, collect(m, dev, prompt, decode.Sampling{End: want[:1]}))
		}
	}
}

// The tokens depend on the seed, and on nothing else.
func TestGenerateSeed(t *testing.T) {
	m, _, dev := made(t, small["llama"], tensor.Float32)
	s := decode.Sampling{Tokens: 25, Temperature: 1.5, Seed: 1}
	first := collect(m, dev, []int{1}, s)
	require.Equal(t, first, collect(m, dev, []int{1}, s))
	s.Seed = 2
	require.NotEqual(t, first, collect(m, dev, []int{1}, s))
}

func TestGenerateMisuse(t *testing.T) {
	m, params, dev := made(t, small["gpt2"], tensor.Float32)
	for _, c := range []struct {
		prompt []int
		s      decode.Sampling
		want   string
	}{
		{nil, decode.Sampling{}, "a prompt of 0 tokens: needs at least one, and the model has 12 positions"},
		{make([]int, 13), decode.Sampling{}, "a prompt of 13 tokens"},
		{[]int{1, 13}, decode.Sampling{}, "token 1 of the prompt is 13, and the vocabulary has 13"},
		{[]int{-1}, decode.Sampling{}, "token 0 of the prompt is -1"},
		{[]int{1}, decode.Sampling{Temperature: -1}, "nothing may be negative"},
		{[]int{1}, decode.Sampling{TopP: 1.1}, "TopP is at most 1"},
		{[]int{1}, decode.Sampling{TopK: -1}, "nothing may be negative"},
		{[]int{1}, decode.Sampling{Tokens: -1}, "nothing may be negative"},
	} {
		require.ErrorContains(t, tensor.Try(func() { collect(m, dev, c.prompt, c.s) }), c.want)
	}
	tape := tensor.NewTape(dev, tensor.NoGrad())
	long := tape.Input(tokens(13, 1))
	require.ErrorContains(t, tensor.Try(func() { m.Forward(long) }),
		"13 tokens behind 0: the model has 12 positions")
	cache := m.NewCache(4)
	require.ErrorContains(t, tensor.Try(func() { m.Next(tape.Input(tokens(5, 1)), cache) }),
		"the cache is full: 0 tokens and 5 more, room for 4")
	require.ErrorContains(t, tensor.Try(func() { m.Forward(tape.Input(tensor.FromSlice([]int64{1, 99}, 1, 2))) }), "99")
	nan := params.ByName("tok.weight").Value
	tensor.Data[float32](nan)[0] /= 0
	tensor.Data[float32](nan)[0] *= 0
	require.ErrorContains(t, tensor.Try(func() { collect(m, dev, []int{0}, decode.Sampling{Tokens: 1}) }), "the largest of the logits is NaN")
}

func TestConfigMisuse(t *testing.T) {
	ok := gpt.Config{Kind: gpt.Llama, Vocab: 5, Positions: 4, Width: 12, Layers: 1, Heads: 3}
	_, err := gpt.New(ok)
	require.NoError(t, err)
	for want, change := range map[string]func(c *gpt.Config){
		"gpt: Vocab is 0, and must be positive":                                      func(c *gpt.Config) { c.Vocab = 0 },
		"gpt: Layers is -1, and must be positive":                                    func(c *gpt.Config) { c.Layers = -1 },
		"gpt: 12 features do not divide into 5 heads":                                func(c *gpt.Config) { c.Heads = 5 },
		"gpt: 3 heads of queries cannot share 2 of keys and values":                  func(c *gpt.Config) { c.KVHeads = 2 },
		"gpt: rotary positions need an even number of features":                      func(c *gpt.Config) { c.HeadDim = 3 },
		"gpt: Layers is 1000000000; at most 16384 is allowed":                        func(c *gpt.Config) { c.Layers = 1e9 },
		"gpt: HeadDim is 4611686018427387904; at most 4096":                          func(c *gpt.Config) { c.HeadDim = 1 << 62 },
		"gpt: Kind is 99: there are gpt2, llama, mistral, ":                          func(c *gpt.Config) { c.Kind = 99 },
		"gpt: Experts 4, Top 0, Normalize false and Balance 0: llama has no experts": func(c *gpt.Config) { c.Experts = 4 },
		"gpt: Experts is 0, and must be 1 to 65536; Top is 1, and must be 1 to Experts": func(c *gpt.Config) {
			c.Kind, c.Top = gpt.Mixtral, 1
		},
		"gpt: Experts is 2, and must be 1 to 65536; Top is 3, and must be 1 to Experts": func(c *gpt.Config) {
			c.Kind, c.Experts, c.Top = gpt.Qwen3MoE, 2, 3
		},
		"gpt: Balance is -1, and must not be negative": func(c *gpt.Config) {
			c.Kind, c.Experts, c.Top, c.Balance = gpt.Qwen3MoE, 2, 1, -1
		},
		"gpt: Normalize: the weights of mixtral's experts have the sum 1": func(c *gpt.Config) {
			c.Kind, c.Experts, c.Top, c.Normalize = gpt.Mixtral, 2, 1, true
		},
		"gpt: Window -1 and FullLayers 0 must not be negative":     func(c *gpt.Config) { c.Window = -1 },
		"gpt: Window 4 and FullLayers 0: llama has no such layers": func(c *gpt.Config) { c.Kind, c.Window = gpt.Llama, 4 },
		"gpt: Window 4 and FullLayers 1: mistral has no such layers": func(c *gpt.Config) {
			c.Kind, c.Window, c.FullLayers = gpt.Mistral, 4, 1
		},
		"gpt: FullEvery is -1, and must not be negative": func(c *gpt.Config) { c.Kind, c.FullEvery = gpt.Gemma2, -1 },
		"gpt: AttnSoftCap is NaN, and must not":          func(c *gpt.Config) { c.Kind, c.AttnSoftCap = gpt.Gemma2, math.NaN() },
		"gpt: LogitSoftCap is 2: gemma3_text has none":   func(c *gpt.Config) { c.Kind, c.LogitSoftCap = gpt.Gemma3, 2 },
		"gpt: NoRopeEvery is 2: llama has none":          func(c *gpt.Config) { c.NoRopeEvery = 2 },
		"gpt: Hidden is -2, and must be positive":        func(c *gpt.Config) { c.Hidden = -2 },
		"gpt: Eps 1e-05 and Base -1 must be positive":    func(c *gpt.Config) { c.Base = -1 },
		"gpt: GPT-2 has no rotary positions to scale": func(c *gpt.Config) {
			c.Kind, c.Scaling = gpt.GPT2, nn.RotaryScaling{Type: "linear", Factor: 2}
		},
		`gpt: rotary positions of type "dynamic": there are linear, llama3 and yarn`: func(c *gpt.Config) { c.Scaling.Type = "dynamic" },
		"gpt: rotary positions cannot be scaled by": func(c *gpt.Config) {
			c.Scaling = nn.RotaryScaling{Type: "llama3", Factor: 2, Low: 1, High: 1, Original: 5}
		},
	} {
		c := ok
		change(&c)
		_, err := gpt.New(c)
		require.ErrorContains(t, err, want)
	}
}
