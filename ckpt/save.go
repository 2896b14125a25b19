package ckpt

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/backend"
)

// maxFileBytes is the size at which a new file begins.
const maxFileBytes = 5_000_000_000

// Config changes a Saver.
type Config struct {
	Keep  int  // complete checkpoints to keep; older ones are removed after a save. 0: all
	Async bool // Save returns when it has copied the state; see Saver.Save
}

// Saver writes the checkpoints of a run into a directory, which all ranks must see, as folders step-00000100 and so on. A
// directory belongs to one run at a time: a save that meets another one there is refused.
type Saver struct {
	user      *dist.Group
	g         *dist.Group // its own lane: saving goes on beside training
	dir       string
	c         Config
	fs        fileSystem
	fileBytes int64
	last      *background    // the save that goes on beside training; nil: none
	patience  time.Duration  // with a disk, when the job ends
	removal   sync.WaitGroup // of old checkpoints, on rank 0
	planned   tensorPlan
	copies    [][]byte // of the data, for saves in the background: the next one uses the memory again
}

// NewSaver returns a Saver for the ranks of g, which hold the state together. It is collective. What the Saver does in the
// background is over when dist.Run returns, and Run returns its error.
func NewSaver(g *dist.Group, dir string, c Config) *Saver {
	s := &Saver{user: g, g: g.With(dist.Name("ckpt")), dir: dir, c: c, fs: disk{}, fileBytes: maxFileBytes, patience: lastWait}
	g.AtEnd(s.atEnd)
	return s
}

// Save writes a checkpoint of st. It is collective, and all ranks return the same verdict: nil when the checkpoint is
// complete and flushed to the disk. It is written under a temporary name and gets its own when all ranks agree: on step,
// extra state, tensors, what they have called on the group so far, and the bits of parameters that several ranks hold. On any
// error nothing is left but what was there before; only when the very last flush fails, of the new name, the new
// checkpoint may be there, complete.
//
// With Config.Async it returns as soon as it has copied what this rank writes: parameters and optimizer may change then. The
// next Save, Wait, Close or the end of dist.Run waits for it, and returns its error if it failed. If a rank's function fails
// by itself while a save is in the background, the save may still finish (see dist.Rank.AtEnd); if a rank or a group is
// lost, or ctx ends, it ends in error, and nothing of it is left.
//
// Steps grow: a directory that has this step or a later one is refused.
func (s *Saver) Save(ctx context.Context, st State) error {
	if err := s.Wait(); err != nil {
		return err
	}
	w, err := s.begin(st)
	if err != nil {
		return fmt.Errorf("ckpt: step %d is not saved: %w", st.Step, err)
	}
	if !s.c.Async {
		return w.save(ctx)
	}
	s.last = w.start(ctx)
	return nil
}

// save writes and says which step failed.
func (w *writer) save(ctx context.Context) error {
	if err := w.finish(ctx); err != nil {
		return fmt.Errorf("ckpt: saving step %d: %w", w.plan.man.Step, err)
	}
	return nil
}

// Wait waits for the save in the background, if any, and returns its error.
func (s *Saver) Wait() error {
	if s.last == nil {
		return nil
	}
	<-s.last.done
	err := s.last.err
	s.last = nil
	return err
}

// Close waits for what goes on in the background, a save or the removal of an old checkpoint, and returns the save's error.
// It is collective.
func (s *Saver) Close() error {
	err := s.Wait()
	s.removal.Wait()
	s.copies = nil
	return errors.Join(err, s.g.Close())
}

// writer is one save on one rank.
type writer struct {
	*Saver
	rank int
	plan *plan
	jobs []*job
	err  error // of this rank, for all to hear

	unlock func() // of the directory, on rank 0
}

// job is a tensor of which this rank holds pieces that it writes, or that it compares with other ranks.
type job struct {
	item       item
	transposed bool
	size       int // of an element
	at         place
	pieces     []held
}

// held is a piece.
type held struct {
	extent
	id   int // its place among all pieces
	off  int // where the item has it, in elements
	mine bool
	data []byte
	hash string // of what was written
	sum  uint32 // of the data of a shared one
}

// begin agrees with the other ranks on what is written by whom, and takes hold of the data.
func (s *Saver) begin(st State) (*writer, error) {
	items, err := st.items()
	var c claim
	if err == nil {
		c, err = st.claim(items)
	}
	if err == nil {
		c.Structure, err = c.structure(st.TP)
	}
	if err == nil {
		err = s.user.Err()
	}
	if err != nil {
		c.Err = err.Error()
	}
	c.Calls = s.user.Stats().Calls
	for _, kind := range []backend.Kind{backend.Send, backend.Recv, backend.Batch} {
		delete(c.Calls, kind.String()) // the others are the same on all ranks
	}
	w := &writer{Saver: s, rank: s.g.Rank()}
	if w.plan, err = s.agreeOnPlan(c, st.TP); err != nil {
		return nil, err
	}
	w.err = w.hold(items)
	return w, nil
}

// hold collects the bytes of the pieces that this rank writes: the tensors' memory, or a copy for a save in the background. Of pieces
// that others write it takes the checksum.
func (w *writer) hold(items []item) error {
	w.jobs = w.assigned(items)
	if short := len(w.jobs) - len(w.copies); short > 0 {
		w.copies = append(w.copies, make([][]byte, short)...)
	}
	return parallel(len(w.jobs), func(i int) error {
		j := w.jobs[i]
		b, err := hostBytes(j.item.data)
		if err != nil {
			return err
		}
		if w.c.Async && j.item.data.Device().Host() && j.writes() {
			w.copies[i] = append(w.copies[i][:0], b...)
			b = w.copies[i]
		}
		j.take(b)
		return nil
	})
}

// take gives the pieces their bytes, of b, which the item has.
func (j *job) take(b []byte) {
	for k := range j.pieces {
		x := &j.pieces[k]
		x.data = b[x.off*j.size : (x.off+x.len())*j.size]
		if !x.mine {
			x.sum, x.data = crc32.Checksum(x.data, castagnoli), nil
		}
	}
}

// assigned finds the pieces that concern this rank.
func (w *writer) assigned(items []item) (jobs []*job) {
	byKey := map[string][]*job{}
	for _, x := range items {
		byKey[x.key()] = append(byKey[x.key()], &job{item: x, size: x.data.DType().Size(), at: w.plan.at[x.key()]})
	}
	id := -1
	w.plan.eachPiece(func(model bool, t *tensorEntry, k int) {
		id++
		key := itemKey(model, t.Name)
		x := held{extent: w.plan.extents[key][k], id: id}
		x.mine = x.rank == w.rank
		j := holder(byKey[key], &x)
		if j == nil || !x.mine && !x.shared {
			return
		}
		if len(j.pieces) == 0 {
			j.transposed, jobs = t.Transposed, append(jobs, j)
		}
		j.pieces = append(j.pieces, x)
	})
	return jobs
}

// holder returns the job whose item has a piece, and says where.
func holder(jobs []*job, x *held) *job {
	for _, j := range jobs {
		var ok bool
		if x.off, ok = j.item.held().find(x.part); ok || x.len() == 0 {
			return j
		}
	}
	return nil
}

// verdict is what a rank reports after writing.
type verdict struct {
	Err    string
	Hashes []string
	Sums   map[int]uint32 // of pieces that several ranks hold, by their place among all
}

// finish writes, and commits when all ranks agree.
func (w *writer) finish(ctx context.Context) error {
	type start struct{ Tmp, Err string }
	var now start
	if w.g.Rank() == 0 {
		w.unlock = func() {}
		defer func() { w.unlock() }()
		tmp, err := w.prepare()
		now.Tmp = tmp
		if err != nil {
			now.Err = err.Error()
		}
	}
	now, err := dist.BroadcastObject(w.g, now, 0)
	if err != nil {
		return w.drop(now.Tmp, err)
	}
	if now.Err != "" {
		return w.drop(now.Tmp, errors.New(now.Err))
	}
	var mine verdict
	if w.err == nil {
		w.err = w.write(ctx, now.Tmp)
	}
	if err := w.err; err != nil {
		mine.Err = err.Error()
	}
	if w.err == nil {
		mine.report(w.jobs)
	}
	all, err := dist.AllGatherObject(w.g, mine)
	if err == nil {
		err = w.agree(all)
	}
	if err != nil {
		return w.drop(now.Tmp, err)
	}
	failed := ""
	if w.g.Rank() == 0 {
		if err := w.commit(now.Tmp); err != nil {
			failed = w.drop(now.Tmp, err).Error()
		}
	}
	failed, err = dist.BroadcastObject(w.g, failed, 0)
	if err == nil && failed != "" {
		err = errors.New(failed)
	}
	return err
}

// report collects hashes, in the order of eachPiece, and checksums.
func (v *verdict) report(jobs []*job) {
	v.Sums = map[int]uint32{}
	for _, j := range jobs { // the pieces of an item follow one another
		for _, x := range j.pieces {
			if x.mine {
				v.Hashes = append(v.Hashes, x.hash)
			}
			if x.shared {
				v.Sums[x.id] = x.sum
			}
		}
	}
}

// drop removes what was written.
func (w *writer) drop(tmp string, err error) error {
	if tmp == "" || w.g.Rank() != 0 {
		return err
	}
	return errors.Join(err, w.fs.RemoveAll(filepath.Join(w.dir, tmp)))
}

// agree compares the ranks' verdicts.
func (w *writer) agree(all []verdict) error {
	var errs []error
	hashes := make([][]string, len(all))
	for r, v := range all {
		if v.Err != "" {
			errs = append(errs, fmt.Errorf("rank %d: %s", r, v.Err))
		}
		hashes[r] = v.Hashes
	}
	id := -1
	w.plan.eachPiece(func(_ bool, t *tensorEntry, _ int) {
		id++
		first := -1 // who has it
		for r, v := range all {
			crc, ok := v.Sums[id]
			switch {
			case !ok:
			case first < 0:
				first = r
			case all[first].Sums[id] != crc:
				errs = append(errs, fmt.Errorf("ranks differ: rank %d and rank %d have other bits in %s", first, r, t.Name))
			}
		}
	})
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	return w.plan.setHashes(hashes)
}

// write writes this rank's pieces and flushes the files that it wrote to. Rank 0 made them all.
func (w *writer) write(ctx context.Context, tmp string) error {
	files := make([]file, len(w.plan.files))
	for i, f := range w.plan.files {
		if w.g.Rank() != 0 && !slices.ContainsFunc(w.jobs, func(j *job) bool { return j.at.file == i && j.writes() }) {
			continue
		}
		var err error
		if files[i], err = w.fs.Open(filepath.Join(w.dir, tmp, f.name), true); err != nil {
			return errors.Join(err, closeAll(files[:i]))
		}
	}
	err := parallel(len(w.jobs), func(i int) error { return w.jobs[i].write(ctx, files) })
	for _, f := range files {
		if f != nil && err == nil {
			err = f.Sync()
		}
	}
	return errors.Join(err, closeAll(files))
}

func closeAll(files []file) error {
	var errs []error
	for _, f := range files {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// writeChunk is how much is hashed and written at a time.
const writeChunk = 4 << 20

func (j *job) writes() bool {
	return slices.ContainsFunc(j.pieces, func(x held) bool { return x.mine })
}

// write writes what this rank has to write of the tensor.
func (j *job) write(ctx context.Context, files []file) error {
	for k := range j.pieces {
		if x := &j.pieces[k]; x.mine {
			if err := x.write(ctx, j, files[j.at.file]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (x *held) write(ctx context.Context, j *job, f file) error {
	h := sha256.New()
	data, p := x.data, x.part
	if x.shared {
		x.sum = crc32.Checksum(data, castagnoli)
	}
	if j.transposed {
		data, p = p.toFile(data, j.size), p.transposed()
	}
	for at, n := range p.runs() {
		off := j.at.offset + int64(at)*int64(j.size)
		for left := n * j.size; left > 0; {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			b := data[:min(left, writeChunk)]
			h.Write(b)
			if _, err := f.WriteAt(b, off); err != nil {
				return err
			}
			data, left, off = data[len(b):], left-len(b), off+int64(len(b))
		}
	}
	x.hash = hex.EncodeToString(h.Sum(nil))
	return nil
}

// parallel calls fn for 0 to n-1 on a few goroutines and returns the errors. After an error it begins no further ones.
func parallel(n int, fn func(i int) error) error {
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		errs   []error
		next   atomic.Int64
		failed atomic.Bool
	)
	for range min(n, 4, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && !failed.Load(); i = int(next.Add(1)) - 1 {
				if err := fn(i); err != nil {
					failed.Store(true)
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
