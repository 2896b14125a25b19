package parquet

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"github.com/ringo-ml/ringo/internal/bounded"
)

// Limits for sizes in a file: the library allocates memory of these sizes before it checks them.
const (
	maxFooter     = 1 << 24 // bytes
	maxPageHeader = 1 << 16 // bytes
	maxPage       = 1 << 28 // bytes, uncompressed
	maxPageValues = 1 << 26
)

// checkFooter returns an error unless the lengths in a footer fit into it, and what the library makes of it into the budget.
func checkFooter(from io.ReaderAt, size int64, budget *bounded.Budget) error {
	if size < 12 {
		return fmt.Errorf("%d bytes are no Parquet file", size)
	}
	var end [8]byte
	if _, err := from.ReadAt(end[:], size-8); err != nil {
		return err
	}
	if string(end[4:]) != "PAR1" {
		return errors.New("does not end as a Parquet file: truncated, encrypted, or of another format: get it again, or write it again")
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
	if err := budget.Take(w.memory + 4*n); err != nil {
		return fmt.Errorf("the footer: %w", err)
	}
	return nil
}

// codecs are the supported ones.
var codecs = []format.CompressionCodec{format.Uncompressed, format.Snappy, format.Gzip, format.Brotli, format.Zstd, format.Lz4Raw}

// firstPage returns where a column's pages begin.
func firstPage(c *format.ColumnMetaData) int64 {
	return cmp.Or(c.DictionaryPageOffset, c.DataPageOffset)
}

// checkPages checks a column's pages. It returns the memory for the largest of them, which it takes from the budget, and the pages if the
// library must read others than those of the file.
func (r *reader) checkPages(c *format.ColumnMetaData, column levels) (again []byte, memory int64, err error) {
	if !slices.Contains(codecs, c.Codec) {
		return nil, 0, fmt.Errorf("compressed by %v: want one of %v", c.Codec, codecs)
	}
	at := firstPage(c)
	if at < 0 || c.TotalCompressedSize < 0 || at > r.size || c.TotalCompressedSize > r.size-at {
		return nil, 0, fmt.Errorf("pages at bytes %d to %d+%d, outside of the file", at, at, c.TotalCompressedSize)
	}
	kept := int64(0) // dictionaries, and pages that are read from memory
	for end := at + c.TotalCompressedSize; at < end; {
		h, n, err := r.pageHeader(at, end)
		if err != nil {
			return nil, 0, err
		}
		at += n
		values := max(h.DataPageHeader.V.NumValues, h.DataPageHeaderV2.V.NumValues, h.DictionaryPageHeader.V.NumValues)
		if h.CompressedPageSize < 0 || int64(h.CompressedPageSize) > end-at {
			return nil, 0, fmt.Errorf("a page of %d bytes at byte %d, where %d are left", h.CompressedPageSize, at-n, end-at)
		}
		if max(h.UncompressedPageSize, h.CompressedPageSize) > maxPage || values > maxPageValues {
			return nil, 0, fmt.Errorf("a page of %d bytes uncompressed and %d values at byte %d: at most %d and %d are read",
				max(h.UncompressedPageSize, h.CompressedPageSize), values, at-n, maxPage, maxPageValues)
		}
		// Of the library: the page, decompressed, its levels, offsets and values. Here: the page, decompressed.
		need := 2*int64(h.CompressedPageSize) + 4*int64(max(h.UncompressedPageSize, 0)) + 16*int64(max(values, 0))
		if h.Type == format.DictionaryPage {
			kept += need
		}
		if c.Codec == format.Lz4Raw {
			need += 3 * int64(h.CompressedPageSize)
			kept += n + 3*int64(h.CompressedPageSize)
		}
		memory = max(memory, need)
		err = r.budget.Take(need + kept)
		if err == nil {
			r.budget.Give(need + kept)
			err = r.checkPage(c.Codec, h, io.NewSectionReader(r.from, at, int64(h.CompressedPageSize)), column)
		}
		if err == nil && c.Codec == format.Lz4Raw {
			again, err = r.roomy(again, h, at)
		}
		if err != nil {
			return nil, 0, fmt.Errorf("a page at byte %d: %w", at, err)
		}
		at += int64(h.CompressedPageSize)
	}
	memory += kept
	return again, memory, r.budget.Take(memory)
}

// roomy appends a page of LZ4 with a header that says it has three times as many bytes. The library decompresses into a buffer of the size
// that the header says: if that is less than three times the page, it takes another one, whose bytes it loses.
func (r *reader) roomy(pages []byte, h *format.PageHeader, at int64) ([]byte, error) {
	large := *h
	large.UncompressedPageSize = max(h.UncompressedPageSize, 3*h.CompressedPageSize)
	text, err := thrift.Marshal(&thrift.CompactProtocol{}, &large)
	if err != nil {
		return nil, err
	}
	pages = append(pages, text...)
	from := len(pages)
	pages = append(pages, make([]byte, h.CompressedPageSize)...)
	_, err = r.from.ReadAt(pages[from:], at)
	return pages, err
}

// pageHeader reads the header of a page, and returns its length, too.
func (r *reader) pageHeader(at, end int64) (h *format.PageHeader, n int64, err error) {
	text := make([]byte, min(maxPageHeader, end-at))
	if _, err := r.from.ReadAt(text, at); err != nil {
		return nil, 0, fmt.Errorf("at byte %d: %w", at, err)
	}
	w := walker{b: text}
	if err := w.skip(typeStruct, 0); err != nil {
		return nil, 0, fmt.Errorf("the header of a page: at byte %d: %w", at+int64(w.at), err)
	}
	h = &format.PageHeader{}
	if err := thrift.Unmarshal(&thrift.CompactProtocol{}, text[:w.at], h); err != nil {
		return nil, 0, fmt.Errorf("the header of a page: at byte %d: %w", at, err)
	}
	return h, int64(w.at), nil
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

	// The library's memory for an element of a list in a footer: rows groups, columns and their parts in the schema, down to
	// the depth of columns; and anything else.
	columnBytes  = 1024
	columnDepth  = 4
	elementBytes = 64
)

// walker parses values of the compact protocol.
type walker struct {
	b      []byte
	at     int
	memory int64 // for the elements of the lists so far
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
	one := int64(elementBytes)
	if kind == typeStruct && depth < columnDepth {
		one = columnBytes
	}
	w.memory += one * int64(n)
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
