package images

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// box is a crop that takes the same pixels of every image.
type box struct{ down, right span }

func (b box) spans(int, int, int, int, *rand.Rand) (down, right span) { return b.down, b.right }

func (box) check(int, int) error { return nil }

// A part has the pixels that it has in the whole image, though the rows below are not decoded. The short form has every third row.
func TestCut(t *testing.T) {
	step := 3
	if reliability.Long(t) {
		step = 1
	}
	for name, cut := range map[string]int{"tall.jpg": 32, "tall.webp": 32, "tall-icc.webp": 32, "tall-progressive.jpg": 150,
		"sparse-progressive.jpg": 150} {
		content, err := os.ReadFile(filepath.Join("testdata", name))
		require.NoError(t, err)
		whole := make([]float32, 3*150*24)
		require.NoError(t, decode(content, 150, 24, nil, whole, alone()))
		for first := 0; first < 120; first += step {
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
		img, err := p.part(24, 20)
		require.NoError(t, err)
		assert.Equal(t, cut, img.Bounds().Dy(), name)
	}
}

func TestLongCut(t *testing.T) { reliability.AsLong(t, TestCut) }

// Where more than the rows depends on the height, an image is decoded whole.
func TestNotCut(t *testing.T) {
	for _, ext := range []string{".png", ".gif", ".bmp", ".tiff", ".webp"} {
		p, err := open(encode(t, ext, picture(5, 90, 1)))
		require.NoError(t, err)
		img, err := p.part(5, 10)
		require.NoError(t, err)
		assert.Equal(t, p.head.Height, img.Bounds().Dy(), ext)
	}
}

// Lossy images are decoded in part, if they are as large as their file says.
func TestLossy(t *testing.T) {
	tall, err := os.ReadFile("testdata/tall.webp")
	require.NoError(t, err)
	lossy := tall[12:]
	extended := func(flags byte, height int, chunks ...[]byte) []byte {
		head := []byte{'V', 'P', '8', 'X', 10, 0, 0, 0, flags, 0, 0, 0, 23, 0, 0, byte(height - 1), 0, 0}
		file := bytes.Join(append([][]byte{tall[:12], head}, chunks...), nil)
		binary.LittleEndian.PutUint32(file[4:], uint32(len(file)-8))
		return file
	}
	clear := append([]byte("ALPH\x11\x0e\x00\x00\x00"), append(bytes.Repeat([]byte{200}, 24*150), 0)...)
	other := bytes.Clone(lossy)
	other[8+8] = 20 // of another height
	whole := make([]float32, 3*150*24)
	require.NoError(t, decode(tall, 150, 24, nil, whole, alone()))
	for name, c := range map[string]struct {
		file []byte
		part bool
		err  string
	}{
		"without alpha":  {extended(1<<4, 150, lossy), true, ""},
		"extended":       {extended(0, 150, lossy), true, ""},
		"transparent":    {extended(1<<4, 150, clear, lossy), true, ""},
		"higher":         {extended(0, 151, lossy), false, "webp: invalid format"},
		"two frames":     {extended(0, 150, other, lossy), false, "webp: invalid format"},
		"behind the end": {append(extended(0, 150), lossy...), false, "webp: invalid format"},
		"two heads":      {extended(0, 150, extended(0, 150)[12:], lossy), false, "webp: invalid format"},
		"cut short":      {extended(0, 150, lossy[:len(lossy)/2]), false, "webp: "},
	} {
		p, err := open(c.file)
		require.NoError(t, err, name)
		assert.Equal(t, c.part, p.lossy() != nil, name)
		out := make([]float32, len(whole))
		if err := decode(c.file, 150, 24, nil, out, alone()); c.err != "" {
			assert.ErrorContains(t, err, c.err, name)
		} else {
			require.NoError(t, err, name)
			assert.Equal(t, whole, out, name)
		}
	}
	// Transparency is not read in training, but Readable leaves out what is damaged there.
	damaged, r := extended(1<<4, 150, []byte("ALPH\x03\x00\x00\x00\x00ab\x00"), lossy), alone()
	require.NoError(t, decode(damaged, 150, 24, nil, whole, r))
	r.whole = true
	require.ErrorContains(t, decode(damaged, 150, 24, nil, whole, r), "webp: unexpected EOF")
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
