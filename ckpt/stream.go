package ckpt

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"sync"

	"github.com/ringo-ml/ringo/ckpt/safetensors"
	"github.com/ringo-ml/ringo/tensor"
)

// chunk is how much is read at a time.
const chunk = 1 << 20

// buffers are chunks of memory: all that reading a checkpoint of any size takes, one for each goroutine.
var buffers = sync.Pool{New: func() any { b := make([]byte, chunk); return &b }}

// window reads a file through a buffer. Short pieces that lie close to each other are read together.
type window struct {
	f   file
	end int64 // of what may be read
	buf []byte
	at  int64 // of the buffer's content
	n   int
}

// shortRun is the length of runs up to which those that lie close to each other are read together.
const shortRun = 64 << 10

// get returns n bytes at off, of a short run or not. n is at most a chunk.
func (w *window) get(off int64, n int, short bool) ([]byte, error) {
	if off < w.at || off+int64(n) > w.at+int64(w.n) {
		want := int64(n)
		if short {
			want = min(int64(len(w.buf)), w.end-off)
		}
		w.at, w.n = off, 0
		k, err := w.f.ReadAt(w.buf[:want], off)
		if k < n {
			return nil, err
		}
		w.n = k
	}
	from := int(off - w.at)
	return w.buf[from : from+n], nil
}

// stream hands the bytes of a part to fn, in the part's order, at most a chunk at a time.
func (x *stored) stream(ctx context.Context, p part, fn func(b []byte) error) error {
	return x.chunks(ctx, p, func(w *window, off int64, n int, short bool) error {
		b, err := w.get(off, n, short)
		if err == nil {
			err = fn(b)
		}
		return err
	})
}

// read reads a part to b, in the part's order.
func (x *stored) read(ctx context.Context, p part, b []byte) error {
	return x.chunks(ctx, p, func(w *window, off int64, n int, short bool) error {
		to := b[:n]
		b = b[n:]
		if short {
			from, err := w.get(off, n, short)
			copy(to, from)
			return err
		}
		if k, err := w.f.ReadAt(to, off); k < n {
			return err
		}
		return nil
	})
}

// chunks calls fn for n bytes at off after n bytes, until a part is read. It says whether they are of a short run.
func (x *stored) chunks(ctx context.Context, p part, fn func(w *window, off int64, n int, short bool) error) error {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	w := &window{f: x.file.f, end: x.offset + x.End - x.Start, buf: *buf}
	run := func(off int64, left int) error {
		for short := left < shortRun; left > 0; {
			if err := ctx.Err(); err != nil {
				return err
			}
			n := min(left, len(*buf))
			if err := fn(w, off, n, short); err != nil {
				return fmt.Errorf("%s: tensor %q: %w", x.file.name, x.Name, err)
			}
			off, left = off+int64(n), left-n
		}
		return nil
	}
	if p.whole() { // also of elements that are no whole number of bytes
		return run(x.offset, int(x.End-x.Start))
	}
	size := x.DType.Bits() / 8
	for at, n := range p.runs() {
		if err := run(x.offset+int64(at)*int64(size), n*size); err != nil {
			return err
		}
	}
	return nil
}

// eachPiece calls fn for the pieces that have a hash; a tensor without hashes is one piece.
func (x *stored) eachPiece(fn func(p storedPiece) error) error {
	if len(x.pieces) == 0 {
		return fn(storedPiece{part: wholePart(x.Shape)})
	}
	for _, p := range x.pieces {
		if err := fn(p); err != nil {
			return err
		}
	}
	return nil
}

// scan reads a tensor once, verifies its hashes, and hands the bytes to look.
func (x *stored) scan(ctx context.Context, look func(b []byte)) error {
	return x.eachPiece(func(p storedPiece) error { return x.scanPiece(ctx, p, look) })
}

// scanPiece is scan for a piece.
func (x *stored) scanPiece(ctx context.Context, p storedPiece, look func(b []byte)) error {
	h := sha256.New()
	err := x.stream(ctx, p.part, func(b []byte) error {
		if p.sha256 != "" {
			h.Write(b)
		}
		look(b)
		return nil
	})
	if err != nil || p.sha256 == "" {
		return err
	}
	return x.compare(p, hex.EncodeToString(h.Sum(nil)))
}

// compare returns an error if a piece has another hash than it should.
func (x *stored) compare(p storedPiece, hash string) error {
	if hash == p.sha256 {
		return nil
	}
	return fmt.Errorf("%s: tensor %q: the part of rank %d has another SHA-256 than %s says: the data is damaged",
		x.file.name, x.Name, p.rank, x.file.list)
}

// decode returns the elements as float64, in out; ok is false for types without such a meaning.
func decode(d safetensors.DType, b []byte, out []float64) (values []float64, ok bool) {
	le := binary.LittleEndian
	var get func(b []byte) float64
	switch d {
	case safetensors.F64:
		get = func(b []byte) float64 { return math.Float64frombits(le.Uint64(b)) }
	case safetensors.F32:
		get = func(b []byte) float64 { return float64(math.Float32frombits(le.Uint32(b))) }
	case safetensors.BF16:
		get = func(b []byte) float64 { return float64(tensor.BF16(le.Uint16(b)).Float32()) }
	case safetensors.F16:
		get = func(b []byte) float64 { return float64(tensor.F16(le.Uint16(b)).Float32()) }
	case safetensors.I64:
		get = func(b []byte) float64 { return float64(int64(le.Uint64(b))) }
	case safetensors.I32:
		get = func(b []byte) float64 { return float64(int32(le.Uint32(b))) }
	case safetensors.U8, safetensors.Bool:
		get = func(b []byte) float64 { return float64(b[0]) }
	default:
		return nil, false
	}
	out = out[:0]
	for size := d.Bits() / 8; len(b) >= size; b = b[size:] {
		out = append(out, get(b))
	}
	return out, true
}

func isFloat(d safetensors.DType) bool {
	t, ok := dtypeOf(d)
	return ok && t.IsFloat()
}
