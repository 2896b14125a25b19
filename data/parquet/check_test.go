package parquet

import (
	"bytes"
	"testing"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A page that is larger than the rest of its column, or than the package's bounds, is an error.
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
		text, err := thrift.Marshal(&thrift.CompactProtocol{}, &head)
		require.NoError(t, err)
		text = append(text, 1, 2, 3, 4)
		r := &reader{from: bytes.NewReader(append(text, make([]byte, 100)...)), size: int64(len(text)) + 100}
		c := &format.ColumnMetaData{TotalCompressedSize: int64(len(text))}
		if want == "" {
			require.NoError(t, r.checkPages(c))
			c.TotalCompressedSize = r.size + 1
			assert.ErrorContains(t, r.checkPages(c), "outside of the file")
			c.TotalCompressedSize, c.DataPageOffset = 1, -1
			assert.ErrorContains(t, r.checkPages(c), "outside of the file")
			continue
		}
		assert.ErrorContains(t, r.checkPages(c), want)
	}
}
