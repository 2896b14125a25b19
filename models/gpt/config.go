package gpt

import (
	"fmt"

	"github.com/ringo-ml/ringo/nn"
)

// Kind is the architecture of a model.
type Kind uint8

const (
	// GPT2 has learned positions, LayerNorm, biases, and an MLP with GELU (its approximation by tanh).
	GPT2 Kind = iota
	// Llama has rotary positions, RMSNorm, no biases, and an MLP with SwiGLU. Heads of queries may share keys and values.
	Llama
)

// String returns "gpt2" or "llama", as model_type in config.json.
func (k Kind) String() string {
	if k < 2 {
		return [...]string{"gpt2", "llama"}[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Config is the kind and size of a model. Vocab, Positions, Width, Layers and Heads must be set.
type Config struct {
	Kind      Kind
	Vocab     int // tokens that there are
	Positions int // longest sequence
	Width     int // features of a token
	Layers    int
	Heads     int     // of queries
	KVHeads   int     // of keys and values; divides Heads; 0: Heads
	HeadDim   int     // features of a head; 0: Width/Heads
	Hidden    int     // features inside the MLP; 0: 4·Width for GPT-2, and for Llama 8/3 of Width, rounded up to a multiple of 32
	Tied      bool    // the head is the table of tokens
	Eps       float64 // of the norms; 0: 1e-5

	Base    float64 // of Llama's rotary positions; 0: 10,000
	Scaling Scaling // of these
}

// Scaling changes rotary positions for sequences longer than a model was first trained on. The zero Scaling changes nothing.
type Scaling struct {
	Type      string  // "linear" or "llama3"; "" or "default": none
	Factor    float64 // positions are so many times denser
	Low, High float64 // of llama3: pairs that turn less often than Low in Original positions are scaled, more often than High not
	Original  int
}

func (s Scaling) none() bool { return s.Type == "" || s.Type == "default" }

func (s Scaling) check() error {
	switch {
	case s.none():
		return nil
	case s.Type != "linear" && s.Type != "llama3":
		return fmt.Errorf("gpt: rotary positions of type %q: there are linear and llama3", s.Type)
	case !(s.Factor >= 1 && s.Factor < 1e6) || s.Type == "llama3" && !(s.Original > 0 && s.Low > 0 && s.High > s.Low):
		return fmt.Errorf("gpt: rotary positions cannot be scaled by %+v", s)
	}
	return nil
}

// angle is what nn.Rotary wants.
func (s Scaling) angle() func(angle float64) float64 {
	switch s.Type {
	case "linear":
		return nn.LinearScaling(s.Factor)
	case "llama3":
		return nn.Llama3Scaling(s.Factor, s.Low, s.High, s.Original)
	}
	return nil
}

// check fills in what is 0, and refuses what cannot be.
func (c *Config) check() error {
	set := func(v *int, to int) {
		if *v == 0 {
			*v = to
		}
	}
	if c.Kind > Llama {
		return fmt.Errorf("gpt: Kind is %d, not GPT2 or Llama", c.Kind)
	}
	for _, v := range []struct {
		name string
		n    int
	}{{"Vocab", c.Vocab}, {"Positions", c.Positions}, {"Width", c.Width}, {"Layers", c.Layers}, {"Heads", c.Heads}} {
		if v.n < 1 {
			return fmt.Errorf("gpt: %s is %d, and must be positive", v.name, v.n)
		}
	}
	set(&c.KVHeads, c.Heads)
	if c.HeadDim == 0 && c.Width%c.Heads != 0 {
		return fmt.Errorf("gpt: %d features do not divide into %d heads", c.Width, c.Heads)
	}
	set(&c.HeadDim, c.Width/c.Heads)
	if c.Kind == Llama {
		set(&c.Hidden, (8*c.Width/3+31)/32*32)
	}
	set(&c.Hidden, 4*c.Width)
	for _, v := range []struct {
		name    string
		n, most int
	}{{"Vocab", c.Vocab, 1 << 26}, {"Positions", c.Positions, 1 << 24}, {"Width", c.Width, 1 << 20}, {"Layers", c.Layers, 1 << 14}, {"Heads", c.Heads, 1 << 12},
		{"KVHeads", c.KVHeads, 1 << 12}, {"HeadDim", c.HeadDim, 1 << 12}, {"Hidden", c.Hidden, 1 << 22}} {
		if v.n > v.most {
			return fmt.Errorf("gpt: %s is %d; at most %d is allowed", v.name, v.n, v.most)
		}
	}
	if c.Eps == 0 {
		c.Eps = 1e-5
	}
	if c.Base == 0 {
		c.Base = 10_000
	}
	switch {
	case c.KVHeads < 1 || c.Heads%c.KVHeads != 0:
		return fmt.Errorf("gpt: %d heads of queries cannot share %d of keys and values", c.Heads, c.KVHeads)
	case c.HeadDim < 1 || c.Hidden < 1 || !(c.Eps > 0) || !(c.Base > 0):
		return fmt.Errorf("gpt: HeadDim %d, Hidden %d, Eps %v and Base %v must be positive", c.HeadDim, c.Hidden, c.Eps, c.Base)
	case c.Kind == Llama && c.HeadDim%2 != 0:
		return fmt.Errorf("gpt: rotary positions need an even number of features in a head, not %d", c.HeadDim)
	case c.Kind == GPT2 && !c.Scaling.none():
		return fmt.Errorf("gpt: GPT-2 has no rotary positions to scale")
	}
	return c.Scaling.check()
}

// norm returns a norm of the kind.
func (c *Config) norm() nn.Layer {
	if c.Kind == Llama {
		n := nn.NewRMSNorm(c.Width)
		n.Eps = c.Eps
		return n
	}
	n := nn.NewLayerNorm(c.Width)
	n.Eps = c.Eps
	return n
}
