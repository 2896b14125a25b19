package kernel

import (
	"math"
	"math/bits"
)

// philox returns block number ctr of the Philox4x32-10 generator under key: Salmon, Moraes, Dror and Shaw,
// "Parallel random numbers: as easy as 1, 2, 3", SC 2011. The 128-bit counter is (c0, c1, c2, c3).
func philox(key uint64, c0, c1, c2, c3 uint32) (uint32, uint32, uint32, uint32) {
	k0, k1 := uint32(key), uint32(key>>32)
	for range 10 {
		p0, p1 := uint64(c0)*0xD2511F53, uint64(c2)*0xCD9E8D57
		c0, c1, c2, c3 = uint32(p1>>32)^c1^k0, uint32(p1), uint32(p0>>32)^c3^k1, uint32(p0)
		k0, k1 = k0+0x9E3779B9, k1+0xBB67AE85
	}
	return c0, c1, c2, c3
}

// philoxKeys returns the two keys of each round.
func philoxKeys(key uint64) (keys [20]uint64) {
	k0, k1 := uint32(key), uint32(key>>32)
	for i := 0; i < len(keys); i += 2 {
		keys[i], keys[i+1] = uint64(k0), uint64(k1)
		k0, k1 = k0+0x9E3779B9, k1+0xBB67AE85
	}
	return keys
}

// block returns the two 64-bit halves of Philox block n under key; the counter is (n, 0).
func block(key, n uint64) (lo, hi uint64) {
	a, b, c, d := philox(key, uint32(n), uint32(n>>32), 0, 0)
	return uint64(a) | uint64(b)<<32, uint64(c) | uint64(d)<<32
}

// Bits returns 64 random bits, a pure function of key and index: half index%2 of Philox block index/2 (low half first).
// Every purpose needs a key of its own (see [Key]): Uniform, Normal and Dropout read the same blocks.
func Bits(key, index uint64) uint64 {
	lo, hi := block(key, index>>1)
	if index&1 != 0 {
		return hi
	}
	return lo
}

// Uniform returns a float64 in [0, 1): the upper 53 bits of Bits(key, index).
func Uniform(key, index uint64) float64 { return unit(Bits(key, index)) }

// unit maps 64 random bits to [0, 1).
func unit(b uint64) float64 { return float64(float64(b>>11) * 0x1p-53) }

// Normal returns a standard normal variate by Box and Muller's transform (1958), cosine branch, from the two halves
// of Philox block index.
func Normal(key, index uint64) float64 {
	lo, hi := block(key, index)
	r := math.Sqrt(-2 * math.Log(1-unit(lo))) // 1-u lies in (0, 1]: the logarithm is finite
	return r * math.Cos(2*math.Pi*unit(hi))
}

// mix is the output function of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), a bijection.
func mix(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// Key derives a generator key from a seed and the parts that name a use of it, such as step, microbatch and layer
// ([HashName]). The order of the parts matters. It does not allocate.
func Key(seed uint64, parts ...uint64) uint64 {
	k := mix(seed)
	for _, p := range parts {
		k = mix(bits.RotateLeft64(k, 23) ^ mix(p))
	}
	return k
}

// HashName is the 64-bit FNV-1a hash of name, for use as a part of [Key].
func HashName(name string) uint64 {
	h := uint64(0xCBF29CE484222325)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 0x100000001B3
	}
	return h
}
