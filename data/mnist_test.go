package data

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// writeSet writes a small set of images in the standard names; gz says which are compressed.
func writeSet(t *testing.T, dir, set string, n, side, labels int, gz bool) {
	t.Helper()
	pixels := make([]byte, n*side*side)
	for i := range pixels {
		pixels[i] = byte(i * 7)
	}
	label := make([]byte, labels)
	for i := range label {
		label[i] = byte(i % 3)
	}
	images := encodeIDX(pixels, uint32(n), uint32(side), uint32(side))
	ext := ""
	if gz {
		images, ext = compress(t, images), ".gz"
	}
	writeFile(t, dir, set+"-images-idx3-ubyte"+ext, images)
	writeFile(t, dir, set+"-labels-idx1-ubyte", encodeIDX(label, uint32(labels)))
}

// Its short form is TestResume of examples/mnist, which learns from these images.
func TestLongMNISTReal(t *testing.T) {
	reliability.SkipUnlessLong(t)
	t.Setenv("RINGO_DATA", "")
	train, test, err := MNIST("", tensor.Float32)
	require.NoError(t, err)
	assert.Equal(t, 60_000, train.Len())
	assert.Equal(t, 10_000, test.Len())
	assert.Equal(t, []byte{5, 0, 4, 1, 9}, train.labels[:5])
	assert.Equal(t, []byte{7, 2, 1, 0, 4}, test.labels[:5])
	assert.Contains(t, train.String(), "60000 images of 784 pixels from ")

	idx := []int{59_999, 0}
	x, y := tensor.FromSlice(make([]float32, 2*784), 2, 784), tensor.FromSlice(make([]int64, 2), 2)
	require.NoError(t, train.Batch(idx, x, y))
	assert.Equal(t, []int64{8, 5}, tensor.Data[int64](y))
	for row, i := range idx {
		for j, v := range tensor.Data[float32](x)[row*784 : (row+1)*784] {
			grey := float32(train.pixels[i*784+j])
			require.Equal(t, (grey/255-0.1307)/0.3081, v)
		}
	}
	var n, sum, squares float64
	for i := 0; i < len(train.pixels); i += 29 { // a sample is enough
		v := train.f64[train.pixels[i]]
		n, sum, squares = n+1, sum+v, squares+v*v
	}
	assert.InDelta(t, 0, sum/n, 5e-3)
	assert.InDelta(t, 1, math.Sqrt(squares/n), 5e-3)
}

func TestMNISTFloat64(t *testing.T) {
	dir := t.TempDir()
	writeSet(t, dir, "train", 5, 4, 5, true)
	writeSet(t, dir, "t10k", 2, 4, 2, false)
	t.Setenv("RINGO_DATA", dir)
	train, test, err := MNIST("", tensor.Float64)
	require.NoError(t, err)
	sx, sy := train.Shapes()
	assert.Equal(t, "float64[16]", sx.String())
	assert.Equal(t, "int64[]", sy.String())
	assert.Equal(t, 2, test.Len())
	x, y := tensor.FromSlice(make([]float64, 16), 1, 16), tensor.FromSlice(make([]int64, 1), 1)
	require.NoError(t, train.Batch([]int{4}, x, y))
	assert.Equal(t, []int64{1}, tensor.Data[int64](y))
	for j, v := range tensor.Data[float64](x) {
		assert.Equal(t, (float64(byte((64+j)*7))/255-0.1307)/0.3081, v)
	}
}

func TestMNISTErrors(t *testing.T) {
	t.Setenv("RINGO_DATA", t.TempDir())
	_, _, err := MNIST("", tensor.Float32)
	assert.ErrorIs(t, err, os.ErrNotExist, "a named directory without the files is an error")
	assert.ErrorContains(t, err, "no train-images-idx3-ubyte or train-images-idx3-ubyte.gz in "+os.Getenv("RINGO_DATA"))

	for want, c := range map[string]struct{ n, side, labels, testSide int }{
		"5 images in":                               {5, 4, 6, 4},
		"holds [0 4 4] elements":                    {0, 4, 0, 4},
		"training images have 16 pixels, test imag": {5, 4, 5, 3},
	} {
		dir := t.TempDir()
		writeSet(t, dir, "train", c.n, c.side, c.labels, true)
		writeSet(t, dir, "t10k", 2, c.testSide, 2, true)
		_, _, err := MNIST(dir, tensor.Float32)
		assert.ErrorContains(t, err, want)
		assert.ErrorContains(t, err, dir)
	}
	dir := t.TempDir()
	writeSet(t, dir, "train", 5, 4, 5, true)
	writeSet(t, dir, "t10k", 2, 4, 2, true)
	_, _, err = MNIST(dir, tensor.Int32)
	assert.ErrorContains(t, err, "int32")
	writeFile(t, dir, "t10k-labels-idx1-ubyte", encodeIDX(make([]byte, 4), 2, 2))
	_, _, err = MNIST(dir, tensor.Float32)
	assert.ErrorContains(t, err, "want one label an image")
}

func TestMNISTModuleIsVerified(t *testing.T) {
	cache := t.TempDir()
	dir := filepath.Join(cache, filepath.FromSlash(mnistEscaped)+"@"+mnistVersion, "data")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	file := writeFile(t, dir, "train-images-idx3-ubyte.gz", compress(t, encodeIDX([]byte{1}, 1, 1, 1)))
	t.Setenv("RINGO_DATA", "")
	t.Setenv("GOMODCACHE", cache)
	_, _, err := MNIST("", tensor.Float32)
	require.Error(t, err)
	assert.ErrorContains(t, err, file)
	assert.ErrorContains(t, err, "SHA-256 wanted "+mnistFiles["train-images-idx3-ubyte"]+", got ")
}

func TestMNISTWithoutGo(t *testing.T) {
	t.Setenv("RINGO_DATA", "")
	t.Setenv("GOMODCACHE", t.TempDir())
	t.Setenv("PATH", t.TempDir())
	_, _, err := MNIST("", tensor.Float32)
	assert.ErrorIs(t, err, exec.ErrNotFound)
	assert.ErrorContains(t, err, "Set RINGO_DATA")
	assert.ErrorContains(t, err, os.Getenv("GOMODCACHE"))
}

// Without the module and a network, the go command says why there are no images.
func TestMNISTOffline(t *testing.T) {
	t.Setenv("RINGO_DATA", "")
	t.Setenv("GOMODCACHE", t.TempDir())
	t.Setenv("GOPROXY", "off")
	_, _, err := MNIST("", tensor.Float32)
	assert.ErrorContains(t, err, "GOPROXY=off", "the go command's own words")
}

// The go command downloads the module into an empty cache, here from the files of the real one.
func TestLongMNISTDownload(t *testing.T) {
	reliability.SkipUnlessLong(t)
	out, err := exec.Command("go", "env", "GOMODCACHE").Output()
	require.NoError(t, err)
	source := filepath.Join(strings.TrimSpace(string(out)), "cache", "download")
	t.Setenv("RINGO_DATA", "")
	t.Setenv("GOMODCACHE", t.TempDir())
	t.Setenv("GOPROXY", "file://"+filepath.ToSlash(source))
	t.Setenv("GONOSUMDB", "*")
	t.Setenv("GOFLAGS", "-modcacherw") // so that the test can remove it
	train, _, err := MNIST("", tensor.Float32)
	require.NoError(t, err)
	assert.Contains(t, train.String(), os.Getenv("GOMODCACHE"))
}

func TestModuleCaches(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("USERPROFILE", home)
	t.Setenv("GOMODCACHE", "")
	t.Setenv("GOPATH", "")
	assert.Equal(t, []string{filepath.Join(home, "go", "pkg", "mod")}, moduleCaches())
	t.Setenv("GOPATH", strings.Join([]string{"a", "b"}, string(filepath.ListSeparator)))
	assert.Equal(t, []string{filepath.Join("a", "pkg", "mod")}, moduleCaches())
	t.Setenv("GOMODCACHE", "c")
	assert.Equal(t, []string{"c"}, moduleCaches())
}
