package images

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"

	"github.com/ringo-ml/ringo/internal/bounded"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// scaled is the naive scaler: each pixel of the result is a mean of the image, weighted by a triangle around its place.
func scaled(img *image.NRGBA, h, w int) (values []float64) {
	weights := func(i, from, to int) []float64 {
		scale := float64(from) / float64(to)
		width, center := max(scale, 1), (float64(i)+0.5)*scale
		ws, sum := make([]float64, from), 0.0
		for j := range ws {
			ws[j] = max(0, 1-math.Abs(float64(j)+0.5-center)/width)
			sum += ws[j]
		}
		for j := range ws {
			ws[j] /= sum
		}
		return ws
	}
	for c := range 3 {
		for y := range h {
			for x := range w {
				v := 0.0
				for j, wy := range weights(y, img.Rect.Dy(), h) {
					for i, wx := range weights(x, img.Rect.Dx(), w) {
						v += wy * wx * float64(img.Pix[img.PixOffset(i, j)+c])
					}
				}
				values = append(values, v/255)
			}
		}
	}
	return values
}

func TestScale(t *testing.T) {
	img := picture(13, 9, 3)
	content := encode(t, ".png", img)
	for _, size := range [][2]int{{9, 13}, {3, 4}, {20, 30}, {1, 1}, {18, 5}} {
		h, w := size[0], size[1]
		out := make([]float32, 3*h*w)
		require.NoError(t, decode(content, h, w, nil, out, alone()))
		for i, v := range scaled(img, h, w) {
			require.InDelta(t, v, out[i], 1.0/255, "%d x %d", h, w)
		}
	}
}

// Transparent pixels keep their color, a frame of a GIF its place, and 16-bit values their upper half.
func TestForms(t *testing.T) {
	clear := picture(2, 1, 1)
	clear.Pix[3], clear.Pix[7] = 0, 99
	out := make([]float32, 6)
	require.NoError(t, decode(encode(t, ".png", clear), 1, 2, nil, out, alone()))
	for c := range 3 {
		assert.Equal(t, []float32{float32(clear.Pix[c]) / 255, float32(clear.Pix[4+c]) / 255}, out[2*c:2*c+2])
	}

	red, blue := color.RGBA{255, 0, 0, 255}, color.RGBA{0, 0, 255, 255}
	frame := image.NewPaletted(image.Rect(1, 0, 2, 1), color.Palette{red, blue})
	frame.Pix[0] = 1
	var b bytes.Buffer
	require.NoError(t,
		gif.EncodeAll(&b, &gif.GIF{Image: []*image.Paletted{frame}, Delay: []int{1}, Config: image.Config{Width: 2, Height: 1}}))
	require.NoError(t, decode(b.Bytes(), 1, 2, nil, out, alone()))
	assert.Equal(t, []float32{1, 0, 0, 0, 0, 1}, out, "around a frame is the first color")
	at := bytes.Index(b.Bytes(), []byte{0x21, 0xf9})
	b.Bytes()[at+3] |= 1
	b.Bytes()[at+6] = 1
	require.NoError(t, decode(b.Bytes(), 1, 2, nil, out, alone()))
	assert.Equal(t, []float32{0, 0, 0, 0, 1, 1}, out, "or the transparent one")
	b.Bytes()[at+6] = 200
	require.NoError(t, decode(b.Bytes(), 1, 2, nil, out, alone()))
	assert.Equal(t, []float32{0, 0, 0, 0, 0, 1}, out, "which is not in the palette")

	deep := image.NewGray16(image.Rect(0, 0, 2, 1))
	deep.SetGray16(0, 0, color.Gray16{Y: 0xffff})
	deep.SetGray16(1, 0, color.Gray16{Y: 0x33ff})
	require.NoError(t, decode(encode(t, ".png", deep), 1, 2, nil, out, alone()))
	assert.Equal(t, []float32{1, 0.2, 1, 0.2, 1, 0.2}, out)
}

// exif is one with an orientation alone.
func exif(order binary.AppendByteOrder, begin string, orientation uint16) []byte {
	b := order.AppendUint32([]byte(begin), 8)
	b = order.AppendUint16(order.AppendUint16(order.AppendUint16(b, 1), tagOrientation), 3)
	return append(order.AppendUint16(order.AppendUint32(b, 1), orientation), 0, 0, 0, 0, 0, 0)
}

// Images are turned as EXIF says; each place of the first row and column is listed.
func TestOrientation(t *testing.T) {
	img := picture(3, 2, 1)
	plain := encode(t, ".png", img)
	for orientation, want := range map[uint16][]int{
		0: {0, 1, 2, 3, 4, 5}, 1: {0, 1, 2, 3, 4, 5}, 2: {2, 1, 0, 5, 4, 3}, 3: {5, 4, 3, 2, 1, 0}, 4: {3, 4, 5, 0, 1, 2},
		5: {0, 3, 1, 4, 2, 5}, 6: {3, 0, 4, 1, 5, 2}, 7: {5, 2, 4, 1, 3, 0}, 8: {2, 5, 1, 4, 0, 3}, 9: {0, 1, 2, 3, 4, 5},
	} {
		h, w := 2, 3
		if orientation >= 5 && orientation <= 8 {
			h, w = 3, 2
		}
		for begin, order := range map[string]binary.AppendByteOrder{"II*\x00": binary.LittleEndian, "MM\x00*": binary.BigEndian} {
			content := append(bytes.Clone(plain[:33]), chunk("eXIf", exif(order, begin, orientation))...)
			out := make([]float32, 18)
			require.NoError(t, decode(append(content, plain[33:]...), h, w, nil, out, alone()))
			for i, from := range want {
				require.Equal(t, float32(img.Pix[4*from])/255, out[i], "%d", orientation)
			}
		}
	}
	for _, broken := range [][]byte{{}, []byte("II*\x00\xff\xff\xff\xff"), exif(binary.LittleEndian, "II*\x00", 3)[:15]} {
		content := append(bytes.Clone(plain[:33]), chunk("eXIf", broken)...)
		require.Equal(t, 1, orientation(append(content, plain[33:]...), "png"))
	}
}

// fax is a TIFF of 8 x 2 pixels without ink, in the coding of Group 4.
func fax(tags ...[2]uint16) []byte {
	order := binary.LittleEndian
	b := order.AppendUint16(order.AppendUint32([]byte("II*\x00"), 8), uint16(len(tags)))
	for _, tag := range tags {
		b = order.AppendUint32(order.AppendUint16(order.AppendUint16(b, tag[0]), 3), 1)
		b = order.AppendUint32(b, uint32(tag[1]))
	}
	return append(b, 0, 0, 0, 0, 0b11_000000, 0b000001_00, 0b00000000, 0b01_000000)
}

// Where ink is zeros, paper is black.
func TestFax(t *testing.T) {
	tags := func(photometric, planar, fill uint16) [][2]uint16 {
		return [][2]uint16{{256, 8}, {257, 2}, {258, 1}, {259, 4}, {262, photometric}, {266, fill}, {273, 8 + 2 + 12*11 + 4}, {277, 1},
			{278, 2}, {279, 4}, {284, planar}}
	}
	out := make([]float32, 48)
	for photometric, want := range map[uint16]float32{0: 1, 1: 0} {
		require.NoError(t, decode(fax(tags(photometric, 1, 1)...), 2, 8, nil, out, alone()))
		require.Equal(t, slices.Repeat([]float32{want}, 48), out)
	}
}

// What a decoder would read wrongly or not at all is an error with the way out.
func TestRefused(t *testing.T) {
	gray := encode(t, ".tiff", image.NewGray(image.Rect(0, 0, 4, 4)))
	for want, content := range map[string][]byte{
		"tiff: it has a plane for each color":                tagged(t, encode(t, ".tiff", picture(4, 4, 1)), 296, 284, 2),
		"tiff: its bits are in reverse order":                tagged(t, gray, 262, 266, 2),
		"tiff: it has a predictor of floats":                 tagged(t, gray, 296, 317, 3),
		"tiff: it does not say the bits of each color":       tagged(t, gray, 277, 277, 3),
		"tiff: it is a fax coded in two dimensions":          tagged(t, tagged(t, gray, 259, 259, 3), 296, 292, 1),
		"the header: tiff: unsupported feature: color model": tagged(t, gray, 262, 262, 6),
		"WebP, but HEIC or AVIF":                             []byte("\x00\x00\x00\x18ftypheic"),
		"WebP, but BigTIFF":                                  []byte("II+\x00\x08\x00\x00\x00"),
		"the header: bmp: unsupported BMP image": []byte("BM" + strings.Repeat("\x00", 8) + "\x1a\x00\x00\x00\x0c" +
			strings.Repeat("\x00", 20)),
	} {
		err := decode(content, 2, 2, nil, make([]float32, 12), alone())
		assert.ErrorContains(t, err, want)
		assert.ErrorContains(t, err, "convert it to PNG", want)
	}
}

// alone is the memory that no other image takes.
func alone() reading { return reading{shared: semaphore.NewWeighted(bounded.Base)} }

// chunk is a part of a PNG file.
func chunk(name string, content []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(content)))
	b = append(append(b, name...), content...)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b[4:]))
}

// header is the start of a PNG of w x h pixels.
func header(w, h uint32) []byte {
	size := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, w), h)
	b := append([]byte("\x89PNG\r\n\x1a\n"), chunk("IHDR", append(size, 8, 6, 0, 0, 0))...)
	return append(b, chunk("IDAT", []byte{0x78, 0x9c})...)
}

func TestDecodeErrors(t *testing.T) {
	img := picture(40, 30, 2)
	for ext, format := range map[string]string{".png": "png: ", ".jpg": "jpeg: ", ".gif": "gif: ", ".bmp": "bmp: ", ".tiff": "EOF"} {
		content := encode(t, ext, img)
		assert.ErrorContains(t, decode(content[:len(content)*2/3], 2, 2, nil, make([]float32, 12), alone()), format) // then the decoder's words
		assert.ErrorContains(t, decode(content[:12], 2, 2, nil, make([]float32, 12), alone()), "the header: ", ext)
	}
	for want, content := range map[string][]byte{
		"neither PNG, JPEG, GIF, BMP, TIFF nor WebP: get it again, or remove it":  []byte("<!DOCTYPE html>"),
		"neither PNG, JPEG, GIF, BMP, TIFF nor Web":                               nil,
		"the header: unexpected EOF: get it again, or remove it":                  webpPixel[:20],
		"png of 16385 x 1 pixels: want at most 16384 a side, and 67108864 in all": header(1<<14+1, 1),
		"png of 1 x 16385 pixels":                                                 header(1, 1<<14+1),
		"png of 16384 x 16384 pixels":                                             header(1<<14, 1<<14),
		"png of 2147483647 x 1 pixels":                                            header(1<<31-1, 1),
		"gif of 0 x 1 pixels":                                                     []byte("GIF89a\x00\x00\x01\x00\x00\x00\x00"),
		"the header: bmp: ":                                                       append([]byte("BM"), make([]byte, 40)...),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := decode(content, 2, 2, nil, make([]float32, 12), alone())
		runtime.ReadMemStats(&after)
		assert.ErrorContains(t, err, want)
		assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20), want)
	}
}

// For any file, the result is an error or values in [0, 1], all of which are written.
func FuzzDecode(f *testing.F) {
	for _, ext := range []string{".png", ".jpg", ".gif", ".bmp", ".tiff", ".webp"} {
		content := encode(f, ext, picture(7, 5, 1))
		f.Add(content)
		f.Add(content[:len(content)/2])
	}
	f.Add(header(1<<31, 1<<31))
	lossy, err := os.ReadFile("testdata/lossy80.webp")
	require.NoError(f, err)
	f.Add(lossy)
	f.Fuzz(func(t *testing.T, content []byte) {
		if head, _, err := image.DecodeConfig(bytes.NewReader(content)); err == nil && head.Width*head.Height > 1<<20 &&
			head.Width*head.Height < maxPixels {
			t.Skip("takes long")
		}
		out := make([]float32, 3*4*3)
		for i := range out {
			out[i] = -1
		}
		var err error
		reliability.Bounded(t, len(content), func() { err = decode(content, 4, 3, nil, out, alone()) })
		if err != nil {
			require.False(t, strings.Contains(err.Error(), "panicked"), "a decoder panics: %v", err)
			return
		}
		for _, v := range out {
			require.True(t, v >= 0 && v <= 1, "%v", out)
		}
	})
}
