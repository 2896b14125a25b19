package decode

import (
	"github.com/ringo-ml/ringo/tensor/ops"
)

// Cache holds the keys and values of all layers for the tokens that a model has seen, so that each new token costs one token's work. A nil
// *Cache holds none.
type Cache struct{ layers []*ops.KVCache }

// NewCache returns an empty cache of so many layers, for sequences of up to so many tokens.
func NewCache(layers, tokens int) *Cache {
	c := &Cache{layers: make([]*ops.KVCache, layers)}
	for i := range c.layers {
		c.layers[i] = ops.NewKVCache(tokens)
	}
	return c
}

// Len returns the number of tokens of each sequence in the cache.
func (c *Cache) Len() int {
	if c == nil || len(c.layers) == 0 {
		return 0
	}
	return c.layers[0].Len()
}

// Truncate keeps the first n tokens.
func (c *Cache) Truncate(n int) {
	if n != c.Len() {
		for _, l := range c.layers {
			l.Truncate(n)
		}
	}
}

// Layer returns the part for a layer; nil if c is nil.
func (c *Cache) Layer(i int) *ops.KVCache {
	if c == nil {
		return nil
	}
	return c.layers[i]
}
