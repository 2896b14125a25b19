package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// file returns a header followed by data, without any check.
func file(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, data)...)
}

func read(b []byte) (*Header, error) { return Read("f.safetensors", bytes.NewReader(b), int64(len(b))) }

func TestRoundTrip(t *testing.T) {
	in := []Tensor{
		{Name: "b", DType: F32, Shape: []int{2, 3}}, {Name: "a", DType: BF16, Shape: []int{5}}, {Name: "scalar", DType: F64, Shape: []int{}},
		{Name: "none", DType: F32, Shape: []int{0, 4}}, {Name: "quote\"<ü>", DType: U8, Shape: []int{3}},
		{Name: "a.f4", DType: "F4", Shape: []int{2, 3}},
	}
	h, err := New(in, map[string]string{"format": "pt", "k": "<v>"})
	require.NoError(t, err)
	require.Equal(t, int64(8+24+10+3+3), h.DataSize())
	head := h.Encode()
	require.Equal(t, h.Size, int64(len(head)))
	require.Zero(t, len(head)%8)
	got, err := read(append(head, make([]byte, h.DataSize())...))
	require.NoError(t, err)
	require.Equal(t, h, got)
	require.Equal(t, "scalar", got.Tensors[0].Name, "the largest elements first")
	require.Equal(t, 6, got.Tensors[1].Len())

	empty, err := New(nil, nil)
	require.NoError(t, err)
	got, err = read(empty.Encode())
	require.NoError(t, err)
	require.Empty(t, got.Tensors)
}

func TestNewRefuses(t *testing.T) {
	var large []Tensor // each size is allowed, their sum is not
	for _, name := range strings.Split("abcdefghi", "") {
		large = append(large, Tensor{Name: name, DType: F64, Shape: []int{1<<57 - 1}})
	}
	for want, ts := range map[string][]Tensor{
		"unknown dtype":          {{Name: "x", DType: "F33"}},
		"there twice":            {{Name: "x", DType: F32}, {Name: "x", DType: F64}},
		"does not allow":         {{Name: metadataKey, DType: F32}},
		"overflows":              {{Name: "x", DType: F32, Shape: []int{1 << 40, 1 << 40}}},
		"negative":               {{Name: "x", DType: F32, Shape: []int{-1}}},
		"larger than":            large,
		"no whole number":        {{Name: "x", DType: "F4", Shape: []int{3}}},
		"the format allows 1000": {{Name: strings.Repeat("x", MaxHeader), DType: F32}},
	} {
		if (want == "the format allows 1000") != reliability.Long(t) { // it fills a header of 100 MB
			continue
		}
		_, err := New(ts, nil)
		require.ErrorContains(t, err, want)
	}
}

func TestLongNewRefuses(t *testing.T) { reliability.AsLong(t, TestNewRefuses) }

// TestBroken has every kind of invalid header and its error.
func TestBroken(t *testing.T) {
	one := func(entry string) []byte { return file(`{"x":`+entry+`}`, 8) }
	two := func(a, b string) []byte {
		return file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":`+a+`},"b":{"dtype":"F32","shape":[1],"data_offsets":`+b+`}}`, 8)
	}
	for want, b := range map[string][]byte{
		"too few":                                {1, 2, 3},
		"this is a Git LFS pointer":              []byte("version https://git-lfs.github.com/spec/v1\n"),
		"this is a web page":                     []byte("<!doctype html>"),
		"the file is empty":                      {},
		"a header of 9223372036854775808 bytes":  binary.LittleEndian.AppendUint64(nil, 1<<63),
		"a header of 18446744073709551615 bytes": binary.LittleEndian.AppendUint64(nil, math.MaxUint64),
		"a header of 99999999 bytes in a file":   binary.LittleEndian.AppendUint64(nil, 99999999),
		"not begin with {":                       file("", 0),
		"f.safetensors: the header does":         file(` {"x":1}`, 0),
		"not UTF-8":                              file("{\"\xff\":1}", 0),
		"not JSON":                               file("{", 0),
		"header is not JSON":                     file(`{} x`, 0),
		`tensor "x": 1 where { should be`:        one("1"),
		`tensor "x": unknown key "y"`:            one(`{"y":1}`),
		`"shape" is there twice`:                 one(`{"shape":[],"shape":[]}`),
		"not all there":                          one(`{"dtype":"F32","shape":[2]}`),
		`unknown dtype "F31"`:                    one(`{"dtype":"F31","shape":[2],"data_offsets":[0,8]}`),
		"where a string should be":               one(`{"dtype":5,"shape":[2],"data_offsets":[0,8]}`),
		"-1 is not an integer":                   one(`{"dtype":"F32","shape":[-1],"data_offsets":[0,8]}`),
		"1.5 is not an integer":                  one(`{"dtype":"F32","shape":[1.5],"data_offsets":[0,8]}`),
		"9223372036854775808 is not an integer":  one(`{"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8]}`),
		"overflows":                              one(`{"dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}`),
		"data_offsets are 3, not two":            one(`{"dtype":"F32","shape":[2],"data_offsets":[0,8,9]}`),
		"[8,0] for the 8 bytes":                  one(`{"dtype":"F32","shape":[2],"data_offsets":[8,0]}`),
		"[0,4] for the 8 bytes":                  one(`{"dtype":"F32","shape":[2],"data_offsets":[0,4]}`),
		"the file is cut off, get it again":      one(`{"dtype":"F32","shape":[4],"data_offsets":[0,16]}`),
		"trailing garbage":                       one(`{"dtype":"F32","shape":[1],"data_offsets":[0,4]}`),
		`tensor "b": data_offsets [0,4] overlap`: two("[0,4]", "[0,4]"),
		`tensor "b": data_offsets [2,6] overlap`: two("[0,4]", "[2,6]"),
		`tensor "a": data_offsets [4,8] leave a`: two("[4,8]", "[4,8]"),
		`tensor "x": the name is there twice`: file(
			`{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"x":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8),
		`the key "k" is there twice`: file(`{"__metadata__":{"k":"1","k":"2"}}`, 0),
		"2 where a string":           file(`{"__metadata__":{"k":2}}`, 0),
		"{ where a string":           file(`{"__metadata__":{"k":{}}}`, 0),
	} {
		_, err := read(b)
		require.ErrorContains(t, err, want)
		var e *Error
		require.True(t, errors.As(err, &e))
		require.Equal(t, "f.safetensors", e.File)
	}
}

// TestNothingFromALength gives wrong lengths; Read must not allocate memory for them.
func TestNothingFromALength(t *testing.T) {
	hostile := [][]byte{
		binary.LittleEndian.AppendUint64(nil, 1<<63), binary.LittleEndian.AppendUint64(nil, MaxHeader),
		file(`{"x":{"dtype":"U8","shape":[72057594037927936],"data_offsets":[0,72057594037927936]}}`, 0),
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, b := range hostile {
		_, err := read(b)
		require.Error(t, err)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
}

// TestBombs has headers whose entries are far larger in memory than in the file. The long form has long texts, too.
func TestBombs(t *testing.T) {
	n := 10_000
	if reliability.Long(t) {
		n = 10_000_000
	}
	several := func(n int, entry string) string {
		var s strings.Builder
		for i := range n {
			fmt.Fprintf(&s, entry, i)
		}
		return strings.TrimSuffix(s.String(), ",")
	}
	for want, header := range map[string]string{
		"it would take more than ":       `{"__metadata__":{` + several(200_000, `"%x":"",`) + `}}`,
		"it would take more than":        `{` + several(150_000, `"%x":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},`) + `}`,
		"more than 64 numbers in a list": `{"x":{"dtype":"F32","data_offsets":[0,0],"shape":[` + strings.Repeat("1,", n/5) + `0]}}`,
		`tensor "xxxxx`:                  `{"` + strings.Repeat("x", n) + `":{"dtype":"F32","shape":[],"data_offsets":[0,1]}}`,
		"unknown dtype":                  `{"x":{"dtype":"` + strings.Repeat("x", n) + `","shape":[],"data_offsets":[0,1]}}`,
		"unknown key":                    `{"x":{"` + strings.Repeat("x", n) + `":1}}`,
		"is not an integer":              `{"x":{"shape":[` + strings.Repeat("1", n) + `]}}`,
	} {
		if strings.HasPrefix(want, "it would") && reliability.Long(t) {
			continue
		}
		b := file(header, 0)
		reliability.Bounded(t, len(b), func() {
			_, err := read(b)
			require.ErrorContains(t, err, want)
			require.Less(t, len(err.Error()), 1000)
		})
	}
}

func TestLongBombs(t *testing.T) { reliability.AsLong(t, TestBombs) }

// FuzzRead: an accepted header is consistent, and encoding it again does not change its meaning.
func FuzzRead(f *testing.F) {
	h, err := New([]Tensor{{Name: "w", DType: F32, Shape: []int{2, 2}}, {Name: "b", DType: BF16, Shape: []int{3}}},
		map[string]string{"format": "pt"})
	require.NoError(f, err)
	f.Add(append(h.Encode(), make([]byte, h.DataSize())...))
	f.Add(file(`{"x":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"y":{"shape":[],"dtype":"BOOL","data_offsets":[0,1]}}  `, 1))
	f.Add(file(`{"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]},"__metadata__":{}}`, 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		var h *Header
		var err error
		reliability.Bounded(t, len(b), func() { h, err = read(b) })
		if err != nil {
			return
		}
		end := int64(0)
		for _, x := range h.Tensors {
			require.Equal(t, end, x.Start)
			require.Equal(t, int64(x.Len())*int64(x.DType.Bits()), 8*(x.End-x.Start))
			end = x.End
		}
		require.Equal(t, int64(len(b)), h.Size+end)
		again := *h
		text := again.Encode()
		again.Size = int64(len(text))
		got, err := read(append(text, make([]byte, end)...))
		require.NoError(t, err)
		require.Equal(t, &again, got)
	})
}
