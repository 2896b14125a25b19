package ckpt

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"slices"

	"github.com/ringo-ml/ringo/ckpt/internal/disk"
	"github.com/ringo-ml/ringo/ckpt/internal/shard"
	"github.com/ringo-ml/ringo/ckpt/internal/storage"
)

// job is an item of which this rank has pieces to write, or to compare with other ranks.
type job struct {
	item   *item
	finite bool // or it is an error
	size   int  // of an element, in bytes
	file   int
	offset int64 // where the tensor begins in the file, in bytes
	pieces []*piece
	data   []byte // the item's data, in host memory
}

func (j *job) bytes() int { return j.item.data.Len() * j.size }

// piece is what this rank holds of a tensor, and writes or compares.
type piece struct {
	pieceWork
	part shard.Part
	hash [sha256.Size]byte // of the bytes that were written
	sum  uint32            // checksum of a piece that several ranks hold
}

// assign turns the work that the coordinator sent into jobs.
func (p *rankPlan) assign(todo work) error {
	p.files, p.jobs, p.pieces = todo.Files, nil, make([]piece, len(todo.Pieces))
	jobs := make([]*job, len(p.items))
	for i, w := range todo.Pieces {
		if w.Item < 0 || w.Item >= len(p.items) || w.File < 0 || w.File >= len(p.files) {
			return fmt.Errorf("rank 0 planned item %d of file %d; this rank holds %d items, of %d files", w.Item, w.File, len(p.items), len(p.files))
		}
		j := jobs[w.Item]
		if j == nil {
			x := &p.items[w.Item]
			j = &job{item: x, size: x.data.DType().Size(), file: w.File, offset: int64(w.Offset)}
			jobs[w.Item], p.jobs = j, append(p.jobs, j)
		}
		p.pieces[i] = piece{pieceWork: w, part: j.item.memoryPart().Slice(w.At, w.N)}
		if w.N < 0 || p.pieces[i].part.Len() != w.N {
			return fmt.Errorf("rank 0 planned elements %d to %d of %s; this rank holds %d", w.At, w.At+w.N, j.item.Name, j.item.memoryPart().Len())
		}
		j.pieces = append(j.pieces, &p.pieces[i])
	}
	return nil
}

// check says whether the values of a save must be finite.
func (p *rankPlan) check(st *State) {
	for _, j := range p.jobs {
		j.finite = !st.Nonfinite && !j.item.buffer
	}
}

// write writes this rank's pieces and flushes the files. Rank 0 created all files and flushes every one.
func (w *writer) write(ctx context.Context, tmp string) error {
	needed := func(i int) bool {
		return w.g.Rank() == 0 || slices.ContainsFunc(w.pieces, func(x piece) bool { return x.File == i && x.Mine })
	}
	return disk.Fill(w.fs, filepath.Join(w.dir, tmp), w.files, needed, func(files []disk.File) error { return w.writeJobs(ctx, files) })
}

// writeJobs writes the jobs. With Config.Async their data was fetched before; otherwise it fetches and writes batch by
// batch.
func (w *writer) writeJobs(ctx context.Context, files []disk.File) error {
	each := func(jobs []*job) error {
		return storage.Parallel(len(jobs), func(i int) error { return jobs[i].write(ctx, files) })
	}
	if w.c.Async {
		return each(w.jobs)
	}
	for jobs := range batches(w.jobs) {
		if err := w.staging.fetch(jobs, false); err != nil {
			return err
		}
		if err := each(jobs); err != nil {
			return err
		}
	}
	return nil
}

// write writes this rank's pieces of an item, and takes the checksums of pieces that other ranks hold too.
func (j *job) write(ctx context.Context, files []disk.File) error {
	for _, x := range j.pieces {
		data := j.data[x.At*j.size:][:x.N*j.size]
		if x.Shared {
			x.sum = crc32.Checksum(data, castagnoli)
		}
		if !x.Mine {
			continue
		}
		if err := j.writePiece(ctx, x, data, files[j.file]); err != nil {
			return err
		}
	}
	return nil
}

// writeChunk is how many bytes are hashed and written at a time.
const writeChunk = 4 << 20

func (j *job) writePiece(ctx context.Context, x *piece, data []byte, f disk.File) error {
	h := sha256.New()
	p := x.part
	if j.item.memory != nil {
		data, p = p.ToFile(data, j.size), p.Transposed()
	}
	for at, n := range p.Runs() {
		off := j.offset + int64(at)*int64(j.size)
		for left := n * j.size; left > 0; {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			b := data[:min(left, writeChunk)]
			h.Write(b)
			if nan, inf := storage.Nonfinite(j.item.data.DType(), b); j.finite && nan+inf > 0 {
				return fmt.Errorf("%s is not finite (State.Nonfinite would save it)", j.item.Name)
			}
			if _, err := f.WriteAt(b, off); err != nil {
				return err
			}
			data, left, off = data[len(b):], left-len(b), off+int64(len(b))
		}
	}
	h.Sum(x.hash[:0])
	return nil
}
