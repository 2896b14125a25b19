package images

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// box is a crop that takes the same pixels of every image.
type box struct{ down, right span }

func (b box) spans(int, int, int, int, *rand.Rand) (down, right span) { return b.down, b.right }

func (box) check(int, int) error { return nil }

// A part has the pixels that it has in the whole image, though the rows below are not decoded.
func TestCut(t *testing.T) {
	for name, cut := range map[string]int{"tall.jpg": 32, "tall.webp": 32, "tall-icc.webp": 32, "tall-progressive.jpg": 150,
		"sparse-progressive.jpg": 150} {
		content, err := os.ReadFile(filepath.Join("testdata", name))
		require.NoError(t, err)
		whole := make([]float32, 3*150*24)
		require.NoError(t, decode(content, 150, 24, nil, whole, alone()))
		for first := range 120 {
			const h, w = 14, 17
			out := make([]float32, 3*h*w)
			crop := func(int, int) (down, right span) { return span{first, h, h, 0}, span{5, w, w, 0} }
			require.NoError(t, decode(content, h, w, crop, out, alone()))
			for i, v := range out {
				c, y, x := i/(h*w), i/w%h, i%w
				require.Equal(t, whole[c*150*24+(first+y)*24+5+x], v, "%s, row %d of %d", name, y, first)
			}
		}
		p, err := open(content)
		require.NoError(t, err)
		file, height := p.cut(20)
		assert.Equal(t, cut, height, name)
		p, err = open(file)
		require.NoError(t, err)
		assert.Equal(t, height, p.head.Height)
	}
}

// Where more than the opaque pixels of a lossy image depends on the height, it is decoded whole.
func TestNotCut(t *testing.T) {
	for name, file := range map[string][]byte{
		"png": encode(t, ".png", picture(5, 90, 1)), "gif": encode(t, ".gif", picture(5, 90, 1)), "bmp": encode(t, ".bmp", picture(5, 90, 1)),
	} {
		p, err := open(file)
		require.NoError(t, err)
		same, height := p.cut(10)
		assert.Equal(t, 90, height, name)
		assert.Equal(t, file, same)
	}
	tall, err := os.ReadFile("testdata/tall.webp")
	require.NoError(t, err)
	lossy := tall[12:]
	extended := func(flags byte, chunks ...[]byte) []byte {
		head := []byte{'V', 'P', '8', 'X', 10, 0, 0, 0, flags, 0, 0, 0, 23, 0, 0, 149, 0, 0}
		return bytes.Join(append([][]byte{tall[:12], head}, chunks...), nil)
	}
	assert.True(t, cutWebP(extended(0, lossy), 150, 50))
	assert.False(t, cutWebP(extended(0, lossy), 151, 50), "a frame of another height")
	assert.False(t, cutWebP(extended(1<<4, []byte("ALPH\x00\x00\x00\x00"), lossy), 150, 50))
	assert.False(t, cutWebP(bytes.Clone(webpPixel), 1, 50))
}

// Damage below the part that is taken does not stop a training, and Readable leaves the image out.
func TestDamageBelow(t *testing.T) {
	content, err := os.ReadFile("testdata/tall.jpg")
	require.NoError(t, err)
	damaged := bytes.Clone(content)
	copy(damaged[len(damaged)*9/10:], "\xff\xd0\xff\xd0") // restarts that no header announces
	for _, crop := range []Crop{box{span{3, 40, 8, 0}, span{0, 24, 8, 0}}, nil} {
		f, err := Open(write(t, map[string][]byte{"a/1.jpg": content, "a/2.jpg": damaged}), Config{Height: 8, Width: 8, Crop: crop})
		require.NoError(t, err)
		x, y := tensor.New(cpu.New(1), tensor.Float32, 2, 3, 8, 8), tensor.New(cpu.New(1), tensor.Int64, 2)
		err = f.BatchAt(1, []int{0, 1}, x, y)
		if crop == nil {
			require.ErrorContains(t, err, "2.jpg: jpeg: ")
		} else {
			require.NoError(t, err)
			all := tensor.Floats(x)
			assert.Equal(t, all[:192], all[192:])
		}
		subset, err := data.NewSubset(f, []int{0, 1})
		require.NoError(t, err)
		for _, set := range []data.Dataset{f, subset} {
			readable, skipped, err := data.Readable(set)
			require.NoError(t, err)
			assert.Equal(t, []int{0}, readable.Indices)
			assert.ErrorContains(t, skipped.First, "2.jpg")
		}
	}
}
