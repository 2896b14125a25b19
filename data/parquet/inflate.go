package parquet

import (
	"fmt"
	"io"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/format"
)

// inflates returns an error if a compressed page holds more than its header says. The library would allocate memory for all of it; here it
// is only counted.
func inflates(codec format.CompressionCodec, h *format.PageHeader, page *io.SectionReader) error {
	if codec == format.Uncompressed {
		return nil
	}
	if h.Type == format.DataPageV2 { // its levels, at the beginning, are not compressed
		v2 := &h.DataPageHeaderV2.V
		levels := int64(v2.RepetitionLevelsByteLength) + int64(v2.DefinitionLevelsByteLength)
		if v2.RepetitionLevelsByteLength < 0 || v2.DefinitionLevelsByteLength < 0 || levels > page.Size() {
			return fmt.Errorf("levels of %d and %d bytes", v2.RepetitionLevelsByteLength, v2.DefinitionLevelsByteLength)
		}
		if v2.IsCompressed.Valid && !v2.IsCompressed.V {
			return nil
		}
		page = io.NewSectionReader(page, levels, page.Size()-levels)
	}
	limit := int64(h.UncompressedPageSize)
	n, err := inflated(codec, page, limit)
	if err == nil && n > limit {
		err = fmt.Errorf("it holds more than the %d bytes that its header says", limit)
	}
	if err != nil {
		return fmt.Errorf("compressed by %v: %w", codec, err)
	}
	return nil
}

// inflated returns the number of bytes in a compressed page, or a number above limit.
func inflated(codec format.CompressionCodec, page *io.SectionReader, limit int64) (int64, error) {
	var from io.Reader
	switch codec {
	case format.Snappy: // the size is in its first bytes, and the library trusts it
		var first [10]byte
		n, err := page.Read(first[:])
		if err != nil && err != io.EOF {
			return 0, err
		}
		size, err := snappy.DecodedLen(first[:n])
		return int64(size), err
	case format.Gzip:
		z, err := gzip.NewReader(page)
		if err != nil {
			return 0, err
		}
		from = z
	case format.Brotli:
		from = brotli.NewReader(page)
	default: // Zstd
		z, err := zstd.NewReader(page, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxPage))
		if err != nil {
			return 0, err
		}
		defer z.Close()
		from = z
	}
	n, err := io.Copy(io.Discard, io.LimitReader(from, limit+1))
	return n, err
}
