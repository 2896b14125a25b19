package kernel

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// defined computes g as tiles do, by the definition: one sum over all blocks of 16
// pairs of K, whatever the blocks of the engine.
func defined(g *GemmBF16) {
	for i := range g.M {
		for j := range g.N {
			var s float32
			for k := 0; k < g.K; k += tileRows {
				var even, odd float32
				for p := k; p < min(k+tileRows, g.K); p += 2 {
					a, b := g.pair(g.at, i, p), g.pair(g.bt, j, p)
					even, odd = fmaBF16(even, a[0], b[0]), fmaBF16(odd, a[1], b[1])
				}
				s = daz(s + daz(even+odd))
			}
			if g.Beta != 0 {
				g.put(i, j, fma32(g.Alpha, s, g.Beta*g.get(i, j)))
			} else {
				g.put(i, j, g.Alpha*s)
			}
		}
	}
}

// Any shape, cut anywhere, has the bits of the definition: they depend neither on
// blocks of K, nor on the other rows, nor on which operand gives a tile its rows.
func TestTilesHaveTheBitsOfTheirDefinition(t *testing.T) {
	base, r := emulatedDot(), rand.New(rand.NewPCG(3, 4))
	base.along = make([]alongKernel[float32, uint16], fewRows) // which tiles must not use: they have other bits
	e := tileEngine(base, *emulatedAMX().tiles)
	ws, done := workspaceBF16(e)
	defer done()
	turned := [2]bool{}
	for i := range many(t, 24, 60) {
		m, n, k := 1+r.IntN(70), 1+r.IntN(70), 1+r.IntN(200)
		if i%6 == 5 { // more than a call multiplies, or than is packed at a time
			m, n, k = 1+r.IntN(9), 1+r.IntN(40), 2*shortKC+r.IntN(2*tileSpan)
		}
		c := newBF16(uint64(i), i%2 == 0, i%4 < 2, m, n, k, r.IntN(3), i%3 == 0, realNumber).withBias(realNumber)
		c.g.Alpha, c.g.Beta = []float32{1, 0.5}[i/4%2], []float32{0, 1, 0.3}[i/8%3]
		if turnPays(sideBF16{along: !c.g.TransA}, sideBF16{along: c.g.TransB}, m, n, k) {
			turned[1] = true
		} else {
			turned[0] = true
		}
		want := c.result(defined)
		requireSameBits(t, want, c.run(t, e), c)
		i0, j0 := r.IntN(m), r.IntN(n)
		requireSameBits(t, want, c.result(func(g *GemmBF16) {
			for _, rows := range [][2]int{{0, i0}, {i0, m}} {
				e.block(g, inner(ws), rows[0], rows[1], 0, j0)
				e.block(g, inner(ws), rows[0], rows[1], j0, n)
			}
		}), c)
	}
	require.Equal(t, [2]bool{true, true}, turned, "both ways must be tested")
}

// multiplySparse is multiplyTiles for integers. It skips zeros of a.
func multiplySparse(tiles, h, blocks int, a []BF16, as, step, next int, b, sums []float32, first bool) {
	for t := range tiles {
		for i := range h {
			row := sums[t*tileSums+i*tileRows:][:tileRows]
			if first {
				clear(row)
			}
			for k := range blocks * tileRows {
				x := a[t*next+k/tileRows*step+i*as+k%tileRows]
				if x == 0 {
					continue
				}
				for j := range row {
					row[j] += x.Float32() * unpair(b[k/2*tileRows+j])[k%2].Float32()
				}
			}
		}
	}
}

func multiplyRoundSparse(tiles, blocks int, a []BF16, as, step, next int, b, sums []float32, first bool, dst []BF16, ds, n int,
	bias []float32) {
	multiplySparse(tiles, tileRows, blocks, a, as, step, next, b, sums, first)
	roundTile(dst, ds, sums, tileRows, tiles*tileRows, n, bias)
}

// More rows than a call multiplies, more words than are packed at a time, and panels
// that are kept for the next rows or packed again. A is sparse, to save time.
func TestTilesBeyondTheirBlocks(t *testing.T) {
	e := tileEngine(emulatedDot(), tileKernels{multiplySparse, multiplyRoundSparse, packBlocks, scaleTile})
	for i, s := range [][3]int{{groupRows + 5, 9, 8*tileSpan + 70}, {groupRows + 5, sumColumns + 3, 2*tileSpan + 40},
		{2*groupRows + 33, 40, 600}, {5, sumColumns + 3, 40}} {
		c := newBF16(uint64(i), i%2 == 1, false, s[0], s[1], s[2], 3, i%2 == 1, smallInt)
		for k := range c.g.A {
			if k%61 != 0 {
				c.g.A[k] = 0
			}
		}
		want := c.result(func(g *GemmBF16) {
			row := make([]float32, g.N)
			for r := range g.M {
				clear(row)
				for k := range g.K {
					if x := g.at(r, k); x != 0 {
						for j := range row {
							row[j] += x.Float32() * g.bt(j, k).Float32()
						}
					}
				}
				for j, v := range row {
					g.put(r, j, v)
				}
			}
		})
		requireSameBits(t, want, c.run(t, e), c)
	}
}
