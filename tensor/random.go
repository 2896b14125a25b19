package tensor

import (
	"math"

	"github.com/ringo-ml/ringo/internal/kernel"
)

// RandomBits returns 64 random bits, which depend only on key and i (Philox4x32-10, Salmon et al. 2011).
func RandomBits(key, i uint64) uint64 { return kernel.Bits(key, i) }

// RandomKey makes a key from a seed and the numbers in parts, which say what the key is for. All randomness in Ringo comes from it.
func RandomKey(seed uint64, parts ...uint64) uint64 { return kernel.Key(seed, parts...) }

// HashName returns a hash (FNV-1a) of the dotted name of a layer or parameter, a part of its random keys.
func HashName(name string) uint64 { return kernel.HashName(name) }

// RandomKey returns the random key of a layer in this step and microbatch. layer is the hash of its name.
func (t *Tape) RandomKey(layer uint64) uint64 {
	key := t.keyOf(layer)
	t.drew, t.drawn = true, true
	if r := t.Recording(); r != nil {
		r.key(t, layer, key)
	}
	return key
}

type initKind uint8

const (
	initConst initKind = iota
	initUniform
	initNormal
)

// Initializer makes the initial values of a parameter. Element i depends only on the key and i, so a shard is made without the whole.
type Initializer struct {
	kind initKind
	a, b float64
}

// Constant fills with v.
func Constant(v float64) Initializer { return Initializer{initConst, v, 0} }

// UniformInit draws from [lo, hi).
func UniformInit(lo, hi float64) Initializer { return Initializer{initUniform, lo, hi} }

// NormalInit draws from the normal distribution.
func NormalInit(mean, std float64) Initializer { return Initializer{initNormal, mean, std} }

// KaimingUniform is PyTorch's default for Linear: uniform in ±1/√fanIn (kaiming_uniform_ with a = √5).
func KaimingUniform(fanIn int) Initializer {
	bound := 1 / math.Sqrt(float64(max(fanIn, 1)))
	return UniformInit(-bound, bound)
}

// Fill writes elements first, first+1, … of the parameter with this key into x, a contiguous float tensor.
func (in Initializer) Fill(x Tensor, key, first uint64) {
	h := x.hdr()
	if !h.dtype.IsFloat() || h.ld != 0 {
		fail("Initializer.Fill", these(h), "needs a contiguous float tensor")
	}
	host := x
	if !h.st.dev.Host() {
		host = New(hostDevice, h.dtype, h.n)
	}
	for i, p := 0, host.Ptr(); i < h.n; i++ {
		storeFloat(p, h.dtype, i, in.at(key, first+uint64(i)))
	}
	if host != x {
		Copy(x, host)
	}
}

func (in Initializer) at(key, i uint64) float64 {
	switch in.kind {
	case initUniform:
		return in.a + float64((in.b-in.a)*kernel.Uniform(key, i))
	case initNormal:
		return in.a + float64(in.b*kernel.Normal(key, i))
	}
	return in.a
}
