package data

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"

	"github.com/ringo-ml/ringo/internal/bounded"
)

const (
	maxIDX     = 1 << 31 // bytes of content; the largest published set of this format (EMNIST) has 638 MB
	maxDeflate = 1032    // largest number of bytes that one byte of a deflate stream can become (zlib's technical note)
	idxUint8   = 0x08
)

var idxTypes = map[byte]string{idxUint8: "uint8", 0x09: "int8", 0x0b: "int16", 0x0c: "int32", 0x0d: "float32", 0x0e: "float64"}

// IDXError says what is wrong with an IDX file, and where.
type IDXError struct {
	File   string
	Offset int64 // bytes from the start of the content, after decompression if the file is compressed
	Err    error
}

// Error returns the file, the offset and the cause.
func (e *IDXError) Error() string {
	return fmt.Sprintf("data: %s: at byte %d: %v", e.File, e.Offset, e.Err)
}

// Unwrap returns the cause.
func (e *IDXError) Unwrap() error { return e.Err }

// ReadIDX reads a file of unsigned bytes in the IDX format of MNIST (LeCun, Cortes and Burges, http://yann.lecun.com/exdb/mnist), plain or
// gzipped. It returns the dimensions, and the elements in row-major order. Files of other element types, over 2 GiB, truncated or with
// extra bytes give an *IDXError, and so do compressed files that would take far more memory than they have bytes.
func ReadIDX(file string) (dims []int, elems []byte, err error) {
	b, err := readRegular(file)
	if err != nil {
		return nil, nil, err
	}
	return parseIDX(file, b)
}

// readRegular returns the content of a regular file of at most maxIDX bytes; a pipe or a device is an error.
func readRegular(file string) ([]byte, error) {
	f, size, err := bounded.Open(file)
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	defer f.Close()
	if size > maxIDX {
		return nil, &IDXError{file, maxIDX, fmt.Errorf("the file has %d bytes, more than %d", size, maxIDX)}
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, fmt.Errorf("data: %s: %w", file, err)
	}
	return b, nil
}

// parseIDX decodes b, the content of file. The elements share its memory if it is not compressed.
func parseIDX(file string, b []byte) ([]int, []byte, error) {
	if !bytes.HasPrefix(b, []byte{0x1f, 0x8b}) {
		p := &idxParser{file: file, r: bytes.NewReader(b), size: int64(len(b))}
		dims, n, err := p.header()
		if err != nil {
			return nil, nil, err
		}
		if have := p.size - p.off; have != n {
			return nil, nil, p.wrongSize(dims, n, have)
		}
		return dims, b[p.off:], nil
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, nil, &IDXError{file, 0, err}
	}
	p := &idxParser{file: file, r: z, size: int64(len(b)) * maxDeflate}
	dims, n, err := p.header()
	if err != nil {
		return nil, nil, err
	}
	if err := bounded.New(int64(len(b))).Take(2*n + int64(len(b))); err != nil { // twice, because the list grows
		return nil, nil, p.errorf(p.off, "%v elements: %w; decompress the file with gunzip", dims, err)
	}
	elems, err := p.inflate(dims, n)
	return dims, elems, err
}

type idxParser struct {
	file string
	r    io.Reader
	off  int64 // bytes read so far
	size int64 // largest number of bytes in r
}

func (p *idxParser) errorf(off int64, format string, a ...any) error {
	return &IDXError{p.file, off, fmt.Errorf(format, a...)}
}

func (p *idxParser) wrongSize(dims []int, want, have int64) error {
	if have < want {
		return p.errorf(p.off+have, "truncated: %v elements are %d bytes, %d are there", dims, want, have)
	}
	return p.errorf(p.off+want, "more data than the %d bytes of %v elements", want, dims)
}

func (p *idxParser) read(b []byte) error {
	n, err := io.ReadFull(p.r, b)
	p.off += int64(n)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return p.errorf(p.off, "truncated header: %w", io.ErrUnexpectedEOF)
	}
	if err != nil {
		return p.errorf(p.off, "%w", err)
	}
	return nil
}

// header reads the magic number and the dimensions, and returns them with their product.
func (p *idxParser) header() (dims []int, n int64, err error) {
	var b [4]byte
	if err := p.read(b[:]); err != nil {
		return nil, 0, err
	}
	name, known := idxTypes[b[2]]
	switch {
	case b[0] != 0 || b[1] != 0 || !known:
		return nil, 0, p.errorf(0, "magic number %#08x is not that of an IDX file", binary.BigEndian.Uint32(b[:]))
	case b[2] != idxUint8:
		return nil, 0, p.errorf(2, "elements of type %s (0x%02x); only uint8 (0x08) is supported", name, b[2])
	case b[3] == 0:
		return nil, 0, p.errorf(3, "no dimensions")
	}
	product := uint64(1)
	for range b[3] {
		off := p.off
		var d [4]byte
		if err := p.read(d[:]); err != nil {
			return nil, 0, err
		}
		v := binary.BigEndian.Uint32(d[:])
		hi, lo := bits.Mul64(product, uint64(v))
		if hi != 0 || lo > maxIDX {
			return nil, 0, p.errorf(off, "dimensions %v x %d: more than %d bytes", dims, v, maxIDX)
		}
		product, dims = lo, append(dims, int(v))
	}
	if rest := max(p.size-p.off, 0); int64(product) > rest {
		return nil, 0, p.errorf(p.off, "truncated: %v elements are %d bytes, at most %d can be there", dims, product, rest)
	}
	return dims, int64(product), nil
}

// inflate reads n bytes and the end of the stream. It allocates only as data arrives.
func (p *idxParser) inflate(dims []int, n int64) ([]byte, error) {
	start := p.off
	elems := make([]byte, 0, min(n, 64<<10))
	for {
		if len(elems) == cap(elems) {
			if int64(len(elems)) == n {
				break
			}
			elems = append(make([]byte, 0, min(n, 2*int64(cap(elems)))), elems...)
		}
		k, err := p.r.Read(elems[len(elems):cap(elems)])
		elems = elems[:len(elems)+k]
		p.off += int64(k)
		if err == io.EOF && int64(len(elems)) == n {
			return elems, nil
		}
		if err == io.EOF {
			p.off = start
			return nil, p.wrongSize(dims, n, int64(len(elems)))
		}
		if err != nil {
			return nil, p.errorf(p.off, "%w", err)
		}
	}
	switch k, err := io.ReadFull(p.r, make([]byte, 1)); {
	case k > 0:
		p.off = start
		return nil, p.wrongSize(dims, n, n+1)
	case err != io.EOF: // for example a wrong checksum
		return nil, p.errorf(p.off, "%w", err)
	}
	return elems, nil
}
