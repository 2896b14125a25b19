package parquet

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// page is a data page of a file that no library writes.
type page struct {
	encoding format.Encoding
	values   int32
	data     []byte
}

// built returns a file of the columns a and b of doubles (or of longs), with a dictionary of one value, and the same pages each.
func built(t testing.TB, kind format.Type, rows int64, pages ...page) []byte {
	t.Helper()
	file := []byte("PAR1")
	add := func(h format.PageHeader, data []byte) {
		h.CompressedPageSize, h.UncompressedPageSize = int32(len(data)), int32(len(data))
		file = append(append(file, marshal(t, &h)...), data...)
	}
	group := format.RowGroup{NumRows: rows}
	for _, name := range []string{"a", "b"} {
		start := int64(len(file))
		add(format.PageHeader{Type: format.DictionaryPage, DictionaryPageHeader: thrift.New(format.DictionaryPageHeader{NumValues: 1})},
			make([]byte, 8))
		first := int64(len(file))
		for _, p := range pages {
			add(format.PageHeader{Type: format.DataPage, DataPageHeader: thrift.New(format.DataPageHeader{
				NumValues: p.values, Encoding: p.encoding, DefinitionLevelEncoding: format.RLE, RepetitionLevelEncoding: format.RLE,
			})}, p.data)
		}
		group.Columns = append(group.Columns, format.ColumnChunk{MetaData: format.ColumnMetaData{Type: kind, PathInSchema: []string{name},
			NumValues: rows, TotalCompressedSize: int64(len(file)) - start, DictionaryPageOffset: start, DataPageOffset: first}})
	}
	required := thrift.New(format.Required)
	footer, err := thrift.Marshal(&thrift.CompactProtocol{}, &format.FileMetaData{Version: 1, NumRows: rows,
		RowGroups: []format.RowGroup{group},
		Schema: []format.SchemaElement{{Name: "root", NumChildren: thrift.New(int32(2))},
			{Name: "a", Type: thrift.New(kind), RepetitionType: required}, {Name: "b", Type: thrift.New(kind), RepetitionType: required}}})
	require.NoError(t, err)
	return ended(append(file, footer...), len(footer))
}

// ended adds the end of a file to its footer of n bytes.
func ended(file []byte, n int) []byte {
	return append(binary.LittleEndian.AppendUint32(file, uint32(n)), "PAR1"...)
}

// equal is a page of n times the value of the dictionary, in a run.
func equal(n int32) page {
	return page{format.RLEDictionary, n, append([]byte{1}, append(binary.AppendUvarint(nil, uint64(n)<<1), 0)...)}
}

// run is as equal, but its header says that there are ten values.
func run(e format.Encoding, data ...byte) page { return page{e, 10, data} }

// bombs are files that would take gigabytes, and their errors.
func bombs(t testing.TB) map[string][]byte {
	long := []byte{0x80, 0x80, 0x80} // begins a number
	double := func(p page) []byte { return built(t, format.Double, 10, p) }
	// A list of a million row groups in a footer, of which each has one byte.
	groups := append([]byte{0x49, 0xfc}, binary.AppendUvarint(nil, 1_000_000)...)
	groups = append(append(groups, make([]byte, 1_000_000)...), 0)
	return map[string][]byte{
		"1280000000 rows of 2 columns: it would take more": built(t, format.Double, 20*64_000_000, equal(64_000_000), equal(64_000_000)),
		"the footer: it would take more than":              ended(append([]byte("PAR1"), groups...), len(groups)),
		"a page at byte 49: it would take more than 67":    double(equal(60_000_000)),
		"it holds more than the 10 values":                 double(run(format.RLEDictionary, append(append([]byte{1}, long...), 0x40, 0)...)),
		"it holds more than the 10 values ":                double(run(format.RLEDictionary, append(append([]byte{0}, long...), 0x41)...)),
		"it holds more than the 10 values that":            double(run(format.RLE, append(append([]byte{5, 0, 0, 0}, long...), 0x40, 0)...)),
		"it holds 134217728 values, and its header says 10": double(run(format.DeltaBinaryPacked,
			append(append([]byte{0x80, 1, 4}, long...), 0x40)...)),
		"values encoded as DELTA_BYTE_ARRAY":                double(run(format.DeltaByteArray, 0)),
		"the footer says that there are 5 in the row group": built(t, format.Double, 5, equal(6)),
		`column "a" has 4 rows, the footer says 5`:          built(t, format.Double, 5, equal(4)),
	}
}

// A short file that would become long in memory is an error, which costs no more memory than its bytes justify.
func TestBombs(t *testing.T) {
	ds, err := readBytes(built(t, format.Double, 200, equal(100), equal(100)), Config{})
	require.NoError(t, err)
	require.Equal(t, 200, ds.Len())
	for want, b := range bombs(t) {
		reliability.Bounded(t, len(b), func() {
			_, err := readBytes(b, Config{})
			require.ErrorContains(t, err, want)
		})
	}
}

// The levels of a page say which values are there. They are runs, too.
func TestLevels(t *testing.T) {
	long := []byte{0x80, 0x80, 0x80, 0x40, 1} // a run of 2^26
	v1 := func(e format.Encoding, levels ...byte) (*format.PageHeader, []byte) {
		h := &format.PageHeader{Type: format.DataPage}
		h.DataPageHeader.V = format.DataPageHeader{NumValues: 10, Encoding: format.Plain, DefinitionLevelEncoding: e}
		return h, append(binary.LittleEndian.AppendUint32(nil, uint32(len(levels))), levels...)
	}
	v2 := func(nulls int32, levels ...byte) (*format.PageHeader, []byte) {
		h := &format.PageHeader{Type: format.DataPageV2}
		h.DataPageHeaderV2.V = format.DataPageHeaderV2{NumValues: 10, NumNulls: nulls, Encoding: format.Plain,
			DefinitionLevelsByteLength: int32(len(levels))}
		return h, levels
	}
	check := func(h *format.PageHeader, content []byte) error {
		return (&reader{}).checkPage(format.Uncompressed, h, io.NewSectionReader(bytes.NewReader(content), 0, int64(len(content))), nested{0, 1})
	}
	require.NoError(t, check(v1(format.RLE, 20, 1)))
	require.NoError(t, check(v2(3, 20, 1)))
	require.ErrorContains(t, check(v1(format.RLE, long...)), "it holds more than the 10 values")
	require.ErrorContains(t, check(v2(3, long...)), "it holds more than the 10 values")
	require.ErrorContains(t, check(v1(format.BitPacked, 20, 1)), "levels encoded as BIT_PACKED: want RLE")
	require.ErrorContains(t, check(v2(-1)), "10 values, of which -1 are null")
	lists := func(repetition, definition []byte) error {
		h, content := v2(3, append(repetition, definition...)...)
		h.DataPageHeaderV2.V.RepetitionLevelsByteLength = int32(len(repetition))
		h.DataPageHeaderV2.V.DefinitionLevelsByteLength = int32(len(definition))
		return (&reader{}).checkPage(format.Uncompressed, h, io.NewSectionReader(bytes.NewReader(content), 0, int64(len(content))), nested{1, 3})
	}
	require.NoError(t, lists([]byte{20, 1}, []byte{20, 3}))
	require.ErrorContains(t, lists(long, []byte{20, 3}), "it holds more than the 10 values")
	require.ErrorContains(t, lists([]byte{20, 1}, long), "it holds more than the 10 values")
	h, _ := v1(format.RLE)
	require.ErrorIs(t, check(h, []byte{9, 0, 0, 0, 1}), errLength)
	h = &format.PageHeader{Type: format.DictionaryPage}
	require.NoError(t, check(h, nil))
	h.DictionaryPageHeader.V.Encoding = format.DeltaByteArray
	require.ErrorContains(t, check(h, nil), "a dictionary encoded as DELTA_BYTE_ARRAY: want PLAIN")
}
