package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"

	"github.com/parquet-go/parquet-go/format"
)

// plainDictionary is the name of old files for PLAIN in a dictionary, and for RLE_DICTIONARY in other pages.
const plainDictionary format.Encoding = 2

// levels are how many the levels of a column have; it is a *parquet.Column.
type levels interface {
	MaxRepetitionLevel() int
	MaxDefinitionLevel() int
}

// checkPage checks that a page holds no more bytes and values than its header says. The library would allocate memory for all
// of them. Levels say which values are there, and where a list begins.
func (r *reader) checkPage(codec format.CompressionCodec, h *format.PageHeader, page *io.SectionReader, column levels) error {
	before, values, err := content(codec, h, page)
	if err != nil {
		return err
	}
	switch h.Type {
	case format.DictionaryPage:
		if e := h.DictionaryPageHeader.V.Encoding; e != format.Plain && e != plainDictionary {
			return fmt.Errorf("a dictionary encoded as %v: want PLAIN", e)
		}
	case format.DataPage:
		v1, n := &h.DataPageHeader.V, h.DataPageHeader.V.NumValues
		for _, level := range []struct {
			highest  int
			encoding format.Encoding
		}{{column.MaxRepetitionLevel(), v1.RepetitionLevelEncoding}, {column.MaxDefinitionLevel(), v1.DefinitionLevelEncoding}} {
			if level.highest == 0 || err != nil {
				continue
			}
			if level.encoding != format.RLE {
				return fmt.Errorf("levels encoded as %v: want RLE", level.encoding)
			}
			if before, values, err = prefixed(values); err == nil {
				err = checkRuns(before, bits.Len(uint(level.highest)), n)
			}
		}
		if err == nil {
			err = checkValues(v1.Encoding, values, n)
		}
		return err
	case format.DataPageV2:
		v2 := &h.DataPageHeaderV2.V
		if v2.NumNulls < 0 || v2.NumNulls > v2.NumValues {
			return fmt.Errorf("%d values, of which %d are null", v2.NumValues, v2.NumNulls)
		}
		repeated := v2.RepetitionLevelsByteLength
		if err := checkRuns(before[:repeated], bits.Len(uint(column.MaxRepetitionLevel())), v2.NumValues); err != nil {
			return err
		}
		if err := checkRuns(before[repeated:], bits.Len(uint(column.MaxDefinitionLevel())), v2.NumValues); err != nil {
			return err
		}
		return checkValues(v2.Encoding, values, v2.NumValues)
	}
	return nil
}

// prefixed divides bytes into those whose number they begin with and the others.
func prefixed(b []byte) (first, rest []byte, err error) {
	if len(b) < 4 || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-4) {
		return nil, nil, errLength
	}
	n := binary.LittleEndian.Uint32(b)
	return b[4:][:n], b[4:][n:], nil
}

// checkValues returns an error if there are more values than n in b.
func checkValues(e format.Encoding, b []byte, n int32) error {
	switch e {
	case format.Plain, format.ByteStreamSplit: // no longer decoded than encoded
	case plainDictionary, format.RLEDictionary:
		if len(b) > 0 {
			return checkRuns(b[1:], int(b[0]), n)
		}
	case format.RLE: // of booleans
		runs, _, err := prefixed(b)
		if err != nil {
			return err
		}
		return checkRuns(runs, 1, n)
	case format.DeltaBinaryPacked, format.DeltaLengthByteArray:
		var total uint64
		for range 3 { // the sizes of blocks, the number of their parts, the number of values
			k := 0
			if total, k = binary.Uvarint(b); k <= 0 {
				return errLength
			}
			b = b[k:]
		}
		if total > uint64(max(n, 0)) {
			return fmt.Errorf("it holds %d values, and its header says %d", total, n)
		}
	default:
		return fmt.Errorf("values encoded as %v: want PLAIN, a dictionary, RLE, DELTA_BINARY_PACKED, DELTA_LENGTH_BYTE_ARRAY or "+
			"BYTE_STREAM_SPLIT", e)
	}
	return nil
}

// checkRuns returns an error if there are many more values than n in b, which has runs and groups of eight values of some bits
// (https://parquet.apache.org/docs/file-format/data-pages/encodings). Groups may be filled up.
func checkRuns(b []byte, bits int, n int32) error {
	most := 2*uint64(max(n, 0)) + 64
	for total := uint64(0); len(b) > 0; {
		head, k := binary.Uvarint(b)
		if k <= 0 {
			return errors.New("a run without a length")
		}
		count, size := head>>1, uint64(bits+7)/8
		if head&1 != 0 {
			count, size = 8*min(count, most), min(count, most)*uint64(bits)
		}
		if total += count; count > most || total > most {
			return fmt.Errorf("it holds more than the %d values that its header says", n)
		}
		b = b[k:]
		b = b[min(size, uint64(len(b))):]
	}
	return nil
}
