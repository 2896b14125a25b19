package gpt

import (
	"cmp"
	"fmt"

	"github.com/ringo-ml/ringo/nn"
)

// Config is the kind and size of a model. Vocab, Positions, Width, Layers and Heads must be set.
type Config struct {
	Kind      Kind
	Vocab     int // number of tokens
	Positions int // longest sequence
	Width     int // features of a token
	Layers    int
	Heads     int     // of queries
	KVHeads   int     // of keys and values; divides Heads; 0: Heads
	HeadDim   int     // features of a head; 0: Width/Heads
	Hidden    int     // features inside the MLP; 0: 4·Width for GPT-2; for Llama 8/3 of Width, rounded up to a multiple of 32
	Tied      bool    // the head's weight is the table of tokens
	Eps       float64 // of the norms; 0: 1e-5

	Window     int // a token sees this many positions, its own one and those before; 0: all. Not in GPT-2 and Llama
	FullLayers int // the first so many layers see all positions, though there is a Window; only in Qwen2 and Qwen3

	Base        float64          // of rotary positions; 0: 10,000
	Scaling     nn.RotaryScaling // of the rotary positions
	NoRopeEvery int              // each so many-th layer has no positions (NoPE, Kazemnejad et al. 2023); 0: none; only in SmolLM3
}

// check sets defaults, and returns an error for impossible sizes.
func (c *Config) check() error {
	if int(c.Kind) >= len(kinds) {
		return fmt.Errorf("gpt: Kind is %d: there are %s", c.Kind, allKinds())
	}
	c.KVHeads, c.Eps, c.Base = cmp.Or(c.KVHeads, c.Heads), cmp.Or(c.Eps, 1e-5), cmp.Or(c.Base, 10_000)
	if c.Hidden == 0 && c.kind().rotary {
		c.Hidden = (8*c.Width/3 + 31) / 32 * 32
	}
	c.Hidden = cmp.Or(c.Hidden, 4*c.Width)
	if c.HeadDim == 0 && c.Width > 0 && c.Heads > 0 {
		if c.Width%c.Heads != 0 {
			return fmt.Errorf("gpt: %d features do not divide into %d heads", c.Width, c.Heads)
		}
		c.HeadDim = c.Width / c.Heads
	}
	for _, v := range []struct {
		name    string
		n, most int
	}{{"Vocab", c.Vocab, 1 << 26}, {"Positions", c.Positions, 1 << 24}, {"Width", c.Width, 1 << 20}, {"Layers", c.Layers, 1 << 14},
		{"Heads", c.Heads, 1 << 12}, {"KVHeads", c.KVHeads, 1 << 12}, {"HeadDim", c.HeadDim, 1 << 12}, {"Hidden", c.Hidden, 1 << 22}} {
		if v.n < 1 {
			return fmt.Errorf("gpt: %s is %d, and must be positive", v.name, v.n)
		}
		if v.n > v.most {
			return fmt.Errorf("gpt: %s is %d; at most %d is allowed", v.name, v.n, v.most)
		}
	}
	switch {
	case c.Heads%c.KVHeads != 0:
		return fmt.Errorf("gpt: %d heads of queries cannot share %d of keys and values", c.Heads, c.KVHeads)
	case !(c.Eps > 0) || !(c.Base > 0):
		return fmt.Errorf("gpt: Eps %v and Base %v must be positive", c.Eps, c.Base)
	case c.kind().rotary && c.HeadDim%2 != 0:
		return fmt.Errorf("gpt: rotary positions need an even number of features in a head, not %d", c.HeadDim)
	case c.Kind == Phi3 && !c.Scaling.None():
		return fmt.Errorf("gpt: rotary positions of type %q: Phi-3 has none that are scaled", c.Scaling.Type)
	case !c.kind().rotary && !c.Scaling.None():
		return fmt.Errorf("gpt: GPT-2 has no rotary positions to scale")
	case c.NoRopeEvery < 0 || c.NoRopeEvery > 0 && c.Kind != SmolLM3:
		return fmt.Errorf("gpt: NoRopeEvery is %d: %v has no such layers", c.NoRopeEvery, c.Kind)
	case c.Window < 0 || c.FullLayers < 0:
		return fmt.Errorf("gpt: Window %d and FullLayers %d must not be negative", c.Window, c.FullLayers)
	case c.Window > 0 && c.kind().windows == noWindows, c.FullLayers > 0 && (c.Window == 0 || c.kind().windows != lastLayers):
		return fmt.Errorf("gpt: Window %d and FullLayers %d: %v has no such layers", c.Window, c.FullLayers, c.Kind)
	}
	if err := c.Scaling.Check(); err != nil {
		return fmt.Errorf("gpt: %w", err)
	}
	return nil
}

// nth reports whether a layer is an n-th one: layers n−1, 2n−1 and so on; 0: none is.
func nth(layer, n int) bool { return n > 0 && (layer+1)%n == 0 }

// windowOf returns the Window of a layer, 0 if it hides nothing.
func (c *Config) windowOf(layer int) int {
	if layer < c.FullLayers || c.Window >= c.Positions {
		return 0
	}
	return c.Window
}

// norm returns a norm of the model's kind.
func (c *Config) norm() nn.Layer {
	if c.kind().rotary {
		return c.rmsNorm(c.Width)
	}
	n := nn.NewLayerNorm(c.Width)
	n.Eps = c.Eps
	return n
}

func (c *Config) rmsNorm(features int) *nn.RMSNorm {
	n := nn.NewRMSNorm(features)
	n.Eps = c.Eps
	return n
}

// headNorm returns a norm of each head's queries or keys, or nil.
func (c *Config) headNorm() nn.Layer {
	if !c.kind().qkNorms {
		return nil
	}
	return c.rmsNorm(c.HeadDim)
}
