package images

import (
	"bytes"
	"cmp"
	"image/png"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Pictures are read as Pillow reads them: the files in testdata.
func TestPillow(t *testing.T) {
	require.GreaterOrEqual(t, comparePillow(t, "testdata"), 6)
}

// The same for every kind of picture that Pillow writes.
func TestPythonPillow(t *testing.T) {
	name := cmp.Or(os.Getenv("RINGO_PYTHON"), "python3")
	if out, err := exec.Command(name, "-I", "-c", "from PIL import Image").CombinedOutput(); err != nil {
		if os.Getenv("RINGO_PYTHON") != "" {
			t.Fatalf("%v: %s", err, out)
		}
		t.Skip("no Python with Pillow: pip install pillow")
	}
	dir := t.TempDir()
	out, err := exec.Command(name, "-I", "testdata/write.py", dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	n := comparePillow(t, dir)
	t.Logf("%d pictures", n)
	require.GreaterOrEqual(t, n, 120)
}

// comparePillow compares the files of a folder with the PNG beside each, which is what Pillow reads, and returns their number. Without a
// PNG, the file is refused.
func comparePillow(t *testing.T, dir string) (n int) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		name := e.Name()
		if strings.HasSuffix(name, ".py") || strings.Count(name, ".") > 1 {
			continue
		}
		n++
		content, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		beside, err := os.ReadFile(filepath.Join(dir, name+".png"))
		if err != nil {
			err := decode(content, 2, 2, nil, make([]float32, 12), alone())
			assert.ErrorContains(t, err, "convert it to PNG", name)
			continue
		}
		want, err := png.Decode(bytes.NewReader(beside))
		require.NoError(t, err)
		h, w := want.Bounds().Dy(), want.Bounds().Dx()
		got := make([]float32, 3*h*w)
		if err := decode(content, h, w, nil, got, alone()); err != nil {
			assert.NoError(t, err, name)
			continue
		}
		most, mean := 0.0, 0.0
		for i, v := range naive(t, beside) {
			d := math.Abs(v-float64(got[i])) * 255
			most, mean = max(most, d), mean+d/float64(len(got))
		}
		limit, meanLimit := 0.0, 0.0
		if strings.HasSuffix(name, ".jpg") { // another inverse transform
			limit, meanLimit = 3, 0.5
		}
		if strings.HasPrefix(name, "scaled") { // Pillow rounds twice
			limit, meanLimit = 2, 0.5
		}
		assert.LessOrEqual(t, most, limit+1e-3, name)
		assert.LessOrEqual(t, mean, meanLimit+1e-3, name)
	}
	return n
}
