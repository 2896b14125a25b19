package kernel_test

import (
	"compress/gzip"
	"encoding/binary"
	"io"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/kernel"
)

// TestFloat8IsPyTorchs compares the value of every code, and the code of every bfloat16 number.
func TestFloat8IsPyTorchs(t *testing.T) {
	file, err := os.Open("testdata/float8.bin.gz")
	require.NoError(t, err)
	defer file.Close()
	zip, err := gzip.NewReader(file)
	require.NoError(t, err)
	all, err := io.ReadAll(zip)
	require.NoError(t, err)
	const each = 256*4 + 65536
	require.Len(t, all, 2*each)
	for i, f := range []kernel.Float8{kernel.E4M3, kernel.E5M2} {
		values, codes := all[i*each:][:256*4], all[i*each+256*4:][:65536]
		for code := range 256 {
			want, got := math.Float32frombits(binary.LittleEndian.Uint32(values[4*code:])), f.Float32(uint8(code))
			if want != want {
				require.NotEqual(t, got, got, "format %d, code %#x", f, code)
				continue
			}
			require.Equal(t, math.Float32bits(want), math.Float32bits(got), "format %d, code %#x", f, code)
			if want-want == 0 {
				require.Equal(t, uint8(code), f.Code(want), "format %d, of its own number", f)
			}
		}
		for b := range 65536 {
			x := kernel.BF16(b).Float32()
			require.Equal(t, codes[b], f.Code(x), "format %d, of %v", f, x)
		}
	}
}

// TestFloat8Ties: halfway between two numbers, the result is the even one; one bit
// away, it is the nearer one.
func TestFloat8Ties(t *testing.T) {
	for f, most := range map[kernel.Float8]uint8{kernel.E4M3: 0x7e, kernel.E5M2: 0x7b} {
		require.Equal(t, f.Max(), f.Float32(most))
		for code := range most {
			lo, hi := f.Float32(code), f.Float32(code+1)
			half := lo + (hi-lo)/2
			require.Equal(t, code+code&1, f.Code(half), "format %d: %v, between %v and %v", f, half, lo, hi)
			require.Equal(t, code, f.Code(math.Nextafter32(half, 0)))
			require.Equal(t, code+1, f.Code(math.Nextafter32(half, hi)))
			require.Equal(t, 0x80|(code+1), f.Code(-math.Nextafter32(half, hi)))
		}
		got := make([]float32, 3)
		kernel.Round8(got, []float32{float32(math.Inf(-1)), 0.3, 2 * f.Max()}, f)
		require.Equal(t, []float32{-f.Max(), f.Float32(f.Code(0.3)), f.Max()}, got)
	}
}
