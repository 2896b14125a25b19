package kernel

import "math"

// DotBF16 returns c + a[1]*b[1] + a[0]*b[0], computed like the instruction
// VDPBF16PS (Intel SDM, volume 2): two fused multiply-adds, the odd element first,
// each rounded to nearest even. Subnormal operands count as zeros, and subnormal
// results become zeros.
func DotBF16(c float32, a, b [2]BF16) float32 {
	c = daz(c)
	for i := 1; i >= 0; i-- {
		c = daz(fma32(daz(a[i].Float32()), daz(b[i].Float32()), c))
	}
	return c
}

// daz replaces a subnormal number by a zero of the same sign.
func daz(x float32) float32 {
	if u := math.Float32bits(x); u&0x7f800000 == 0 {
		return math.Float32frombits(u & 0x80000000)
	}
	return x
}

// fma32 is a*b + c, rounded once. The product is exact in float64. The sum in
// float64 is rounded to odd, so the second rounding is correct (Boldo and Melquiond
// 2008).
func fma32(a, b, c float32) float32 {
	p, z := float64(a)*float64(b), float64(c)
	s := p + z
	v := s - p
	e := (p - (s - v)) + (z - v) // the exact rounding error of the sum
	if u := math.Float64bits(s); e != 0 && e == e && u&1 == 0 && !math.IsInf(s, 0) {
		if (e > 0) == (s > 0) {
			u++
		} else {
			u--
		}
		s = math.Float64frombits(u)
	}
	return float32(s)
}

// dotKC is the length of the blocks of K, in pairs, of the engines that sum pairs.
const dotKC = 384

// dotEngine makes the engine of micro-kernels whose elements are pairs.
func dotEngine(tiles *engine[float32], rows, columns packer) *engineBF16 {
	return &engineBF16{engine: tiles, pair: 2, packA: [2]packer{columns, rows}, packB: [2]packer{rows, columns}, product: tiles.packedTile,
		round: roundTile}
}

// emulatedDot is the engine of AVX512-BF16 in plain Go.
func emulatedDot() *engineBF16 {
	tiles := genericEngine[float32]()
	tiles.kc = dotKC
	e := dotEngine(tiles, interleave, transposePairs)
	e.product = func(h, n, k int, a operand[float32], b []float32, _ int, c []float32, cs int, alpha float32, add bool) {
		for i := range h {
			for j := range n {
				var dot float32
				for p := range k {
					dot = DotBF16(dot, unpair(*a.after(p*h + i)), unpair(b[p*4+j]))
				}
				if s := &c[i*cs+j]; add {
					*s = fma32(alpha, dot, *s)
				} else {
					*s = alpha * dot
				}
			}
		}
	}
	return e
}

// pairOf puts two elements into a word, the first in the lower half.
func pairOf(even, odd BF16) float32 {
	return math.Float32frombits(uint32(odd)<<16 | uint32(even))
}

func unpair(w float32) [2]BF16 {
	u := math.Float32bits(w)
	return [2]BF16{BF16(u), BF16(u >> 16)}
}

// interleave writes rows of pairs, of which row i holds w elements of rows 2*i
// and 2*i+1 of src.
func interleave(dst []float32, ds int, src []BF16, ss, w, k int, _ []float32) {
	for p := 0; p < k; p += 2 {
		even, row := src[p*ss:p*ss+w], dst[p/2*ds:]
		for j := range even {
			var odd BF16
			if p+1 < k {
				odd = src[(p+1)*ss+j]
			}
			row[j] = pairOf(even[j], odd)
		}
	}
}

// transposePairs writes the transpose of w rows of pairs.
func transposePairs(dst []float32, ds int, src []BF16, ss, w, k int, _ []float32) {
	for i := range w {
		row := src[i*ss : i*ss+k]
		for p := 0; p < k; p += 2 {
			var odd BF16
			if p+1 < k {
				odd = row[p+1]
			}
			dst[p/2*ds+i] = pairOf(row[p], odd)
		}
	}
}

// roundTile rounds h rows of n sums, after adding the bias.
func roundTile(dst []BF16, ds int, src []float32, ss, h, n int, bias []float32) {
	for i := range h {
		row := dst[i*ds : i*ds+n]
		for j := range row {
			row[j] = ToBF16(daz(src[i*ss+j] + bias[j]))
		}
	}
}
