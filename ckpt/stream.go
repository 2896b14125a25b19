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

// chunk is how many bytes are read at a time.
const chunk = 1 << 20

// buffers holds chunks of memory. Reading a checkpoint of any size needs only one for each goroutine.
var buffers = sync.Pool{New: func() any { b := make([]byte, chunk); return &b }}

// window reads a file through a buffer. Short runs that lie close to each other are read together.
type window struct {
	f   file
	end int64 // end of the range that may be read
	buf []byte
	at  int64 // offset of the buffer's content in the file
	n   int
}

// shortRun is the length in bytes below which a run is short.
const shortRun = 64 << 10

// get returns n bytes at off, at most a chunk. If they belong to a short run, it fills the whole buffer.
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

// stream calls fn with the bytes of a part, in the part's order, at most a chunk at a time.
func (x *stored) stream(ctx context.Context, p part, fn func(b []byte) error) error {
	return x.chunks(ctx, p, func(w *window, off int64, n int, short bool) error {
		b, err := w.get(off, n, short)
		if err == nil {
			err = fn(b)
		}
		return err
	})
}

// read reads a part into b, in the part's order.
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

// chunks calls fn for each n bytes at off of a part. short says whether they belong to a short run.
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
				return x.failed(err)
			}
			off, left = off+int64(n), left-n
		}
		return nil
	}
	if p.whole() { // also for elements of less than a byte
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

// failed adds the file and the name to an error of a tensor.
func (x *stored) failed(err error) error {
	return fmt.Errorf("%s: tensor %q: %w", x.file.name, x.Name, err)
}

// eachPiece calls fn for the tensor's pieces. A tensor without hashes is one piece.
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

// scan reads a tensor once, verifies its hashes, and calls look with the bytes.
func (x *stored) scan(ctx context.Context, look func(b []byte)) error {
	return x.eachPiece(func(p storedPiece) error { return x.scanPiece(ctx, p, look) })
}

// scanPiece is scan for one piece.
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

// compare returns an error if hash is not the piece's hash.
func (x *stored) compare(p storedPiece, hash string) error {
	if hash == p.sha256 {
		return nil
	}
	return fmt.Errorf("%s: tensor %q: the part of rank %d has another SHA-256 than %s says: the data is damaged",
		x.file.name, x.Name, p.rank, x.file.list)
}

// decode returns the elements as float64, in the memory of out. ok is false for types that it does not know.
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
