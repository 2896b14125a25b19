package ckpt

import (
	"errors"
	"iter"
	"slices"

	"github.com/ringo-ml/ringo/ckpt/internal/storage"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// stagingBytes is the size of a block, in bytes, unless one tensor is larger. A save uses one block at a time; with Config.Async, as many
// as the state needs. Tests make it smaller.
var stagingBytes = 256 << 20

// staging is host memory that tensors are copied to. It is page-locked if the device supports that, so that all copies
// can run at the same time. The next save reuses it.
type staging struct {
	blocks []tensor.Tensor
	block  int // the block in use
	at     int // first free byte in the block
}

// batches yields the jobs in order, as many at a time as fit in stagingBytes. Data in host memory needs no staging.
func batches(jobs []*job) iter.Seq[[]*job] {
	return func(yield func([]*job) bool) {
		first, size := 0, 0
		for i, j := range jobs {
			n := 0
			if !j.item.data.Device().Host() {
				n = aligned(j.bytes())
			}
			if size > 0 && size+n > stagingBytes {
				if !yield(jobs[first:i]) {
					return
				}
				first, size = i, 0
			}
			size += n
		}
		yield(jobs[first:])
	}
}

// fetch sets the data of jobs. With keep, training continues during the save, so it is always a copy; otherwise an item
// in host memory is used directly. fetch issues all copies before it waits. Data from the previous call is no longer
// valid.
func (s *staging) fetch(jobs []*job, keep bool) error {
	s.block, s.at = 0, 0
	var copied []*job
	left := 0
	for _, j := range jobs {
		if x := j.item.data; j.bytes() > 0 && (keep || !x.Device().Host()) {
			copied = append(copied, j)
			left += aligned(j.bytes())
		} else if j.bytes() > 0 {
			j.data = x.Bytes()
		}
	}
	var queues []tensor.Queue
	var host []*job
	for _, j := range copied {
		x := j.item.data
		dev := x.Device()
		j.data = s.room(dev, j.bytes(), left)
		left -= aligned(j.bytes())
		if dev.Host() {
			host = append(host, j)
			continue
		}
		q := dev.Queue(0)
		dev.Copy(tensor.FromSlice(j.data, j.bytes()).Ptr(), x.Ptr(), j.bytes(), q)
		if !slices.Contains(queues, q) {
			queues = append(queues, q)
		}
	}
	var errs []error
	for _, q := range queues {
		errs = append(errs, q.Sync())
	}
	errs = append(errs, storage.Parallel(len(host), func(i int) error {
		copy(host[i].data, host[i].item.data.Bytes())
		return nil
	}))
	return errors.Join(errs...)
}

// aligned rounds n up to a multiple of 64: every tensor begins at such a byte.
func aligned(n int) int { return (n + 63) &^ 63 }

// room returns n bytes for a tensor of dev. left is what this and the following tensors need in all.
func (s *staging) room(dev tensor.Device, n, left int) []byte {
	for ; s.block < len(s.blocks); s.block, s.at = s.block+1, 0 {
		if b := s.blocks[s.block].Bytes(); s.at+n <= len(b) {
			at := s.at
			s.at += aligned(n)
			return b[at:][:n]
		}
	}
	size := max(n, min(left, stagingBytes))
	s.blocks = append(s.blocks, tensor.NewStaging(memory.Uncounted, dev, tensor.Uint8, size))
	s.at = aligned(n)
	return s.blocks[s.block].Bytes()[:n]
}
