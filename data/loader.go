package data

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"

	"github.com/ringo-ml/ringo/tensor"
)

// Config says how a Loader cuts a dataset into batches.
type Config struct {
	Batch    int           // rows of the global batch, over all ranks
	Group    int           // so many samples that follow each other stay together, in order, and on one rank; 0: 1
	Shuffle  bool          // a new order each epoch; else the dataset's order
	Weights  []float64     // of the samples, in place of Shuffle: as many as there are are drawn, each with a chance in proportion; nil: none
	Seed     uint64        // of the order; the same on all ranks
	DropLast bool          // drops the smaller batch at the end of an epoch; with Shuffle, these are other samples in each epoch
	Sharder  Sharder       // says which part is this rank's, such as a group of package dist; nil: all of it (Single)
	Device   tensor.Device // where batches are; nil: in host memory, which every CPU device can use
}

// Loader cuts a Dataset into batches, an epoch at a time. It serves one goroutine.
type Loader struct {
	ds       Dataset
	cfg      Config
	n, steps int
	perm     []int
	ends     []float64 // sums of weights up to each sample; nil without
	weights  uint32    // checksum of the weights
	slots    [slots]batchBuffer
	busy     atomic.Bool

	epoch, step int  // of the next batch
	resume      bool // the next Epoch starts at step, because SetState was called
	agreed      bool // ranks compared what they cut
	err         error
}

// NewLoader returns a Loader of ds. It panics with a *tensor.Failure if the configuration is wrong, or the Dataset has no samples.
func NewLoader(ds Dataset, cfg Config) *Loader {
	if cfg.Sharder == nil {
		cfg.Sharder = Single
	}
	rank, size := cfg.Sharder.Rank(), cfg.Sharder.Size()
	switch {
	case cfg.Batch <= 0:
		fail("Config.Batch is %d, want 1 or more", cfg.Batch)
	case rank < 0 || rank >= size:
		fail("Config.Sharder is rank %d of %d", rank, size)
	}
	if err := errors.Join(checkDataset(ds), checkEmbedded(ds)); err != nil {
		fail("%w", err)
	}
	cfg.Group = max(cfg.Group, 1)
	if cfg.Batch%cfg.Group != 0 || ds.Len()%cfg.Group != 0 {
		fail("Config.Group is %d: it must divide Config.Batch, which is %d, and the %d samples of the dataset", cfg.Group, cfg.Batch, ds.Len())
	}
	l := &Loader{ds: ds, cfg: cfg, n: ds.Len()}
	l.steps = (l.n-1)/cfg.Batch + 1
	if cfg.DropLast {
		l.steps = l.n / cfg.Batch
	}
	if l.steps == 0 {
		fail("Config.DropLast leaves no batch of %d: the dataset has %d samples", cfg.Batch, l.n)
	}
	if err := l.weigh(); err != nil {
		fail("%w", err)
	}
	l.perm = make([]int, l.n)
	for i := range l.slots {
		l.slots[i] = l.newBatchBuffer()
	}
	return l
}

// Steps returns the number of batches of an epoch, the same on all ranks.
func (l *Loader) Steps() int { return l.steps }

// Err returns the first error: the dataset's, the device's, or ctx.Err(). It is nil after a whole epoch and after a break. After an error,
// Epoch yields nothing more. Ask for it after each epoch, before anything that all ranks do: the error may be on this rank alone.
func (l *Loader) Err() error { return l.err }

// Epoch yields this rank's part of each batch of an epoch, with its number in the epoch. The loop ends early if ctx ends or the dataset
// fails: check Err. When the loop has ended, for any reason, so has the preparing goroutine: after a break, it waits for the running call
// of Dataset.Batch. After SetState, the first Epoch starts in the middle. In the first Epoch, the ranks of a group of package dist compare
// datasets' sizes, Batch, Shuffle, Seed, DropLast and the place: others on one of them are an error on all.
func (l *Loader) Epoch(ctx context.Context, epoch int) iter.Seq2[int, Batch] {
	return func(yield func(int, Batch) bool) {
		if !l.busy.CompareAndSwap(false, true) {
			fail("the Loader is used by two loops at the same time; make one Loader for each")
		}
		defer l.busy.Store(false)
		if !l.begin(epoch) {
			return
		}
		f := l.startFeed(epoch, l.step)
		defer f.close()
		for i := l.step; i < l.steps; i++ {
			k, err := f.take(ctx)
			if err != nil {
				l.err = err
				return
			}
			s := &l.slots[k]
			if l.err = s.begin(); l.err != nil {
				return
			}
			v := &s.views[l.kind(epoch, i)]
			v.number(epoch*l.steps + i + 1)
			l.advance(epoch, i)
			b := v.Batch
			b.Samples = l.perm[i*l.cfg.Batch:][:b.Global:b.Global]
			more := yield(i, b)
			s.end(v)
			if !more {
				return
			}
			if i+1 < l.steps { // the last batch stays until the next Epoch
				s.renew()
			}
			f.free <- k
		}
	}
}

// Samples returns which samples of the dataset are this rank's rows of the batch that the loop has, or, with `before`, of the batch so many
// steps before. After the loop, the last batch is meant. There are none before the first batch.
func (l *Loader) Samples(before int) []int {
	at := l.epoch*l.steps + l.step - 1 - before
	if at < 0 {
		return nil
	}
	epoch, step := at/l.steps, at%l.steps
	perm, v := make([]int, l.n), &l.slots[0].views[l.kind(epoch, step)]
	l.order(perm, epoch)
	lo := step*l.cfg.Batch + v.First
	return perm[lo : lo+v.Rows]
}

// begin sets epoch and step to the start of Epoch(epoch).
func (l *Loader) begin(epoch int) bool {
	if epoch < 0 {
		fail("epoch %d, want 0 or more", epoch)
	}
	if l.err != nil {
		return false
	}
	if l.resume && epoch != l.epoch {
		l.err = errorf("Epoch(%d) after SetState to epoch %d, step %d: start the loop at State().Epoch", epoch, l.epoch, l.step)
		return false
	}
	if !l.resume {
		l.epoch, l.step = epoch, 0
	}
	l.resume = false
	l.err = l.agree()
	return l.err == nil
}

// advance notes that the loop gets batch i of epoch.
func (l *Loader) advance(epoch, i int) {
	l.epoch, l.step = epoch, i+1
	if l.step == l.steps {
		l.epoch, l.step = epoch+1, 0
	}
}

// kind returns the kind of a batch.
func (l *Loader) kind(epoch, step int) kind {
	switch {
	case epoch == 0 && step == 0:
		return first
	case (step+1)*l.cfg.Batch > l.n:
		return last
	}
	return full
}
