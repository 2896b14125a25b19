package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// Limits for sizes in a file: the library allocates memory of these sizes before it checks them.
const (
	maxFooter     = 1 << 24 // bytes
	maxPageHeader = 1 << 16 // bytes
	maxPage       = 1 << 28 // bytes, uncompressed
	maxPageValues = 1 << 26
)

// checkFooter returns an error unless the lengths in a footer fit into it.
func checkFooter(from io.ReaderAt, size int64) error {
	if size < 12 {
		return fmt.Errorf("%d bytes are no Parquet file", size)
	}
	var end [8]byte
	if _, err := from.ReadAt(end[:], size-8); err != nil {
		return err
	}
	if string(end[4:]) != "PAR1" {
		return errors.New("does not end as a Parquet file: truncated, encrypted, or of another format")
	}
	n := int64(binary.LittleEndian.Uint32(end[:]))
	if n > size-12 || n > maxFooter {
		return fmt.Errorf("a footer of %d bytes: the file has %d in all, and at most %d are read", n, size, maxFooter)
	}
	footer := make([]byte, n)
	if _, err := from.ReadAt(footer, size-8-n); err != nil {
		return err
	}
	w := walker{b: footer}
	if err := w.skip(typeStruct, 0); err != nil {
		return fmt.Errorf("the footer: at byte %d: %w", w.at, err)
	}
	return nil
}

// codecs are the supported ones. LZ4 is not one of them: the library returns wrong numbers for other writers' files, and allocates without
// limit for broken ones.
var codecs = []format.CompressionCodec{format.Uncompressed, format.Snappy, format.Gzip, format.Brotli, format.Zstd}

// checkPages checks the headers of a column's pages.
func (r *reader) checkPages(c *format.ColumnMetaData) error {
	if !slices.Contains(codecs, c.Codec) {
		return fmt.Errorf("compressed by %v: want one of %v", c.Codec, codecs)
	}
	at := c.DataPageOffset
	if c.DictionaryPageOffset != 0 {
		at = c.DictionaryPageOffset
	}
	if at < 0 || c.TotalCompressedSize < 0 || at > r.size || c.TotalCompressedSize > r.size-at {
		return fmt.Errorf("pages at bytes %d to %d+%d, outside of the file", at, at, c.TotalCompressedSize)
	}
	for end := at + c.TotalCompressedSize; at < end; {
		text := make([]byte, min(maxPageHeader, end-at))
		if _, err := r.from.ReadAt(text, at); err != nil {
			return fmt.Errorf("at byte %d: %w", at, err)
		}
		w := walker{b: text}
		if err := w.skip(typeStruct, 0); err != nil {
			return fmt.Errorf("the header of a page: at byte %d: %w", at+int64(w.at), err)
		}
		var h format.PageHeader
		if err := thrift.Unmarshal(&thrift.CompactProtocol{}, text[:w.at], &h); err != nil {
			return fmt.Errorf("the header of a page: at byte %d: %w", at, err)
		}
		values := max(h.DataPageHeader.V.NumValues, h.DataPageHeaderV2.V.NumValues, h.DictionaryPageHeader.V.NumValues)
		if h.CompressedPageSize < 0 || int64(h.CompressedPageSize) > end-at-int64(w.at) {
			return fmt.Errorf("a page of %d bytes at byte %d, where %d are left", h.CompressedPageSize, at, end-at-int64(w.at))
		}
		if h.UncompressedPageSize > maxPage || values > maxPageValues {
			return fmt.Errorf("a page of %d bytes uncompressed and %d values at byte %d: at most %d and %d are read",
				h.UncompressedPageSize, values, at, maxPage, maxPageValues)
		}
		at += int64(w.at)
		if err := inflates(c.Codec, &h, io.NewSectionReader(r.from, at, int64(h.CompressedPageSize))); err != nil {
			return fmt.Errorf("a page at byte %d: %w", at, err)
		}
		at += int64(h.CompressedPageSize)
	}
	return nil
}

// The types of Thrift's compact protocol (https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md).
const (
	typeTrue   = 1
	typeFalse  = 2
	typeByte   = 3
	typeInt16  = 4
	typeInt64  = 6
	typeDouble = 7
	typeBinary = 8
	typeList   = 9
	typeSet    = 10
	typeMap    = 11
	typeStruct = 12

	maxDepth = 32
)

// walker parses values of the compact protocol.
type walker struct {
	b  []byte
	at int
}

var errLength = errors.New("a length beyond the end")

// skip skips a value. It checks that no length in it is larger than the rest of the bytes.
func (w *walker) skip(kind byte, depth int) error {
	switch {
	case depth > maxDepth:
		return errors.New("nested too deep")
	case kind == typeTrue || kind == typeFalse: // in a list; in a struct, the type is the value
		return w.pass(1)
	case kind == typeByte:
		return w.pass(1)
	case kind >= typeInt16 && kind <= typeInt64:
		_, err := w.varint()
		return err
	case kind == typeDouble:
		return w.pass(8)
	case kind == typeBinary:
		n, err := w.varint()
		if err != nil {
			return err
		}
		return w.pass(n)
	case kind == typeList || kind == typeSet:
		return w.list(depth)
	case kind == typeMap:
		return errors.New("a map, which no header has")
	case kind == typeStruct:
		return w.structure(depth)
	}
	return fmt.Errorf("no type %d", kind)
}

func (w *walker) pass(n uint64) error {
	if n > uint64(len(w.b)-w.at) {
		return errLength
	}
	w.at += int(n)
	return nil
}

func (w *walker) varint() (uint64, error) {
	v, n := binary.Uvarint(w.b[w.at:])
	if n <= 0 {
		return 0, errLength
	}
	w.at += n
	return v, nil
}

func (w *walker) list(depth int) error {
	if err := w.pass(1); err != nil {
		return err
	}
	kind, n := w.b[w.at-1]&15, uint64(w.b[w.at-1]>>4)
	if n == 15 {
		var err error
		if n, err = w.varint(); err != nil {
			return err
		}
	}
	if n > uint64(len(w.b)-w.at) { // each element has at least one byte
		return errLength
	}
	for range n {
		if err := w.skip(kind, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) structure(depth int) error {
	for {
		if err := w.pass(1); err != nil {
			return err
		}
		head := w.b[w.at-1]
		if head == 0 {
			return nil
		}
		if head>>4 == 0 { // the field's number follows
			if _, err := w.varint(); err != nil {
				return err
			}
		}
		if kind := head & 15; kind != typeTrue && kind != typeFalse {
			if err := w.skip(kind, depth+1); err != nil {
				return err
			}
		}
	}
}
