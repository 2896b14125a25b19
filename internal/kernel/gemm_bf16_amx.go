package kernel

import "unsafe"

// The micro-kernels of AMX multiply tiles of 16 rows of 16 pairs. A panel of A is
// packed as [h][words], a panel of B as [words][32]. The words of a block of K are
// padded with zeros to a multiple of 16.

const tileSide = 16

// amxEngine makes the engine for a micro-kernel of tiles. It packs as e does, an
// engine that sums pairs.
func amxEngine(e *engineBF16, tile func(h, n, k int, a, b []float32, bs int, c []float32, cs int, alpha float32, add bool)) *engineBF16 {
	x, tiles := *e, *e.engine
	tiles.rows, tiles.cols, tiles.narrow, tiles.crop = 2*tileSide, 2*tileSide, false, true
	x.engine, x.unit, x.product = &tiles, tileSide, tile
	x.packB = [2]packer{zeroFilled(e.packB[0]), zeroFilled(e.packB[1])}
	x.packA = [2]packer{copyPairs, func(dst []float32, _ int, src []BF16, ss, w, k int, ws []float32) {
		words := tileWords(k)
		x.packB[0](ws, tiles.cols, src, ss, w, k, nil)
		tiles.packTransposed(dst, words, ws, tiles.cols, words, w)
	}}
	return &x
}

// tileWords is the number of words for k elements, with padding.
func tileWords(k int) int { return (k + 2*tileSide - 1) / (2 * tileSide) * tileSide }

// zeroFilled packs as p does, followed by zeros.
func zeroFilled(p packer) packer {
	return func(dst []float32, ds int, src []BF16, ss, w, k int, ws []float32) {
		clear(dst[(k+1)/2*ds : tileWords(k)*ds])
		p(dst, ds, src, ss, w, k, ws)
	}
}

// copyPairs copies w rows of k elements, followed by zeros.
func copyPairs(dst []float32, _ int, src []BF16, ss, w, k int, _ []float32) {
	n := 2 * tileWords(k)
	pairs := unsafe.Slice((*BF16)(unsafe.Pointer(&dst[0])), w*n)
	for i := range w {
		row := pairs[i*n : (i+1)*n]
		clear(row[copy(row, src[i*ss:i*ss+k]):])
	}
}

// tileConfig is the argument of LDTILECFG: palette 1, then the bytes of a row and
// the number of rows of each of eight tiles. Tiles 0 to 3 are the sums (two side by
// side, two below them), 4 and 5 are of A, 6 and 7 of B.
type tileConfig [64]byte

const (
	tileRowBytes = 16 // offset of the bytes of a row, two for each tile
	tileRows     = 48 // offset of the numbers of rows
)

func (c *tileConfig) set(rows int, tiles ...int) {
	for _, t := range tiles {
		c[tileRowBytes+2*t], c[tileRows+t] = 4*tileSide, byte(rows)
	}
}

// tileSums are the 32 x 32 sums of a micro-kernel.
type tileSums [4 * tileSide * tileSide]float32

// tileProduct is the micro-kernel of AMX, with its instructions or emulated. Both
// are called directly: calls through a function value would move config and sums to
// the heap.
func tileProduct(emulated bool, h, n, k int, a, b []float32, bs int, c []float32, cs int, alpha float32, add bool) {
	config := tileConfig{0: 1}
	if h > tileSide {
		config.set(h-tileSide, 2, 3, 5)
	}
	config.set(min(h, tileSide), 0, 1, 4)
	config.set(tileSide, 6, 7)
	var sums tileSums
	if emulated {
		emulateTiles(&config, k, a, b, bs, &sums)
		scaleTile(h, n, c, cs, &sums, alpha, add)
	} else {
		tilesAMX(&config, h, k, a, b, bs, &sums)
		scaleTileAMX(h, n, c, cs, &sums, alpha, add)
	}
}

func productAMX(h, n, k int, a, b []float32, bs int, c []float32, cs int, alpha float32, add bool) {
	tileProduct(false, h, n, k, a, b, bs, c, cs, alpha, add)
}

// emulatedAMX is the engine of AMX in plain Go.
func emulatedAMX() *engineBF16 {
	return amxEngine(emulatedDot(), func(h, n, k int, a, b []float32, bs int, c []float32, cs int, alpha float32, add bool) {
		tileProduct(true, h, n, k, a, b, bs, c, cs, alpha, add)
	})
}

// emulateTiles computes what TDPBF16PS does (Intel SDM, volume 2). It takes 16
// pairs at a time, and makes one chain of fused multiply-adds for the even and one
// for the odd elements; then the sum of both is added to the result. Subnormal
// numbers count as zeros.
func emulateTiles(config *tileConfig, k int, a, b []float32, bs int, sums *tileSums) {
	for i := range int(config[tileRows] + config[tileRows+2]) {
		for j := range 2 * tileSide {
			s := &sums[i*2*tileSide+j]
			for p := 0; p < k; p += tileSide {
				var even, odd float32
				for q := p; q < p+tileSide; q++ {
					x, y := unpair(a[i*k+q]), unpair(b[q*bs+j])
					even = DotBF16(even, [2]BF16{x[0]}, [2]BF16{y[0]})
					odd = DotBF16(odd, [2]BF16{x[1]}, [2]BF16{y[1]})
				}
				*s = daz(*s + daz(even+odd))
			}
		}
	}
}

// scaleTile computes C = alpha*sums or, if add is set, C += alpha*sums.
func scaleTile(h, n int, c []float32, cs int, sums *tileSums, alpha float32, add bool) {
	for i := range h {
		for j := range n {
			if s, to := sums[i*2*tileSide+j], &c[i*cs+j]; add {
				*to = fma32(alpha, s, *to)
			} else {
				*to = alpha * s
			}
		}
	}
}
