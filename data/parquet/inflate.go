package parquet

import (
	"bytes"
	"cmp"
	"fmt"
	"io"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/format"
	"github.com/pierrec/lz4/v4"
)

// maxWindow is the memory that any decoder of Zstandard should have (RFC 8878, 3.1.1.1.2).
const maxWindow = 8 << 20

// content returns a page's levels and the rest of it, decompressed. What holds more than its header says is an error. In pages
// of the first version, levels are compressed, too, and belong to the rest.
func content(codec format.CompressionCodec, h *format.PageHeader, page *io.SectionReader) (levels, rest []byte, err error) {
	packed := codec != format.Uncompressed
	if h.Type == format.DataPageV2 {
		v2 := &h.DataPageHeaderV2.V
		n := int64(v2.RepetitionLevelsByteLength) + int64(v2.DefinitionLevelsByteLength)
		if v2.RepetitionLevelsByteLength < 0 || v2.DefinitionLevelsByteLength < 0 || n > page.Size() {
			return nil, nil, fmt.Errorf("levels of %d and %d bytes", v2.RepetitionLevelsByteLength, v2.DefinitionLevelsByteLength)
		}
		levels = make([]byte, n)
		if _, err := io.ReadFull(page, levels); err != nil {
			return nil, nil, err
		}
		packed = packed && (!v2.IsCompressed.Valid || v2.IsCompressed.V)
		page = io.NewSectionReader(page, n, page.Size()-n)
	}
	if !packed {
		rest = make([]byte, page.Size())
		_, err = io.ReadFull(page, rest)
		return levels, rest, err
	}
	if rest, err = inflated(codec, page, int64(h.UncompressedPageSize)); err != nil {
		return nil, nil, fmt.Errorf("compressed by %v: %w", codec, err)
	}
	return levels, rest, nil
}

// inflated returns a compressed page, or an error if it has more than limit bytes.
func inflated(codec format.CompressionCodec, page *io.SectionReader, limit int64) ([]byte, error) {
	more := fmt.Errorf("it holds more than the %d bytes that its header says", limit)
	if limit < 0 {
		return nil, more
	}
	var from io.Reader
	switch codec {
	case format.Snappy:
		in := make([]byte, page.Size())
		if _, err := io.ReadFull(page, in); err != nil {
			return nil, err
		}
		n, err := snappy.DecodedLen(in)
		if err != nil {
			return nil, err
		}
		if int64(n) > limit {
			return nil, more
		}
		return snappy.Decode(nil, in)
	case format.Lz4Raw:
		in, out := make([]byte, page.Size()), make([]byte, limit)
		if _, err := io.ReadFull(page, in); err != nil {
			return nil, err
		}
		n, err := lz4.UncompressBlock(in, out)
		if err != nil { // it has one error
			return nil, fmt.Errorf("%w, or %w", more, err)
		}
		return out[:n], nil
	case format.Gzip:
		z, err := gzip.NewReader(page)
		if err != nil {
			return nil, err
		}
		from = z
	case format.Brotli:
		from = brotli.NewReader(page)
	default: // Zstd
		z, err := zstd.NewReader(page, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(uint64(max(limit, maxWindow))))
		if err != nil {
			return nil, err
		}
		defer z.Close()
		from = z
	}
	out := bytes.NewBuffer(make([]byte, 0, limit+1+bytes.MinRead))
	if n, err := out.ReadFrom(io.LimitReader(from, limit+1)); err != nil || n > limit {
		return nil, cmp.Or(err, more)
	}
	return out.Bytes(), nil
}
