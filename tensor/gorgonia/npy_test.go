package gorgonia

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	gt "gorgonia.org/tensor"

	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

// npyFile is a file as NumPy writes it.
func npyFile(header string, elems ...byte) string {
	return "\x93NUMPY\x01\x00" + string([]byte{byte(len(header)), byte(len(header) >> 8)}) + header + string(elems)
}

func writeNpy(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "a.npy")
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	return file
}

func TestNpyRoundTrip(t *testing.T) {
	for _, x := range []tensor.Tensor{
		tensor.FromSlice([]float32{1.5, -2, 3, 4, 5, 6e30}, 3, 2),
		tensor.FromSlice([]float64{1e300, -0.1}, 2),
		tensor.FromSlice([]int32{-1 << 31, 7}, 1, 2),
		tensor.FromSlice([]int64{-1 << 63, 1<<63 - 1, 0}, 3, 1, 1),
		tensor.FromSlice([]uint8{0, 1, 255}, 3),
		tensor.FromSlice([]bool{true, false, false, true}, 2, 2),
		tensor.FromSlice([]float32{42}),
		tensor.FromSlice([]bool{true}),
	} {
		file := filepath.Join(t.TempDir(), "x.npy")
		require.NoError(t, SaveNpy(file, x))
		y, err := LoadNpy(file)
		require.NoError(t, err, x.Shape())
		assert.Equal(t, x.Shape(), y.Shape())
		assert.Equal(t, x.Bytes(), y.Bytes())
		left, err := os.ReadDir(filepath.Dir(file))
		require.NoError(t, err)
		assert.Len(t, left, 1, "no temporary file stays")
	}
}

// The file that NumPy 2.4 wrote for np.array([[1.5, -2], [3, 4], [5, 6e30]], dtype=np.float32).
func TestNpyOfNumPy(t *testing.T) {
	elems, err := hex.DecodeString("0000c03f000000c000004040000080400000a04017769772")
	require.NoError(t, err)
	header := "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }" + "                                                          \n"
	x, err := LoadNpy(writeNpy(t, npyFile(header, elems...)))
	require.NoError(t, err)
	assert.Equal(t, "float32[3,2]", x.Shape().String())
	assert.Equal(t, []float32{1.5, -2, 3, 4, 5, 6e30}, tensor.Data[float32](x))

	x, err = LoadNpy(writeNpy(t, npyFile("{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }\n", 1, 0, 1)))
	require.NoError(t, err)
	assert.Equal(t, []bool{true, false, true}, tensor.Data[bool](x))
	x, err = LoadNpy(writeNpy(t, npyFile("{'descr': '|b1', 'fortran_order': False, 'shape': (2,), }\n", 0, 200)))
	require.NoError(t, err)
	assert.Equal(t, []byte{0, 1}, x.Bytes())
	x, err = LoadNpy(writeNpy(t, npyFile("{'descr': '<i4', 'fortran_order': False, 'shape': (0, 3), }\n")))
	require.NoError(t, err)
	assert.Equal(t, "int32[0,3]", x.Shape().String())
}

func TestLoadNpyErrors(t *testing.T) {
	head := func(descr, order, shape string) string {
		return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n"
	}
	for want, content := range map[string]string{
		"not a .npy file":                     "PK\x03\x04 and so on",
		"version 2.0":                         "\x93NUMPY\x02\x00\x00\x00\x00\x00",
		"header is truncated":                 "\x93NUMPY\x01\x00\x10\x00{",
		"cannot read the header \"{}\"":       npyFile("{}"),
		"type \">f4\"":                        npyFile(head(">f4", "False", "(1,)"), 0, 0, 0, 0),
		"type \"<f2\"":                        npyFile(head("<f2", "False", "(1,)"), 0, 0),
		"Fortran order":                       npyFile(head("<f4", "True", "(1,)"), 0, 0, 0, 0),
		"[2] float32 are 8 bytes, the file h": npyFile(head("<f4", "False", "(2,)"), 0, 0, 0, 0),
		"1 bytes, the file has 2":             npyFile(head("|u1", "False", "()"), 1, 2),
		"(9223372036854775807,)":              npyFile(head("<f4", "False", "(9223372036854775807,)")),
		"(2305843009213693952,) is too large": npyFile(head("<f4", "False", "(2305843009213693952,)")),
		"too large":                           npyFile(head("<f4", "False", "(4294967296, 4294967296)")),
		"(1, 1, 1, 1, 1, 1, 1)":               npyFile(head("<f4", "False", "(1, 1, 1, 1, 1, 1, 1)"), 0, 0, 0, 0),
		"invalid syntax":                      npyFile(head("<f4", "False", "(1,,1)"), 0, 0, 0, 0),
	} {
		file := writeNpy(t, content)
		_, err := LoadNpy(file)
		assert.ErrorContains(t, err, want)
		assert.ErrorContains(t, err, file)
	}
	_, err := LoadNpy(filepath.Join(t.TempDir(), "x"))
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestSaveNpyErrors(t *testing.T) {
	x := tensor.FromSlice([]float32{1}, 1)
	dir := t.TempDir()
	assert.ErrorIs(t, SaveNpy(filepath.Join(dir, "no", "x.npy"), x), os.ErrNotExist)
	file := filepath.Join(dir, "d")
	require.NoError(t, os.MkdirAll(filepath.Join(file, "e"), 0o700))
	assert.ErrorContains(t, SaveNpy(file, x), "writing "+file)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, left, 1, "the temporary file is removed")
	assert.ErrorContains(t, SaveNpy(file, tensor.Tensor{}), "none")
}

// LoadNpy does not use gorgonia's reader, because that is wrong here. If this test fails, gorgonia has fixed it.
func TestGorgoniaStillMisreadsNpy(t *testing.T) {
	read := func(content string) (*gt.Dense, error) {
		d := new(gt.Dense)
		return d, d.ReadNpy(strings.NewReader(content))
	}
	bools, err := read(npyFile("{'descr': '|b1', 'fortran_order': False, 'shape': (2,), }\n", 1, 1))
	require.NoError(t, err)
	assert.Equal(t, []bool{false, false}, bools.Data())
	big, err := read(npyFile("{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }\n", 0x3f, 0x80, 0, 0))
	require.NoError(t, err)
	assert.NotEqual(t, []float32{1}, big.Data())
	_, err = read(npyFile("{'descr': '<i8', 'fortran_order': False, 'shape': (1,), }\n", 1, 0, 0, 0, 0, 0, 0, 0))
	assert.ErrorContains(t, err, "invalid type *int")
}

func FuzzNpy(f *testing.F) {
	f.Add([]byte(npyFile("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }\n", 1, 2, 3, 4)))
	f.Add([]byte(npyFile("{'descr': '|b1', 'fortran_order': False, 'shape': (2, 1), }\n", 1, 2)))
	f.Add([]byte(npyFile("{'descr': '|u1', 'fortran_order': False, 'shape': (), }\n", 1)))
	f.Fuzz(func(t *testing.T, b []byte) {
		reliability.Bounded(t, len(b), func() {
			if x, err := parseNpy(b); err == nil {
				require.LessOrEqual(t, len(x.Bytes()), len(b))
			}
		})
	})
}
