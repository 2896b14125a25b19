package peer

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// The model of an all-reduce of S bytes among n GPUs, each with a link of B bytes/s in each direction and memory of M bytes/s. A rank gets
// 2(n−1)/n·S bytes by two-shot, and (n−1)·S by one-shot, which reads and writes S bytes more for the copy of the input:
//
//	two-shot − one-shot = saved − S·((n−1)(n−2)/(n·B) + 2/M)
//
// One-shot is used while this is not negative. saved is the time of a wait for the devices of all peers and for their hosts, less that of
// a small copy. Between GPUs it is modelled, not measured: vLLM's kernels (custom_all_reduce.cuh) go to two-shot at 512 KiB with 4 ranks
// and at 256 KiB with 8. With the links of an A100 (300 GB/s), a barrier between kernels is then worth 2.6 µs and 4.6 µs. Ours is between
// streams and costs more, but there is the copy. Of two ranks that share one H100, `ringo-gpu bench allreduce` measured -7.2 µs: there
// two-shot is faster at every size from 8 KiB to 2 MiB. B and M are those of an H100 SXM by NVIDIA's data sheet: NVLink 4 with 900 GB/s in
// both directions together, HBM3 with 3.35 TB/s.
const (
	saved = 3e-6
	link  = 450e9
	hbm   = 3.35e12
)

// usualCopy is the size up to which one-shot is the default at most. A stream has memory for 2*backend.Depth copies of the largest size so
// far: 32 MiB.
const usualCopy = 256 << 10

// LargestOneShot is the size up to which one-shot can be forced, with RINGO_ALGO=allreduce:oneshot. Copies are 512 MiB then.
const LargestOneShot = 4 << 20

// oneShotBytes is the size up to which an all-reduce of n ranks is one-shot.
func oneShotBytes(n int) int {
	if n < 2 {
		return 0
	}
	x := float64(n)
	return min(usualCopy, int(saved/((x-1)*(x-2)/(x*link)+2/hbm)))
}

// isOneShot reports whether op is a one-shot all-reduce, the same on all ranks.
func (q *stream) isOneShot(op *backend.Op) (bool, error) {
	switch {
	case op.Kind != backend.AllReduce || op.Src.Bytes == 0 || q.size < 2 || op.Algo == algo.TwoShot:
		return false, nil
	case op.Algo != algo.OneShot:
		return op.Src.Bytes <= oneShotBytes(q.size), nil
	case op.Src.Bytes > LargestOneShot:
		return false, fmt.Errorf("%s of %s: %s at most", algo.OneShot, memory.Format(op.Src.Bytes), memory.Format(LargestOneShot))
	}
	return true, nil
}

// copies is memory for the copies of inputs that peers read, used in turn.
//
// A copy is overwritten 2*Depth one-shot operations later. No peer reads it any more, though nothing waits for that: a rank issues
// operation k only when its device has done k−Depth, and so has got there what peers issued as k−Depth. These had then done k−2*Depth.
type copies struct {
	pool  *cuda.Pool
	at    cuda.Ptr
	each  int // bytes of a copy; a power of 2
	next  int
	small []cuda.Ptr // earlier memory, which peers may still read
}

// close gives the memory back.
func (c *copies) close() error {
	var err error
	if c.each > 0 {
		for _, p := range append(c.small, c.at) {
			err = errors.Join(err, c.pool.Free(p))
		}
	}
	return errors.Join(err, c.pool.Close())
}

// copyInput queues a copy of the input on the compute stream. The device's context is current.
func (q *stream) copyInput(op *backend.Op) error {
	c, d := &q.copies, q.dev
	if op.Src.Bytes > c.each {
		each := 512
		for each < op.Src.Bytes {
			each *= 2
		}
		at, err := c.pool.Alloc(d.compute, 2*backend.Depth*each)
		if err != nil {
			return err
		}
		if c.each > 0 {
			c.small = append(c.small, c.at)
		}
		c.at, c.each = at, each
	}
	to := c.at + cuda.Ptr(c.next*c.each)
	c.next = (c.next + 1) % (2 * backend.Depth)
	op.Copied = unsafe.Add(tensor.Ptr(nil), uintptr(to))
	return d.compute.Copy(to, devPtr(op.Src.Ptr), op.Src.Bytes)
}
