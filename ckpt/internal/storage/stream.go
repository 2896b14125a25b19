package storage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"

	"github.com/ringo-ml/ringo/ckpt/internal/disk"
	"github.com/ringo-ml/ringo/ckpt/internal/shard"
	"github.com/ringo-ml/ringo/internal/bounded"
)

// chunk is how many bytes are read at a time.
const chunk = 1 << 20

// Buffers holds chunks of memory. Reading a checkpoint of any size needs only one for each goroutine.
var Buffers = sync.Pool{New: func() any { b := make([]byte, chunk); return &b }}

// window reads a file through a buffer. Short runs that lie close to each other are read together.
type window struct {
	f   disk.File
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

// Stream calls fn with the bytes of a part, in the part's order, at most a chunk at a time.
func (x *Tensor) Stream(ctx context.Context, p shard.Part, fn func(b []byte) error) error {
	return x.chunks(ctx, p, func(w *window, off int64, n int, short bool) error {
		b, err := w.get(off, n, short)
		if err == nil {
			err = fn(b)
		}
		return err
	})
}

// Read reads a part into b, in the part's order.
func (x *Tensor) Read(ctx context.Context, p shard.Part, b []byte) error {
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
func (x *Tensor) chunks(ctx context.Context, p shard.Part, fn func(w *window, off int64, n int, short bool) error) error {
	buf := Buffers.Get().(*[]byte)
	defer Buffers.Put(buf)
	w := &window{f: x.File.Content, end: x.Offset + x.End - x.Start, buf: *buf}
	run := func(off int64, left int) error {
		for short := left < shortRun; left > 0; {
			if err := ctx.Err(); err != nil {
				return err
			}
			n := min(left, len(*buf))
			if err := fn(w, off, n, short); err != nil {
				return x.Failed(err)
			}
			off, left = off+int64(n), left-n
		}
		return nil
	}
	if p.Whole() { // also for elements of less than a byte
		return run(x.Offset, int(x.End-x.Start))
	}
	size := x.DType.Bits() / 8
	for at, n := range p.Runs() {
		if err := run(x.Offset+int64(at)*int64(size), n*size); err != nil {
			return err
		}
	}
	return nil
}

// Failed adds the file and the name to an error of a tensor.
func (x *Tensor) Failed(err error) error {
	return fmt.Errorf("%s: tensor %s: %w", x.File.Name, bounded.Quote(x.Name), err)
}

// Scan reads a tensor once, verifies its hashes, and calls look with the bytes.
func (x *Tensor) Scan(ctx context.Context, look func(b []byte)) error {
	if len(x.Pieces) == 0 {
		return x.ScanPiece(ctx, Piece{Part: shard.WholePart(x.Shape)}, look)
	}
	for _, p := range x.Pieces {
		if err := x.ScanPiece(ctx, p, look); err != nil {
			return err
		}
	}
	return nil
}

// ScanPiece is Scan for one piece.
func (x *Tensor) ScanPiece(ctx context.Context, p Piece, look func(b []byte)) error {
	h := sha256.New()
	err := x.Stream(ctx, p.Part, func(b []byte) error {
		if p.sha256 != "" {
			h.Write(b)
		}
		look(b)
		return nil
	})
	if err != nil || p.sha256 == "" {
		return err
	}
	return x.Compare(p, hex.EncodeToString(h.Sum(nil)))
}

// Compare returns an error if hash is not the piece's hash.
func (x *Tensor) Compare(p Piece, hash string) error {
	if hash == p.sha256 {
		return nil
	}
	return fmt.Errorf("%s: tensor %s: the part of rank %d has another SHA-256 than %s says: the data is damaged",
		x.File.Name, bounded.Quote(x.Name), p.rank, x.File.list)
}
