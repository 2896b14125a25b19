package images

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/image/bmp"
	"golang.org/x/image/tiff"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// webp is one pixel, lossless: there is no encoder.
var webpPixel = []byte("RIFF\x1e\x00\x00\x00WEBPVP8L\x11\x00\x00\x00/\x00\x00\x00\x00\x07\xd0\xff\xfe\xf7\xbf\xff\x81\x88\xe8\x7f\x00\x00")

// picture returns an image of w x h pixels, all with different colors.
func picture(w, h, seed int) *image.NRGBA {
	img := image.NewNRGBA(image.Rect(0, 0, w, h))
	for i := range img.Pix {
		img.Pix[i] = byte(i*7 + seed*31)
		if i%4 == 3 {
			img.Pix[i] = 255
		}
	}
	return img
}

// encode returns a file in the format of the extension.
func encode(t testing.TB, ext string, img image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	var err error
	switch ext {
	case ".png":
		err = png.Encode(&b, img)
	case ".jpg", ".JPEG":
		err = jpeg.Encode(&b, img, nil)
	case ".gif":
		err = gif.Encode(&b, img, nil)
	case ".bmp":
		err = bmp.Encode(&b, img)
	case ".tif", ".tiff":
		err = tiff.Encode(&b, img, &tiff.Options{Compression: tiff.Deflate, Predictor: true})
	case ".webp":
		return webpPixel
	}
	require.NoError(t, err)
	return b.Bytes()
}

// write makes a folder of files, whose names have slashes.
func write(t testing.TB, files map[string][]byte) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, content := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o777))
		require.NoError(t, os.WriteFile(file, content, 0o666))
	}
	return dir
}

// naive decodes a file pixel by pixel.
func naive(t *testing.T, content []byte) (values []float64) {
	t.Helper()
	img, _, err := image.Decode(bytes.NewReader(content))
	require.NoError(t, err)
	for c := range 3 {
		for y := range img.Bounds().Dy() {
			for x := range img.Bounds().Dx() {
				p := color.NRGBAModel.Convert(img.At(x, y)).(color.NRGBA)
				values = append(values, float64(float32([]uint8{p.R, p.G, p.B}[c])/255))
			}
		}
	}
	return values
}

type rank struct{ rank, size int }

func (r rank) Rank() int { return r.rank }
func (r rank) Size() int { return r.size }

// Every image comes once an epoch, on any number of ranks, with its class and the pixels of a separate decoder.
func TestFolder(t *testing.T) {
	files, want := map[string][]byte{},
		[]string{"ant/a.gif", "ant/b.JPEG", "ant/z.png", "ant/more/c.bmp", "ant/more/d.tif", "bee/a.jpg", "bee/a.png"}
	for i, name := range want {
		files[name] = encode(t, filepath.Ext(name), picture(4, 5, i)) // in so narrow ones, chroma is not smoothed
	}
	files["ant/.hidden"], files["bee/.cache/x.txt"], files["README.txt"], files[".git/config"] = nil, nil, nil, nil
	dir := write(t, files)
	f, err := Open(dir, Config{Height: 5, Width: 4})
	require.NoError(t, err)
	assert.Equal(t, []string{"ant", "bee"}, f.Classes)
	assert.Equal(t, "7 images of 2 classes from "+dir, f.String())
	require.Equal(t, len(want), f.Len())
	for i, name := range want {
		assert.Equal(t, filepath.Join(dir, filepath.FromSlash(name)), f.File(i))
	}
	for ranks := 1; ranks <= 3; ranks++ {
		seen := make([]bool, len(want))
		for r := range ranks {
			l := data.NewLoader(f, data.Config{Batch: 4, Shuffle: true, Sharder: rank{r, ranks}})
			for _, b := range l.Epoch(t.Context(), 2) {
				for row := range b.Rows {
					x := tensor.Floats(b.X)[row*60 : (row+1)*60]
					i := slices.IndexFunc(want, func(name string) bool { return slices.Equal(x, naive(t, files[name])) })
					require.GreaterOrEqual(t, i, 0, "pixels of no file")
					require.False(t, seen[i], "%s comes twice", want[i])
					seen[i] = true
					assert.Equal(t, want[i][:3], f.Classes[tensor.Data[int64](b.Y)[row]])
				}
			}
			require.NoError(t, l.Err())
		}
		assert.NotContains(t, seen, false, "%d ranks", ranks)
	}
}

// The classes of a training set keep their numbers in a test set that does not have all of them.
func TestClasses(t *testing.T) {
	dir := write(t, map[string][]byte{"dog/1.webp": webpPixel})
	f, err := Open(dir, Config{Height: 1, Width: 1, Classes: []string{"cat", "dog"}})
	require.NoError(t, err)
	x, y := tensor.FromSlice(make([]float32, 3), 1, 3, 1, 1), tensor.FromSlice(make([]int64, 1), 1)
	require.NoError(t, f.Batch([]int{0}, x, y))
	assert.Equal(t, []int64{1}, tensor.Data[int64](y))
	assert.Equal(t, naive(t, webpPixel), tensor.Floats(x))
	_, err = Open(write(t, map[string][]byte{"test/1.webp": webpPixel}), Config{Height: 1, Width: 1, Classes: []string{"test"}})
	require.NoError(t, err)
}

func TestOpenErrors(t *testing.T) {
	p := encode(t, ".png", picture(1, 1, 0))
	ok := Config{Height: 2, Width: 2}
	for _, c := range []struct {
		files map[string][]byte
		cfg   Config
		want  string
	}{
		{nil, ok, "DIR has no folders, one for each class"},
		{map[string][]byte{"x.png": p, "a/x.png": p}, ok, "DIR/x.png lies in no class's folder: move it to one"},
		{map[string][]byte{"a/x.png": p, "b/.x.png": p}, ok, "folder DIR/b has no images: remove it, or put some there"},
		{map[string][]byte{"a/x.png": p, "__MACOSX/x.png": p, "b/Thumbs.db": p}, ok, "folder DIR/b has no images: remove it, or put some there"},
		{map[string][]byte{"a/x.png": p, "a/x.txt": p}, ok,
			"DIR/a/x.txt does not have the extension of an image: remove it, or name it with one of [.bmp .gif .jpeg .jpg .png .tif .tiff .webp]"},
		{map[string][]byte{"train/a/x.png": p, "test/a/x.png": p}, ok,
			"DIR has sets, not classes: open each of [test train], with the Classes of the first; if these are classes, give Config.Classes"},
		{map[string][]byte{"a/x.png": p}, Config{Height: 2, Width: 2, Classes: []string{"b"}}, `folder DIR/a is not one of the classes ["b"]`},
	} {
		dir := write(t, c.files)
		_, err := Open(dir, c.cfg)
		require.Error(t, err, c.want)
		assert.Equal(t, "data/images: "+c.want, filepath.ToSlash(string(bytes.ReplaceAll([]byte(err.Error()), []byte(dir), []byte("DIR")))))
	}
	none := filepath.Join(t.TempDir(), "none")
	_, err := Open(none, ok)
	require.ErrorContains(t, err, none)
	assert.ErrorIs(t, err, os.ErrNotExist)
	dir := write(t, map[string][]byte{"a/x.png": p})
	if os.Symlink(dir, filepath.Join(dir, "a", "again")) == nil { // not everywhere allowed
		_, err = Open(dir, ok)
		assert.ErrorContains(t, err, "again is not a regular file")
		for _, name := range []string{"b", "a/b.png"} {
			dir := write(t, map[string][]byte{"a/x.png": p})
			require.NoError(t, os.Symlink("nowhere", filepath.Join(dir, name)))
			_, err = Open(dir, ok)
			require.ErrorIs(t, err, os.ErrNotExist)
			assert.ErrorContains(t, err, filepath.Join(dir, name)+" is a link to nowhere")
		}
	}
}

// Names are those that the file system has, also if they are no text.
func TestNames(t *testing.T) {
	p := encode(t, ".png", picture(1, 1, 0))
	for _, name := range []string{"b c/ \n.png", "a/\xff\xfe.png", "\xe4/\xff/1.png"} {
		dir := t.TempDir()
		file := filepath.Join(dir, filepath.FromSlash(name))
		if os.MkdirAll(filepath.Dir(file), 0o777) != nil || os.WriteFile(file, p, 0o666) != nil {
			continue // not everywhere allowed
		}
		f, err := Open(dir, Config{Height: 1, Width: 1})
		require.NoError(t, err, "%q", name)
		require.Equal(t, file, f.File(0))
		require.NoError(t, f.Batch([]int{0}, tensor.FromSlice(make([]float32, 3), 1, 3, 1, 1), tensor.FromSlice(make([]int64, 1), 1)))
	}
}

// A broken file stops the loop with an error that names the sample and the file.
func TestBrokenFile(t *testing.T) {
	good := encode(t, ".jpg", picture(40, 30, 1))
	files := map[string][]byte{}
	for i := range 9 {
		files[fmt.Sprintf("a/%d.jpg", i)] = good
	}
	files["a/5.jpg"] = good[:len(good)/2]
	dir := write(t, files)
	f, err := Open(dir, Config{Height: 4, Width: 4})
	require.NoError(t, err)
	l := data.NewLoader(f, data.Config{Batch: 4})
	steps := 0
	for range l.Epoch(t.Context(), 0) {
		steps++
	}
	assert.Equal(t, 1, steps)
	file := filepath.Join(dir, "a", "5.jpg")
	assert.ErrorContains(t, l.Err(), "data: epoch 0, batch 1: 9 images of 1 classes from "+dir+", sample 5: "+file+": jpeg: ")

	require.NoError(t, os.Remove(file))
	l = data.NewLoader(f, data.Config{Batch: 9})
	for range l.Epoch(t.Context(), 0) {
		assert.Fail(t, "yielded")
	}
	require.ErrorIs(t, l.Err(), os.ErrNotExist)
	assert.ErrorContains(t, l.Err(), "sample 5: ")
	assert.ErrorContains(t, l.Err(), file)
}

// Of several broken files the first in the batch is named, whichever fails first in time.
func TestFirstBrokenFile(t *testing.T) {
	slow := encode(t, ".png", picture(900, 900, 1))
	dir := write(t, map[string][]byte{"a/0.png": slow[:len(slow)-20], "a/1.png": {}, "a/2.png": {}})
	f, err := Open(dir, Config{Height: 4, Width: 4})
	require.NoError(t, err)
	x, y := tensor.New(cpu.New(1), tensor.Float32, 3, 3, 4, 4), tensor.New(cpu.New(1), tensor.Int64, 3)
	for range 5 {
		assert.ErrorContains(t, f.Batch([]int{2, 0, 1}, x, y), "2.png")
		assert.ErrorContains(t, f.Batch([]int{0, 1, 2}, x, y), "0.png")
	}
}
