package gpt

import (
	"cmp"
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/moe/router"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
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
	Hidden    int     // features inside the MLP or an expert; 0: 4·Width for GPT-2; for Llama 8/3 of Width, rounded up to a multiple of 32
	Tied      bool    // the head's weight is the table of tokens
	Eps       float64 // of the norms; 0: 1e-5

	Window     int // a token sees this many positions, its own one and those before; 0: all. Not in GPT-2 and Llama
	FullLayers int // the first so many layers see all positions, though there is a Window; only in Qwen2 and Qwen3
	FullEvery  int // each so many-th layer does; 0: none; only in Gemma

	Experts   int     // of each layer; only in Mixtral and Qwen3MoE, as the settings below
	Top       int     // experts of a token
	Normalize bool    // divide the weights of a token's experts by their sum; Mixtral's have the sum 1
	Balance   float64 // weight of each layer's balance loss in training (moe.Config); 0: none

	Base        float64          // of rotary positions; 0: 10,000
	Scaling     nn.RotaryScaling // of the rotary positions
	LocalBase   float64          // in place of Base and Scaling, in layers with a Window; 0: 10,000; only in Gemma 3
	NoRopeEvery int              // each so many-th layer has no positions (NoPE, Kazemnejad et al. 2023); 0: none; only in SmolLM3

	QueryScalar  int     // scores are divided by its square root; 0: HeadDim; only in Gemma
	AttnSoftCap  float64 // of scores, as ops.AttentionScores has it; 0: none; only in Gemma 2
	LogitSoftCap float64 // the same of logits
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
	if c.kind().gemma {
		c.Window, c.QueryScalar = cmp.Or(c.Window, c.Positions), cmp.Or(c.QueryScalar, c.HeadDim)
	}
	if c.kind().localRope {
		c.LocalBase = cmp.Or(c.LocalBase, 10_000)
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
	case c.kind().unscaled && !c.Scaling.None():
		return fmt.Errorf("gpt: rotary positions of type %q: %v has none that are scaled", c.Scaling.Type, c.Kind)
	case !c.kind().rotary && !c.Scaling.None():
		return fmt.Errorf("gpt: GPT-2 has no rotary positions to scale")
	case c.Window < 0 || c.FullLayers < 0:
		return fmt.Errorf("gpt: Window %d and FullLayers %d must not be negative", c.Window, c.FullLayers)
	case c.Window > 0 && c.kind().windows == noWindows, c.FullLayers > 0 && (c.Window == 0 || c.kind().windows != lastLayers):
		return fmt.Errorf("gpt: Window %d and FullLayers %d: %v has no such layers", c.Window, c.FullLayers, c.Kind)
	}
	if err := c.Scaling.Check(); err != nil {
		return fmt.Errorf("gpt: %w", err)
	}
	if err := c.checkOwn(); err != nil {
		return err
	}
	return c.checkExperts()
}

// checkOwn returns an error for settings that only some kinds have.
func (c *Config) checkOwn() error {
	for _, v := range []struct {
		name  string
		value float64
		has   bool
	}{{"FullEvery", float64(c.FullEvery), c.kind().gemma}, {"LocalBase", c.LocalBase, c.kind().localRope},
		{"NoRopeEvery", float64(c.NoRopeEvery), c.kind().noRope}, {"QueryScalar", float64(c.QueryScalar), c.kind().gemma},
		{"AttnSoftCap", c.AttnSoftCap, c.kind().softCaps}, {"LogitSoftCap", c.LogitSoftCap, c.kind().softCaps}} {
		switch {
		case v.value != 0 && !v.has:
			return fmt.Errorf("gpt: %s is %v: %v has none", v.name, v.value, c.Kind)
		case !(v.value >= 0 && v.value <= math.MaxFloat64):
			return fmt.Errorf("gpt: %s is %v, and must not be negative", v.name, v.value)
		}
	}
	return nil
}

func (c *Config) checkExperts() error {
	of := c.kind().experts
	switch {
	case of == nil && (c.Experts != 0 || c.Top != 0 || c.Normalize || c.Balance != 0):
		return fmt.Errorf("gpt: Experts %d, Top %d, Normalize %v and Balance %v: %v has no experts", c.Experts, c.Top, c.Normalize, c.Balance,
			c.Kind)
	case of == nil:
	case c.Experts < 1 || c.Experts > 1<<16 || c.Top < 1 || c.Top > c.Experts:
		return fmt.Errorf("gpt: Experts is %d, and must be 1 to 65536; Top is %d, and must be 1 to Experts", c.Experts, c.Top)
	case !(c.Balance >= 0):
		return fmt.Errorf("gpt: Balance is %v, and must not be negative", c.Balance)
	case c.Normalize && of.Router.Scoring == router.Chosen:
		return fmt.Errorf("gpt: Normalize: the weights of %v's experts have the sum 1", c.Kind)
	}
	return nil
}

// nth reports whether a layer is an n-th one: layers n−1, 2n−1 and so on; 0: none is.
func nth(layer, n int) bool { return n > 0 && (layer+1)%n == 0 }

// local reports whether a layer is one of those with a Window.
func (c *Config) local(layer int) bool {
	return c.Window > 0 && layer >= c.FullLayers && !nth(layer, c.FullEvery)
}

// scores returns how a layer computes scores. A Window that hides nothing is none.
func (c *Config) scores(layer int) (s ops.AttentionScores) {
	if c.local(layer) && c.Window < c.Positions {
		s.Window = c.Window
	}
	if c.QueryScalar != 0 && c.QueryScalar != c.HeadDim {
		s.Scale = 1 / math.Sqrt(float64(c.QueryScalar))
	}
	s.SoftCap = c.AttnSoftCap
	return s
}

// rope returns rotary positions.
func (c *Config) rope(base float64, s nn.RotaryScaling) *nn.Rotary {
	r := nn.NewRotary(c.HeadDim, c.Positions)
	r.Base, r.Scaling = base, s
	return r
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
	if c.kind().gemma {
		n.W, n.ZeroCentered = tensor.NewParam(tensor.Constant(0), features), true
	}
	return n
}

// postNorm returns a norm of what attention or an MLP adds, or nil.
func (c *Config) postNorm() nn.Layer {
	if !c.kind().gemma {
		return nil
	}
	return c.norm()
}

// headNorm returns a norm of each head's queries or keys, or nil.
func (c *Config) headNorm() nn.Layer {
	if !c.kind().qkNorms {
		return nil
	}
	return c.rmsNorm(c.HeadDim)
}
