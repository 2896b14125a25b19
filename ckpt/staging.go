package ckpt

import (
	"errors"
	"iter"
	"slices"

	"github.com/ringo-ml/ringo/tensor"
)

// stagingBytes bounds what a save takes of page-locked memory at a time, unless a tensor is larger. Tests make it smaller.
var stagingBytes = 256 << 20

// staging is memory of the host that tensors are copied to: page-locked, where their device has such, so that all copies are on their
// way at once. The next save uses it again.
type staging struct {
	blocks []tensor.Tensor
	block  int // in use
	at     int // free from here on
}

// batches yields jobs in their order, as many as staging takes at a time. What is in the host's memory takes nothing.
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

// fetch gives jobs their data: the memory of an item itself where it is the host's, unless keep says that training goes on meanwhile,
// and else a copy. All copies are issued before it waits. What was fetched before is no longer valid.
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
	errs = append(errs, parallel(len(host), func(i int) error {
		copy(host[i].data, host[i].item.data.Bytes())
		return nil
	}))
	return errors.Join(errs...)
}

// aligned rounds up: every tensor begins at a multiple of 64 bytes.
func aligned(n int) int { return (n + 63) &^ 63 }

// room returns n bytes for a tensor of dev, of which more follow: left bytes in all.
func (s *staging) room(dev tensor.Device, n, left int) []byte {
	for ; s.block < len(s.blocks); s.block, s.at = s.block+1, 0 {
		if b := s.blocks[s.block].Bytes(); s.at+n <= len(b) {
			at := s.at
			s.at += aligned(n)
			return b[at:][:n]
		}
	}
	size := max(n, min(left, stagingBytes))
	s.blocks = append(s.blocks, tensor.NewStaging(tensor.Uncounted, dev, tensor.Uint8, size))
	s.at = aligned(n)
	return s.blocks[s.block].Bytes()[:n]
}
