package data

import (
	"context"
	"fmt"

	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

const (
	prefetch = 2            // batches prepared ahead
	slots    = prefetch + 1 // and one in use
)

func errorf(format string, a ...any) error { return fmt.Errorf("data: "+format, a...) }

// batchBuffer is the memory of one batch. Its headers for each kind of batch are made once.
type batchBuffer struct {
	views [kinds]view
	sent  tensor.Pending // the copy to the device, which reads the host memory
	used  tensor.Pending // the step, which uses the device memory
}

// kind is a kind of batch, by how many rows a rank has.
type kind int

const (
	full  kind = iota
	last       // the smaller one at the end of an epoch
	first      // of the training: see Loader.share
	kinds
)

// leastUneven is how many groups of rows each rank has at least where the first batch is divided unevenly: one more takes little memory.
const leastUneven = 8

// view is a batch, and the host memory in which it is prepared. If the device uses host memory, the two are the same.
type view struct {
	Batch
	x, y tensor.Tensor
}

func (l *Loader) newBatchBuffer() batchBuffer {
	dev := l.cfg.Device
	if dev == nil {
		dev = hostDevice
	}
	rows := min(l.cfg.Batch, l.n)
	_, most := l.share(rows, 0, first) // rank 0 has the largest part
	sx, sy := l.ds.Shapes()
	all := view{x: stagedRows(dev, sx, most), y: stagedRows(dev, sy, most)}
	all.X, all.Y = all.x, all.y
	if !dev.Host() {
		all.X, all.Y = newRows(dev, sx, most), newRows(dev, sy, most)
	}
	return batchBuffer{views: [kinds]view{
		full: l.cut(all, sx, sy, rows, full), last: l.cut(all, sx, sy, l.n%l.cfg.Batch, last), first: l.cut(all, sx, sy, rows, first),
	}}
}

var hostDevice = tensor.FromSlice([]uint8{0}, 1).Device() // any CPU device may use its memory

func newRows(dev tensor.Device, s tensor.Shape, rows int) tensor.Tensor {
	return tensor.New(dev, s.DType, append([]int{rows}, s.Dims...)...)
}

// stagedRows is newRows for memory that Go code writes.
func stagedRows(dev tensor.Device, s tensor.Shape, rows int) tensor.Tensor {
	return tensor.NewStaging(memory.Other, dev, s.DType, append([]int{rows}, s.Dims...)...)
}

// share returns the first row of a rank's part of a batch, and the one after the last. Of the training's first batch, rank 0 has a group
// more than its part, and the last rank one less: the results are the same, but a program that divides by the number of its own rows, or
// depends on it in another way, has other numbers on each of the two, which ddp and fsdp find.
func (l *Loader) share(rows, rank int, k kind) (lo, end int) {
	groups, ranks := rows/l.cfg.Group, l.cfg.Sharder.Size()
	lo, end = layout.Share(groups, rank, ranks)
	if k == first && groups/ranks >= leastUneven {
		if rank > 0 {
			lo++
		}
		if rank < ranks-1 {
			end++
		}
	}
	return lo * l.cfg.Group, end * l.cfg.Group
}

// cut returns this rank's part of a batch of global rows, as views of all.
func (l *Loader) cut(all view, sx, sy tensor.Shape, global int, k kind) view {
	lo, end := l.share(global, l.cfg.Sharder.Rank(), k)
	rows := end - lo
	v := view{x: firstRows(all.x, sx, rows), y: firstRows(all.y, sy, rows)}
	v.Batch = Batch{X: firstRows(all.X, sx, rows), Y: firstRows(all.Y, sy, rows), First: lo, Rows: rows, Global: global}
	r := tensor.Rows{First: lo, Stride: 1, Total: global}
	switch s := l.cfg.Sharder.(type) {
	case interface {
		Rows(first, total int) tensor.Rows
	}:
		r = s.Rows(lo, global)
	case interface{ Axes() tensor.Axes }:
		r.Over = s.Axes()
	}
	if l.cfg.Group > 1 {
		r.Group = l.cfg.Group
	}
	v.X, v.Y = v.X.WithRows(r), v.Y.WithRows(r)
	return v
}

// number says which batch of the training it is.
func (v *view) number(n int) {
	tensor.Raw(v.X).Number(n)
	tensor.Raw(v.Y).Number(n)
}

func firstRows(x tensor.Tensor, s tensor.Shape, rows int) tensor.Tensor {
	n := rows
	for _, d := range s.Dims {
		n *= d
	}
	return x.Range(0, n).View(append([]int{rows}, s.Dims...)...)
}

// copyQueue is the queue of a device for copies, which run while the other queue computes.
const copyQueue = 1

// prepare fills a buffer with a batch, and copies it to its device after the step that used the memory before. It runs in the feed's
// goroutine, while the device computes. The only wait is for the buffer's last copy, three steps ago.
func (l *Loader) prepare(s *batchBuffer, epoch, step int, stop chan struct{}) error {
	v := &s.views[l.kind(epoch, step)]
	if v.Rows == 0 {
		return nil
	}
	if err := s.sent.Wait(); err != nil {
		return copying(v.X.Device(), err)
	}
	lo := step*l.cfg.Batch + v.First
	idx := l.perm[lo : lo+v.Rows : lo+v.Rows]
	if err := l.callDataset(epoch, idx, v.x, v.y); err != nil {
		return l.findBadSample(epoch, idx, v, err, stop)
	}
	if v.X.Device().Host() {
		return nil
	}
	if err := tensor.Try(func() { s.upload(v) }); err != nil {
		return copying(v.X.Device(), err)
	}
	return nil
}

func (s *batchBuffer) upload(v *view) {
	dev := v.X.Device()
	q := dev.Queue(copyQueue)
	if err := q.After(s.used); err != nil {
		panic(&tensor.Failure{Op: "copy", Err: err})
	}
	dev.Copy(v.X.Ptr(), v.x.Ptr(), len(v.x.Bytes()), q)
	dev.Copy(v.Y.Ptr(), v.y.Ptr(), len(v.y.Bytes()), q)
	s.sent = q.Mark()
}

func copying(dev tensor.Device, err error) error {
	return errorf("copying a batch to %v: %w", dev, err)
}

// begin makes the step that uses the batch wait for the copy to the device.
func (s *batchBuffer) begin() error {
	dev := s.views[full].X.Device()
	if dev.Host() {
		return nil
	}
	if err := dev.Queue(0).After(s.sent); err != nil {
		return copying(dev, err)
	}
	return nil
}

// end marks the end of the step that used the batch, and waits for collectives that read it. In debug mode, it fills the batch with NaN, to
// find code that kept it.
func (s *batchBuffer) end(v *view) {
	tensor.Raw(v.X).Settle()
	tensor.Raw(v.Y).Settle()
	tensor.Raw(v.X).Spoil()
	tensor.Raw(v.Y).Spoil()
	s.mark()
}

// renew makes batches unusable that a program has kept: the buffer gets another one.
func (s *batchBuffer) renew() {
	for k := range s.views {
		v := &s.views[k]
		v.X, v.Y = tensor.Raw(v.X).Renew(), tensor.Raw(v.Y).Renew()
	}
}

// mark makes later copies to the buffer wait for the device's computation so far.
func (s *batchBuffer) mark() {
	if dev := s.views[full].X.Device(); !dev.Host() {
		s.used = dev.Queue(0).Mark()
	}
}

// feed is the goroutine that prepares the batches of one epoch.
type feed struct {
	free  chan int      // numbers of buffers to fill
	ready chan int      // of filled buffers, in order; closed at the end and after an error
	stop  chan struct{} // closed when the loop ends
	err   error         // read it only after ready is closed
}

// startFeed starts preparing batches of epoch, from step on.
func (l *Loader) startFeed(epoch, step int) *feed {
	f := &feed{free: make(chan int, slots), ready: make(chan int, slots), stop: make(chan struct{})}
	for i := range slots {
		l.slots[i].mark()
		l.slots[i].renew()
		f.free <- i
	}
	go f.run(l, epoch, step)
	return f
}

// take returns the next filled buffer.
func (f *feed) take(ctx context.Context) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err // check ctx first, even if a batch is ready
	}
	select {
	case k, ok := <-f.ready:
		if !ok {
			return 0, f.err
		}
		return k, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// close ends the goroutine and waits for it.
func (f *feed) close() {
	close(f.stop)
	for range f.ready {
	}
}

func (f *feed) run(l *Loader, epoch, step int) {
	over := false
	defer func() {
		if r := recover(); r != nil {
			f.err = errorf("%w", panicked(r))
		} else if !over {
			f.err = errorf("Dataset.Batch called runtime.Goexit")
		}
		close(f.ready)
	}()
	f.err = f.fill(l, epoch, step)
	over = true
}

// order fills perm with the samples of an epoch.
func (l *Loader) order(perm []int, epoch int) {
	switch {
	case l.ends != nil:
		draw(perm, l.ends, l.cfg.Seed, epoch)
	case l.cfg.Shuffle:
		permute(perm, l.cfg.Group, l.cfg.Seed, epoch)
	default:
		ascending(perm)
	}
}

func (f *feed) fill(l *Loader, epoch, step int) error {
	l.order(l.perm, epoch)
	for ; step < l.steps; step++ {
		var k int
		select {
		case <-f.stop:
			return nil
		case k = <-f.free:
		}
		if err := l.prepare(&l.slots[k], epoch, step, f.stop); err != nil {
			return errorf("epoch %d, batch %d: %w", epoch, step, err)
		}
		f.ready <- k
	}
	return nil
}
