package ops

import "github.com/ringo-ml/ringo/tensor"

// Cached returns the memory of c, and for how many positions it is.
func Cached(c *KVCache) (k, v tensor.Tensor, positions int) { return c.k, c.v, c.positions }
