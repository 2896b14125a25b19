package bert

import (
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// Pooling says how a text's vector is made of those of its tokens.
type Pooling uint8

const (
	Mean Pooling = iota // of all tokens, without the padding
	CLS                 // that of the first token, [CLS]
)

// Config is the size of an encoder, by the names of config.json, and what sentence-transformers does behind it.
type Config struct {
	Vocab     int     `json:"vocab_size"`
	Positions int     `json:"max_position_embeddings"` // longest text
	Types     int     `json:"type_vocab_size"`         // of tokens; a text has those of type 0
	Width     int     `json:"hidden_size"`
	Layers    int     `json:"num_hidden_layers"`
	Heads     int     `json:"num_attention_heads"` // divides Width
	Hidden    int     `json:"intermediate_size"`   // features inside the MLP
	Eps       float64 `json:"layer_norm_eps"`

	Longest   int     `json:"-"` // tokens of a text that count, with [CLS] and [SEP]; 0: Positions
	Pooling   Pooling `json:"-"`
	Normalize bool    `json:"-"` // vectors have the length 1
}

// check sets defaults, and returns an error for impossible sizes.
func (c *Config) check() error {
	if c.Longest == 0 {
		c.Longest = c.Positions
	}
	for _, v := range []struct {
		name    string
		n, most int
	}{{"Vocab", c.Vocab, 1 << 26}, {"Positions", c.Positions, 1 << 24}, {"Types", c.Types, 1 << 16}, {"Width", c.Width, 1 << 20},
		{"Layers", c.Layers, 1 << 14}, {"Heads", c.Heads, 1 << 12}, {"Hidden", c.Hidden, 1 << 22}} {
		if v.n < 1 || v.n > v.most {
			return fmt.Errorf("bert: %s is %d, and must be 1 to %d", v.name, v.n, v.most)
		}
	}
	switch {
	case c.Width%c.Heads != 0:
		return fmt.Errorf("bert: %d features do not divide into %d heads", c.Width, c.Heads)
	case !(c.Eps > 0 && c.Eps < 1):
		return fmt.Errorf("bert: Eps is %v, and must be between 0 and 1", c.Eps)
	case c.Longest < 3 || c.Longest > c.Positions:
		return fmt.Errorf("bert: Longest is %d, and must be 3 to Positions, %d", c.Longest, c.Positions)
	case c.Pooling > CLS:
		return fmt.Errorf("bert: Pooling is %d: there are Mean and CLS", c.Pooling)
	}
	return nil
}

// memory returns how many bytes the parameters take in float32, with the layers themselves.
func (c *Config) memory() int64 {
	const layer = 8 << 10
	width := float64(c.Width)
	block := float64(4*width*float64(4*c.Width+2*c.Hidden)) + layer
	all := float64(4*width*float64(c.Vocab+c.Positions+c.Types+c.Width)) + float64(float64(c.Layers)*block)
	return int64(min(all, math.MaxInt64/2))
}

func (c *Config) norm() *nn.LayerNorm {
	n := nn.NewLayerNorm(c.Width)
	n.Eps = c.Eps
	return n
}

var normal = tensor.NormalInit(0, 0.02)

func linear(in, out int) *nn.Linear {
	return &nn.Linear{W: tensor.NewParam(normal, out, in), B: tensor.NewParam(tensor.Constant(0), out)}
}

func table(n, width int) *nn.Embedding { return &nn.Embedding{W: tensor.NewParam(normal, n, width)} }
