package images

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/bounded"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// tagged changes the value of a tag of a TIFF, which must have it, or renames the tag instead.
func tagged(t *testing.T, file []byte, tag, as uint16, value uint32) []byte {
	b := bytes.Clone(file)
	at := binary.LittleEndian.Uint32(b[4:])
	for n := range uint32(binary.LittleEndian.Uint16(b[at:])) {
		if e := b[at+2+12*n:]; binary.LittleEndian.Uint16(e) == tag {
			binary.LittleEndian.PutUint16(e, as)
			binary.LittleEndian.PutUint16(e[2:], 4)
			binary.LittleEndian.PutUint32(e[8:], value)
			return b
		}
	}
	t.Fatalf("no tag %d", tag)
	return nil
}

// A small file with many pixels is an error, which says how many, and takes no memory for them.
func TestBombs(t *testing.T) {
	small := encode(t, ".tiff", picture(40, 30, 2))
	gray := header(16384, 2500)
	gray[24], gray[25] = 16, 0 // bits, and the type of colors
	binary.BigEndian.PutUint32(gray[29:], crc32.ChecksumIEEE(gray[12:29]))
	one := tagged(t, tagged(t, small, 256, 256, 3000), 257, 257, 1000)
	for name, c := range map[string]struct {
		content []byte
		want    string
	}{
		"png":         {header(16384, 4096), "png of 16384 x 4096 pixels: it would take more than "},
		"gray":        {gray, "png of 16384 x 2500 pixels: it would take more than "},
		"gif":         {[]byte("GIF89a\x40\x1f\x40\x1f\x00\x00\x00"), "gif of 8000 x 8000 pixels: it would take more than "},
		"one strip":   {tagged(t, one, 278, 278, 1000), "tiff of 3000 x 1000 pixels: it would take more than "},
		"tiles":       {tagged(t, tagged(t, small, 283, 322, 3000), 296, 323, 3000), "tiff of 40 x 30 pixels: it would take more than "},
		"large tiles": {tagged(t, tagged(t, small, 283, 322, 1<<31), 296, 323, 1<<31), "its parts are larger than the image"},
	} {
		out := make([]float32, 12)
		reliability.Bounded(t, len(c.content), func() {
			assert.ErrorContains(t, decode(c.content, 2, 2, nil, out, alone()), c.want, name)
		})
	}
}

// What decoders allocate is what memoryOf says, or less.
func TestMemoryOf(t *testing.T) {
	out := make([]float32, 3*224*224)
	for _, ext := range []string{".png", ".gif", ".bmp", ".tiff", ".jpg"} {
		w, h := 800, 600
		if ext == ".gif" { // encoding it takes long
			w, h = 400, 300
		}
		content := encode(t, ext, picture(w, h, 3))
		head, format, err := image.DecodeConfig(bytes.NewReader(content))
		require.NoError(t, err)
		need, err := memoryOf(content, format, head, 224, 224)
		require.NoError(t, err)
		need += scratch(w + 224)
		reliability.Bounded(t, int(need-bounded.Base)/bounded.PerByte, func() {
			require.NoError(t, decode(content, 224, 224, nil, out, alone()), ext)
		})
	}
}

// The longer side of a narrow image, scaled, has many pixels: those that are not taken need no memory.
func TestNarrow(t *testing.T) {
	content, out := encode(t, ".png", image.NewNRGBA(image.Rect(0, 0, 1, maxSide))), make([]float32, 3*4*4)
	crop := func(height, width int) (down, right span) {
		return CenterCrop{Resize: 256}.spans(height, width, 4, 4, nil)
	}
	reliability.Bounded(t, len(content), func() { require.NoError(t, decode(content, 4, 4, crop, out, alone())) })
}

// The photos of phones are read, and so are scans and screens.
func TestPhotos(t *testing.T) {
	for _, c := range []struct {
		format string
		head   image.Config
		bytes  int64
	}{
		{"jpeg", image.Config{Width: 4032, Height: 3024, ColorModel: color.YCbCrModel}, 2 << 20},
		{"jpeg", image.Config{Width: 8064, Height: 6048, ColorModel: color.YCbCrModel}, 9 << 20},
		{"png", image.Config{Width: 3840, Height: 2160, ColorModel: color.RGBAModel}, 200 << 10},
		{"png", image.Config{Width: 4960, Height: 7016, ColorModel: color.GrayModel}, 2 << 20},
		{"webp", image.Config{Width: 4032, Height: 3024, ColorModel: color.YCbCrModel}, 1 << 20},
	} {
		content := make([]byte, c.bytes)
		if c.format == "jpeg" { // baseline, 4:2:0
			copy(content, "\xff\xd8\xff\xc0\x00\x11\x08\x00\x00\x00\x00\x03\x01\x22\x00\x02\x11\x01\x03\x11\x01")
		}
		need, err := memoryOf(content, c.format, c.head, 224, 224)
		require.NoError(t, err)
		require.NoError(t, bounded.New(c.bytes).Take(need), "%s %d", c.format, c.head.Width)
	}
}

// A progressive JPEG keeps its coefficients, which are four bytes each.
func TestJPEGBytes(t *testing.T) {
	content := encode(t, ".jpg", picture(160, 160, 3))
	head, _, err := image.DecodeConfig(bytes.NewReader(content))
	require.NoError(t, err)
	require.Equal(t, int64(160*160*3/2), jpegBytes(content, head), "4:2:0")
	at := bytes.Index(content, []byte{0xff, 0xc0})
	content[at+1] = 0xc2
	require.Equal(t, int64(5*160*160*3/2), jpegBytes(content, head))
	content[at+11] = 0x11 // 4:4:4
	require.Equal(t, int64(5*160*160*3), jpegBytes(content, head))
	content[at+11] = 0x41 // of 4:1:1, in a unit of 32 x 8
	require.Equal(t, int64(5*160*160*6/4), jpegBytes(content, head))
	content[at+11], content[at+14] = 0x42, 0x21
	require.Equal(t, int64(5*160*160*11/8+3*160*160), jpegBytes(content, head), "values for each pixel")
	head.ColorModel = color.RGBAModel
	require.Equal(t, int64(5*160*160*11/8+8*160*160), jpegBytes(content, head))
	require.Equal(t, int64(32*160*160), jpegBytes(content[:at], head), "unknown: the most")
}

// Images that are decoded together wait for each other before they take more memory than their files justify.
func TestTurns(t *testing.T) {
	content := encode(t, ".png", image.NewNRGBA(image.Rect(0, 0, 1000, 1000)))
	synctest.Test(t, func(t *testing.T) {
		r, done := alone(), false
		shared := r.shared
		require.NoError(t, shared.Acquire(t.Context(), bounded.Base-1<<20))
		go func() {
			assert.NoError(t, decode(content, 2, 2, nil, make([]float32, 12), r))
			done = true
		}()
		synctest.Wait()
		require.False(t, done)
		shared.Release(bounded.Base - 1<<20)
		synctest.Wait()
		require.True(t, done)
		require.True(t, shared.TryAcquire(bounded.Base), "it gives all back")
	})
}
