package kernel

import (
	"bytes"
	"image/color"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

func eachISA(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	for _, s := range isas {
		t.Run(s.name, func(t *testing.T) { withISA(s, func() { f(t) }) })
	}
}

func randomBytes(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func TestAddScaledAndUnit(t *testing.T) {
	eachISA(t, func(t *testing.T) {
		for n := range 70 {
			x, y, got := normals[float32](n, 1), normals[float32](n, 2), make([]float32, n)
			Unit(got, x)
			for i, v := range x {
				require.Equal(t, min(v/255, 1), got[i])
			}
			copy(got, y)
			AddScaled(got, x, 0.3)
			for i := range got {
				require.Equal(t, y[i]+float32(float32(0.3)*x[i]), got[i])
			}
		}
		values, got := make([]float32, 300), make([]float32, 300)
		for i := range values {
			values[i] = float32(i)
		}
		Unit(got, values)
		require.Equal(t, []float32{0, 1.0 / 255, 1, 1}, []float32{got[0], got[1], got[255], got[299]})
	})
}

// A pixel is a mean with weights 9, 3, 3 and 1 of the four samples around it.
func TestSmoothChroma(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	eachISA(t, func(t *testing.T) {
		for n := 1; n < 80; n++ {
			near, far := randomBytes(rng, n), randomBytes(rng, n)
			lo := rng.IntN(n)
			hi := lo + 1 + rng.IntN(n-lo)
			left, right := rng.IntN(9), rng.IntN(9)
			got := make([]byte, 2*(hi-lo))
			SmoothChroma(got, near, far, lo, hi, left, right)
			for x, v := range got {
				i := lo + x/2
				beside, round := max(i-1, 0), left
				if x%2 == 1 {
					beside, round = min(i+1, n-1), right
				}
				want := 9*int(near[i]) + 3*int(far[i]) + 3*int(near[beside]) + int(far[beside]) + round
				require.Equal(t, byte(want>>4), v, "pixel %d of samples %d to %d of %d", x, lo, hi, n)
			}
		}
	})
}

func TestLongColors(t *testing.T) { reliability.AsLong(t, TestColors) }

func TestColors(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var got, studio [3][]float32
	eachISA(t, func(t *testing.T) {
		for n := range 300 {
			if n > 50 && later(t, n, 25) {
				continue
			}
			luma, cb, cr := randomBytes(rng, n), randomBytes(rng, n), randomBytes(rng, n)
			for i := 0; i < n; i += 7 { // the ends of the scales
				luma[i], cb[i], cr[i] = byte(rng.IntN(2))*255, byte(rng.IntN(2))*255, byte(rng.IntN(2))*255
			}
			for c := range got {
				got[c], studio[c] = make([]float32, n), make([]float32, n)
			}
			Colors(got[0], got[1], got[2], luma, cb, cr, false)
			Colors(studio[0], studio[1], studio[2], luma, cb, cr, true)
			for i := range luma {
				r, g, b := color.YCbCrToRGB(luma[i], cb[i], cr[i])
				require.Equal(t, [3]float32{float32(r), float32(g), float32(b)}, [3]float32{got[0][i], got[1][i], got[2][i]})
				r, g, b = studioColor(luma[i], cb[i], cr[i])
				require.Equal(t, [3]float32{float32(r), float32(g), float32(b)}, [3]float32{studio[0][i], studio[1][i], studio[2][i]})
				y, u, v := 255.0/219*(float64(luma[i])-16), 255.0/224*(float64(cb[i])-128), 255.0/224*(float64(cr[i])-128)
				for c, want := range []float64{y + 1.402*v, y - 0.344136*u - 0.714136*v, y + 1.772*u} {
					require.InDelta(t, min(max(want, 0), 255), studio[c][i], 1.01)
				}
			}
		}
		white, gray := make([]float32, 48), bytes.Repeat([]byte{128}, 16)
		Colors(white[:16], white[16:32], white[32:], bytes.Repeat([]byte{235}, 16), gray, gray, true)
		require.Equal(t, float32(255), white[0])
		require.Equal(t, float32(255), white[47])
	})
}
