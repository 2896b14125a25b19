package vp8

import (
	"bytes"
	"encoding/binary"
	"errors"
	"image"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/image/vp8"
)

// writer codes Booleans (RFC 6386, 7.3).
type writer struct {
	out       []byte
	low, size uint64
	n         int // bits of low that are no whole byte yet
}

func (w *writer) bit(b bool) { w.likely(b, 128) }

// likely codes one that is false with a probability.
func (w *writer) likely(b bool, p byte) {
	part := 1 + (w.size-1)*uint64(p)>>8
	if b {
		w.low, w.size = w.low+part, w.size-part
	} else {
		w.size = part
	}
	for w.size < 128 {
		w.low, w.size, w.n = w.low<<1, w.size<<1, w.n+1
		if w.n == 8 {
			w.byte()
		}
	}
}

// byte takes the upper one of 16 bits, and carries.
func (w *writer) byte() {
	if w.low>>16 > 0 {
		for i := len(w.out) - 1; ; i-- {
			if w.out[i]++; w.out[i] != 0 {
				break
			}
		}
	}
	w.out, w.low, w.n = append(w.out, byte(w.low>>8)), w.low&255, 0
}

func (w *writer) uint(v, bits int) {
	for i := bits - 1; i >= 0; i-- {
		w.bit(v>>i&1 == 1)
	}
}

func (w *writer) int(v, bits int) {
	if w.bit(v != 0); v != 0 {
		w.uint(max(v, -v), bits)
		w.bit(v < 0)
	}
}

// bytes returns what is coded, and some zeros more.
func (w *writer) bytes() []byte {
	for range 3 * 8 {
		w.bit(false)
	}
	return w.out
}

// random is a frame whose header has all that a header can have, and whose modes and coefficients are what random bytes say.
func random(r *rand.Rand) []byte {
	coin := func() bool { return r.IntN(2) == 0 }
	number := func(bits int) int { return r.IntN(1<<(bits+1)) - 1<<bits }
	w := writer{size: 255}
	w.uint(r.IntN(4), 2)
	segments := coin()
	if w.bit(segments); segments {
		mapped, changed := coin(), coin()
		w.bit(mapped)
		if w.bit(changed); changed {
			w.bit(coin())
			for i := range 8 {
				w.int(number(5), 7-i/4)
			}
		}
		for range 3 {
			if mapped {
				w.bit(true)
				w.uint(r.IntN(256), 8)
			}
		}
	}
	w.bit(coin()) // the simple filter
	w.uint(r.IntN(64), 6)
	w.uint(r.IntN(8), 3)
	changes := coin()
	if w.bit(changes); changes {
		w.bit(true)
		for range 8 {
			w.int(number(4), 6)
		}
	}
	partitions := r.IntN(4)
	w.uint(partitions, 2)
	w.uint(min(r.IntN(256), r.IntN(128)), 7)
	for range 5 {
		w.int(number(3), 4)
	}
	w.bit(coin())
	often := []int{1 << 20, 10, 2}[r.IntN(3)]
	for _, p := range changeProbs {
		change := r.IntN(often) == 0
		if w.likely(change, p); change {
			w.uint(r.IntN(256), 8)
		}
	}
	skips := coin()
	if w.bit(skips); skips {
		w.uint(r.IntN(256), 8)
	}
	noise := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}
	first := append(w.bytes(), noise(2000)...)
	head := []byte{byte(len(first) << 5), byte(len(first) >> 3), byte(len(first) >> 11), 0x9d, 1, 0x2a}
	head = binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(head, uint16(1+r.IntN(90))), uint16(1+r.IntN(90)))
	rest, sizes := []byte{}, []byte{}
	for range 1<<partitions - 1 {
		n := 100 + r.IntN(5000)
		sizes, rest = append(sizes, byte(n), byte(n>>8), 0), append(rest, noise(n)...)
	}
	return bytes.Join([][]byte{head, first, sizes, rest, noise(12000)}, nil)
}

// frames are those of the pictures that Pillow wrote.
func frames(t testing.TB) (all [][]byte) {
	names, err := filepath.Glob("../../testdata/*.webp")
	require.NoError(t, err)
	for _, name := range names {
		content, err := os.ReadFile(name)
		require.NoError(t, err)
		if at := bytes.Index(content, []byte("VP8 ")); at > 0 {
			all = append(all, content[at+8:][:binary.LittleEndian.Uint32(content[at+4:])])
		}
	}
	require.GreaterOrEqual(t, len(all), 4)
	return all
}

// check compares with golang.org/x/image, in which errors are those of whole frames.
func check(t *testing.T, content []byte, right, bottom int) (ok bool) {
	d := vp8.NewDecoder()
	d.Init(bytes.NewReader(content), len(content))
	_, wrong := d.DecodeFrameHeader()
	var want *image.YCbCr
	if wrong == nil {
		want, wrong = d.DecodeFrame()
	}
	got, err := Decode(content, right, bottom)
	if errors.Is(err, errDamaged) || wrong == nil && want.Rect.Empty() {
		require.Error(t, err)
		return false
	} else if wrong != nil {
		if right+bottom == 1<<15 {
			require.Error(t, err, "%v", wrong)
		}
		return false
	}
	require.NoError(t, err)
	require.Equal(t, image.YCbCrSubsampleRatio420, got.SubsampleRatio)
	require.Equal(t, want.Rect.Max.X, got.Rect.Max.X)
	right, bottom = min(right, want.Rect.Max.X), min(bottom, want.Rect.Max.Y)
	require.GreaterOrEqual(t, got.Rect.Max.Y, bottom)
	for y := range bottom {
		require.Equal(t, want.Y[y*want.YStride:][:right], got.Y[y*got.YStride:][:right], "row %d", y)
		// of color, also the next sample, which the last ones are mixed with
		end := min((right+2)/2, (want.Rect.Max.X+1)/2)
		require.Equal(t, want.Cb[y/2*want.CStride:][:end], got.Cb[y/2*got.CStride:][:end], "row %d", y)
		require.Equal(t, want.Cr[y/2*want.CStride:][:end], got.Cr[y/2*got.CStride:][:end], "row %d", y)
	}
	return true
}

// All that a frame can say has the samples that golang.org/x/image has: in whole, in part, and cut short.
func TestSame(t *testing.T) {
	r, right, short := rand.New(rand.NewPCG(1, 2)), 0, 0
	for i := range 300 {
		content := random(r)
		if check(t, content, 1<<14, 1<<14) {
			right++
		}
		check(t, content, 1+r.IntN(90), 1+r.IntN(90))
		if i%4 == 0 && !check(t, content[:len(content)-12000+r.IntN(60)], 1<<14, 1<<14) {
			short++
		}
	}
	require.Greater(t, right, 200)
	require.Greater(t, short, 10)
	for _, content := range frames(t) {
		for n := range 160 {
			check(t, content[:n*len(content)/160], 1<<14, 1<<14)
			require.True(t, check(t, content, n, n))
		}
	}
}

func TestErrors(t *testing.T) {
	content := frames(t)[0]
	for cut, want := range map[int]error{0: io.ErrUnexpectedEOF, 9: io.ErrUnexpectedEOF, len(content) / 2: io.ErrUnexpectedEOF} {
		_, err := Decode(content[:cut], 1, 1)
		require.ErrorIs(t, err, want)
	}
	for _, side := range []int{6, 8} {
		none := bytes.Clone(content)
		none[side], none[side+1] = 0, 0
		_, err := Decode(none, 1, 1)
		require.EqualError(t, err, "vp8: it has no pixels")
	}
	for at := range 6 {
		if at != 1 && at != 2 {
			other := bytes.Clone(content)
			other[at] ^= 1
			_, err := Decode(other, 1, 1)
			require.EqualError(t, err, "vp8: it is no key frame")
		}
	}
}

// For any bytes, the result is an error or the samples of golang.org/x/image.
func FuzzDecode(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		f.Add(random(r)[:4000], byte(90), byte(90))
	}
	for _, content := range frames(f) {
		f.Add(content, byte(20), byte(200))
	}
	f.Fuzz(func(t *testing.T, content []byte, right, bottom byte) {
		if len(content) > 9 && (content[7]&63 > 0 || content[9]&63 > 0) {
			t.Skip("takes long")
		}
		check(t, content, int(right), int(bottom))
	})
}
