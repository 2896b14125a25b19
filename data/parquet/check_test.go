package parquet

import (
	"bytes"
	"testing"

	pq "github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/bounded"
)

// A page that is larger than the rest of its column, or than the package's limits, is an error.
func TestPageLengths(t *testing.T) {
	for want, page := range map[string]struct{ compressed, size, values int32 }{
		"":                             {4, maxPage, maxPageValues},
		"a page of 5 bytes at byte 0":  {5, 4, 1},
		"a page of -1 bytes at byte 0": {-1, 4, 1},
		"a page of 268435457 bytes uncompressed and 1 values at byte 0": {4, maxPage + 1, 1},
		"a page of 4 bytes uncompressed and 67108865 values at byte 0":  {4, 4, maxPageValues + 1},
	} {
		head := format.PageHeader{Type: format.DataPage, CompressedPageSize: page.compressed, UncompressedPageSize: page.size}
		head.DataPageHeader.Valid = true
		head.DataPageHeader.V.NumValues = page.values
		text := append(marshal(t, &head), 1, 2, 3, 4)
		r := &reader{from: bytes.NewReader(append(text, make([]byte, 100)...)), size: int64(len(text)) + 100, table: rich()}
		c := &format.ColumnMetaData{TotalCompressedSize: int64(len(text))}
		if want == "" {
			require.NoError(t, pagesOf(r, c))
			c.TotalCompressedSize = r.size + 1
			assert.ErrorContains(t, pagesOf(r, c), "outside of the file")
			c.TotalCompressedSize, c.DataPageOffset = 1, -1
			assert.ErrorContains(t, pagesOf(r, c), "outside of the file")
			continue
		}
		assert.ErrorContains(t, pagesOf(r, c), want)
	}
}

// rich has a budget for any file.
func rich() *table { return &table{budget: bounded.New(1 << 40)} }

// nested is the highest levels of a column.
type nested struct{ repetition, definition int }

func (n nested) MaxRepetitionLevel() int { return n.repetition }
func (n nested) MaxDefinitionLevel() int { return n.definition }

func pagesOf(r *reader, c *format.ColumnMetaData) error {
	_, _, err := r.checkPages(c, nested{})
	return err
}

// marshal returns the bytes of a page's header.
func marshal(t testing.TB, h *format.PageHeader) []byte {
	t.Helper()
	text, err := thrift.Marshal(&thrift.CompactProtocol{}, h)
	require.NoError(t, err)
	return text
}

// A page that holds more than its header says is an error, with each compression; one that holds exactly that is not.
func TestPageHoldsMore(t *testing.T) {
	const size = 1 << 20
	for _, codec := range codecs[1:] {
		page, err := pq.LookupCompressionCodec(codec).Encode(nil, make([]byte, size))
		require.NoError(t, err)
		require.Less(t, len(page), size/10)
		kind := format.DataPageV2
		check := func(page []byte, says int32, v2 format.DataPageHeaderV2) error {
			head := format.PageHeader{Type: kind, CompressedPageSize: int32(len(page)), UncompressedPageSize: says}
			head.DataPageHeaderV2 = thrift.New(v2)
			file := append(marshal(t, &head), page...)
			r := &reader{from: bytes.NewReader(file), size: int64(len(file)), table: rich()}
			return pagesOf(r, &format.ColumnMetaData{Codec: codec, TotalCompressedSize: r.size})
		}
		require.NoError(t, check(page, size, format.DataPageHeaderV2{}), codec)
		for _, says := range []int32{size - 1, 100, 0, -1} {
			err := check(page, says, format.DataPageHeaderV2{})
			require.ErrorContains(t, err, "it holds more than the ", codec)
			require.ErrorContains(t, err, "compressed by "+codec.String())
		}
		levels := append([]byte{1, 2, 3}, page...)
		v2 := format.DataPageHeaderV2{RepetitionLevelsByteLength: 1, DefinitionLevelsByteLength: 2}
		require.NoError(t, check(levels, size+3, v2), codec)
		require.ErrorContains(t, check(levels, size-1, v2), "it holds more than the ", codec)
		v2.DefinitionLevelsByteLength = int32(len(levels))
		require.ErrorContains(t, check(levels, size, v2), "levels of 1 and ", codec)
		v2.DefinitionLevelsByteLength = -1
		require.ErrorContains(t, check(levels, size, v2), "levels of 1 and -1 bytes", codec)
		plain := format.DataPageHeaderV2{IsCompressed: thrift.New(false)}
		require.NoError(t, check(page, 10, plain), codec)
		kind = format.DataPage // and that header is not this page's
		require.ErrorContains(t, check(page, 10, plain), "it holds more than the ", codec)
		require.Error(t, check([]byte{0xff}, size, format.DataPageHeaderV2{}), codec)
	}
}

// inflating returns a file, and a copy of it whose page headers give sizes that are too small.
func inflating(t testing.TB, codec pq.WriterOption, version int) (good, bad []byte) {
	t.Helper()
	rows, one := make([]row, 200), int32(1)
	for i := range rows {
		rows[i].B = &one
	}
	good = write(t, rows, len(rows), codec, pq.DataPageVersion(version))
	bad = bytes.Clone(good)
	f, err := pq.OpenFile(bytes.NewReader(good), int64(len(good)))
	require.NoError(t, err)
	for _, c := range f.Metadata().RowGroups[0].Columns {
		at := c.MetaData.DataPageOffset
		w := walker{b: good[at:]}
		require.NoError(t, w.skip(typeStruct, 0))
		var h format.PageHeader
		require.NoError(t, thrift.Unmarshal(&thrift.CompactProtocol{}, good[at:][:w.at], &h))
		if h.UncompressedPageSize < 100 {
			continue
		}
		h.UncompressedPageSize = 64 // as many bytes in the header
		text := marshal(t, &h)
		require.Len(t, text, w.at)
		copy(bad[at:], text)
	}
	require.NotEqual(t, good, bad)
	return good, bad
}

// The same in whole files, whose pages the library would read.
func TestFileHoldsMore(t *testing.T) {
	for _, codec := range []pq.WriterOption{
		pq.Compression(&pq.Snappy), pq.Compression(&pq.Gzip), pq.Compression(&pq.Brotli), pq.Compression(&pq.Zstd),
		pq.Compression(&pq.Lz4Raw),
	} {
		for version := 1; version <= 2; version++ {
			good, bad := inflating(t, codec, version)
			ds, err := readBytes(good, Config{})
			require.NoError(t, err)
			require.Equal(t, 200, ds.Len())
			_, err = readBytes(bad, Config{})
			require.ErrorContains(t, err, `column "a": row group 0: a page at byte `)
			require.ErrorContains(t, err, "it holds more than the 64 bytes that its header says")
		}
	}
}
