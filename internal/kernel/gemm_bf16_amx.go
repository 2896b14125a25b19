package kernel

// emulatedAMX is the engine of AMX in plain Go.
func emulatedAMX() *engineBF16 {
	return tileEngine(emulatedDot(), tileKernels{multiplyTiles, multiplyRoundTiles, packBlocks, scaleTile})
}

// multiplyTiles computes what TDPBF16PS does (Intel SDM, volume 2). It takes 16
// pairs at a time, and makes one chain of fused multiply-adds for the even and one
// for the odd elements; then the sum of both is added to the result. Subnormal
// numbers count as zeros.
func multiplyTiles(tiles, h, blocks int, a []BF16, as, step, next int, b, sums []float32, first bool) {
	for t := range tiles {
		for i := range h {
			for j := range tileRows {
				s := &sums[t*tileSums+i*tileRows+j]
				if first {
					*s = 0
				}
				for p := range blocks {
					var even, odd float32
					for q := range tileSide {
						x, y := a[t*next+p*step+i*as+2*q:], unpair(b[(p*tileSide+q)*tileRows+j])
						even = fmaBF16(even, x[0], y[0])
						odd = fmaBF16(odd, x[1], y[1])
					}
					*s = daz(*s + daz(even+odd))
				}
			}
		}
	}
}

// fmaBF16 is c + a*b as the instructions for bfloat16 compute it.
func fmaBF16(c float32, a, b BF16) float32 {
	return daz(fma32(daz(a.Float32()), daz(b.Float32()), c))
}

// multiplyRoundTiles is multiplyTiles for whole tiles. Then it adds the bias and
// rounds.
func multiplyRoundTiles(tiles, blocks int, a []BF16, as, step, next int, b, sums []float32, first bool, dst []BF16, ds, n int,
	bias []float32) {
	multiplyTiles(tiles, tileRows, blocks, a, as, step, next, b, sums, first)
	roundTile(dst, ds, sums, tileRows, tiles*tileRows, n, bias)
}

// packBlocks packs rows of k elements as blocks of 32 elements, followed by zeros.
func packBlocks(dst []float32, src []BF16, ss, rows, k int) {
	to := halves(dst)
	for i := range rows {
		for b := 0; b < k; b += tileRows {
			row := to[b*tileRows+i*tileRows:][:tileRows]
			clear(row[copy(row, src[i*ss+b:i*ss+min(b+tileRows, k)]):])
		}
	}
}

// scaleTile computes C[0:h, 0:n] = alpha*sums or, if add is set, adds that to C.
func scaleTile(c []float32, cs int, sums []float32, h, n int, alpha float32, add bool) {
	for i := range h {
		for j := range n {
			if s, to := sums[i*tileRows+j], &c[i*cs+j]; add {
				*to = fma32(alpha, s, *to)
			} else {
				*to = alpha * s
			}
		}
	}
}
