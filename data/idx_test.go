package data

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// encodeIDX returns a file of unsigned bytes.
func encodeIDX(elems []byte, dims ...uint32) []byte {
	b := []byte{0, 0, idxUint8, byte(len(dims))}
	for _, d := range dims {
		b = binary.BigEndian.AppendUint32(b, d)
	}
	return append(b, elems...)
}

func compress(t testing.TB, b []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	_, err := z.Write(b)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return buf.Bytes()
}

func writeFile(t *testing.T, dir, name string, b []byte) string {
	t.Helper()
	file := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(file, b, 0o600))
	return file
}

func TestReadIDX(t *testing.T) {
	elems := bytes.Repeat([]byte{1, 2, 3}, 50_000) // larger than the first piece that is read
	plain := encodeIDX(elems, 100, 1500)
	halves := append(compress(t, plain[:99]), compress(t, plain[99:])...) // a gzip file may have several members
	for name, b := range map[string][]byte{"plain": plain, "gzip": compress(t, plain), "members": halves} {
		dims, got, err := ReadIDX(writeFile(t, t.TempDir(), name, b))
		require.NoError(t, err, name)
		assert.Equal(t, []int{100, 1500}, dims, name)
		assert.Equal(t, elems, got, name)
	}
	_, got, err := ReadIDX(writeFile(t, t.TempDir(), "none", encodeIDX(nil, 0, 5)))
	require.NoError(t, err)
	assert.Empty(t, got)
}

func TestReadIDXHostile(t *testing.T) {
	header := func(typ byte, dims ...uint32) []byte {
		b := encodeIDX(nil, dims...)
		b[2] = typ
		return b
	}
	flip := compress(t, encodeIDX([]byte{1, 2, 3}, 3))
	flip[len(flip)-6] ^= 1                                         // the checksum
	full := compress(t, encodeIDX(make([]byte, 1<<16-8), 1<<16-8)) // ends with the decompressor's window
	full[len(full)-6] ^= 1
	for _, c := range []struct {
		name   string
		b      []byte
		offset int64
		want   string
	}{
		{"empty", nil, 0, "truncated header"},
		{"short magic", []byte{0, 0, 8}, 3, "truncated header"},
		{"png", []byte("\x89PNG\r\n\x1a\n"), 0, "0x89504e47 is not that of an IDX file"},
		{"unknown type", header(0x0a, 1), 0, "not that of an IDX file"},
		{"int16", append(header(0x0b, 1), 0, 7), 2, "int16 (0x0b); only uint8"},
		{"float64", header(0x0e, 1), 2, "float64 (0x0e)"},
		{"no dimensions", header(8), 3, "no dimensions"},
		{"short dimensions", header(8, 1, 2)[:10], 10, "truncated header"},
		{"overflow", header(8, 1<<16, 1<<16, 1<<16, 1<<16), 8, "more than 2147483648 bytes"},
		{"overflow to 0", header(8, 1<<31, 1<<31, 4), 8, "more than 2147483648 bytes"},
		{"huge", header(8, 1<<31), 8, "at most 0 can be there"},
		{"truncated", encodeIDX([]byte{1, 2}, 3), 8, "truncated"},
		{"trailing", encodeIDX([]byte{1, 2, 3, 4}, 3), 11, "more data than the 3 bytes"},
		{"gzip huge", compress(t, header(8, 1<<31)), 8, "truncated"},
		{"gzip truncated", compress(t, encodeIDX([]byte{1, 2}, 3)), 10, "truncated: [3] elements are 3 bytes, 2 are there"},
		{"gzip trailing", compress(t, encodeIDX([]byte{1, 2, 3, 4}, 3)), 11, "more data"},
		{"gzip cut", compress(t, encodeIDX([]byte{1, 2, 3}, 3))[:20], 0, "unexpected EOF"},
		{"gzip header", []byte{0x1f, 0x8b, 9}, 0, "unexpected EOF"},
		{"gzip checksum", flip, 11, "invalid checksum"},
		{"gzip checksum apart", full, 1 << 16, "invalid checksum"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := writeFile(t, t.TempDir(), "f", c.b)
			_, _, err := ReadIDX(file)
			var e *IDXError
			require.ErrorAs(t, err, &e)
			assert.Equal(t, file, e.File)
			if c.name != "gzip cut" { // where the cut shows depends on the compressor
				assert.Equal(t, c.offset, e.Offset)
			}
			assert.ErrorContains(t, err, c.want)
			assert.ErrorContains(t, err, file)
		})
	}
}

// allocated returns the bytes that fn allocates.
func allocated(fn func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestReadIDXMemory(t *testing.T) {
	zeros := make([]byte, 8<<20)
	bomb := compress(t, encodeIDX(zeros, 10)) // 8 MiB behind a header that promises 10 bytes
	promise := encodeIDX(zeros[:1000], 1<<31)
	liar := compress(t, append(encodeIDX(nil, 32<<20), bytes.Repeat([]byte("a cat, "), 10_000)...))
	liar = append(liar, bytes.Repeat([]byte{7}, 40_000)...) // large enough to make the promise look possible
	for name, c := range map[string]struct {
		b    []byte
		want string
	}{"bomb": {bomb, "more data"}, "promise": {promise, "truncated"}, "liar": {liar, "gzip: invalid header"}} {
		file := writeFile(t, t.TempDir(), name, c.b)
		n := allocated(func() {
			_, _, err := ReadIDX(file)
			assert.ErrorContains(t, err, c.want, name)
		})
		assert.Less(t, n, uint64(1<<20), name)
	}
}

// A file of 34 KB that becomes 34 MB is refused, with the way out.
func TestReadIDXBomb(t *testing.T) {
	for n, want := range map[int]string{30 << 20: "", 34 << 20: "at byte 8: [35651584] elements: it would take more than"} {
		if want == "" != reliability.Long(t) {
			continue
		}
		b := compress(t, encodeIDX(make([]byte, n), uint32(n)))
		reliability.Bounded(t, len(b), func() {
			_, _, err := parseIDX("bomb", b)
			if want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, want)
			require.ErrorContains(t, err, "decompress the file with gunzip")
		})
	}
}

func TestLongReadIDXBomb(t *testing.T) { reliability.AsLong(t, TestReadIDXBomb) }

func TestReadIDXNotAFile(t *testing.T) {
	_, _, err := ReadIDX(t.TempDir())
	assert.ErrorContains(t, err, "not a regular file")
	_, _, err = ReadIDX(filepath.Join(t.TempDir(), "x"))
	assert.ErrorIs(t, err, os.ErrNotExist)
	file := writeFile(t, t.TempDir(), "sparse", nil)
	require.NoError(t, os.Truncate(file, maxIDX+1))
	_, _, err = ReadIDX(file)
	assert.ErrorContains(t, err, "2147483649 bytes, more than 2147483648")
}

func FuzzIDX(f *testing.F) {
	ok := encodeIDX([]byte{1, 2, 3, 4, 5, 6}, 2, 3)
	f.Add(ok)
	f.Add(compress(f, ok))
	f.Add(ok[:9])
	f.Add(append(ok, 0))
	f.Add(encodeIDX(nil, 1<<31, 1<<31, 4))
	f.Add(encodeIDX(nil, 0, 1<<31, 1<<31, 1<<31))
	f.Add(compress(f, make([]byte, 5000)))
	f.Add([]byte{0, 0, 0x0d, 1, 0, 0, 0, 1, 0, 0, 0, 0})
	f.Add(compress(f, encodeIDX(nil, 1<<31)))
	f.Fuzz(func(t *testing.T, b []byte) {
		var dims []int
		var elems []byte
		var err error
		reliability.Bounded(t, len(b), func() { dims, elems, err = parseIDX("fuzz", b) })
		if err != nil {
			var e *IDXError
			require.ErrorAs(t, err, &e)
			require.Equal(t, "fuzz", e.File)
			require.GreaterOrEqual(t, e.Offset, int64(0))
			require.LessOrEqual(t, e.Offset, int64(len(b))*maxDeflate)
			return
		}
		var dims32 []uint32
		for _, d := range dims {
			dims32 = append(dims32, uint32(d))
		}
		again := encodeIDX(elems, dims32...)
		if b[0] == 0 {
			require.Equal(t, b, again)
		}
		dims2, elems2, err := parseIDX("again", again)
		require.NoError(t, err)
		require.Equal(t, dims, dims2)
		require.True(t, bytes.Equal(elems, elems2))
	})
}
