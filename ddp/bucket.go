package ddp

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// Bucket is a flat piece of memory that holds the gradients of several parameters of one type, which are communicated
// together.
type Bucket struct {
	Index int // from 0, in the order of communication
	Group *dist.Group
	Exec  *tensor.Exec  // for kernels of a CommHook
	Grad  tensor.Tensor // flat; Param.Grad are views of it
	Wire  tensor.Tensor // a CommHook's own memory, made by Group.Alloc and kept between steps

	first   bool // of its group and type
	params  []*tensor.Param
	waiting int              // parameters that have no gradient in this Backward yet
	after   []tensor.Pending // what must be over before these are complete
	work    dist.Work
	tape    *tensor.Tape // whose Backward makes the gradients
	low     *compressed  // PowerSGD's
}

// CommHook adds up a bucket over its group. Hooks of all ranks must be the same.
type CommHook interface {
	// Start issues the communication of b.Grad; its Work is waited for before Finish.
	Start(b *Bucket) dist.Work
	// Finish leaves the sum over the group in b.Grad.
	Finish(b *Bucket)
}

type allReduce struct{}

func (allReduce) Start(b *Bucket) dist.Work { return b.sum(b.Grad) }
func (allReduce) Finish(*Bucket)            {}

// sum adds x up over the group. One rank does nothing.
func (b *Bucket) sum(x tensor.Tensor) dist.Work {
	if b.Group.Size() == 1 {
		return dist.Work{}
	}
	return b.Group.AllReduce(x, dist.Sum.In(b.tape))
}

// Compress returns a hook that sends gradients rounded to a 16-bit float type, Float16 or BFloat16, which halves the
// bytes of float32. The sum itself is made in float32 and rounded once. Another type panics with a *tensor.Failure.
func Compress(d tensor.DType) CommHook {
	if !d.IsHalf() {
		panic(&tensor.Failure{Op: "ddp.Compress", Err: fmt.Errorf("%v is not a 16-bit float type", d)})
	}
	return compress{d}
}

type compress struct{ dtype tensor.DType }

func (c compress) Start(b *Bucket) dist.Work {
	if b.Wire.IsZero() {
		b.Wire = b.Group.Alloc(c.dtype, b.Grad.Len())
	}
	cast(b.Exec, b.Wire, b.Grad)
	return b.sum(b.Wire)
}

func (c compress) Finish(b *Bucket) { cast(b.Exec, b.Grad, b.Wire) }

func cast(e *tensor.Exec, dst, src tensor.Tensor) {
	e.Args(tensor.OpCast, src.DType()).Out(dst).In(src)
	e.Launch()
}

// build cuts the parameters, in the order of s.params, into buckets of one group and type, and makes their gradients views of
// these. Buckets are in the order of their last parameters: the same on all ranks of a group.
func (s *sync) build() {
	for _, b := range s.buckets {
		b.Group.Free(b.Grad)
		if !b.Wire.IsZero() {
			b.Group.Free(b.Wire)
		}
	}
	s.buckets, s.of = nil, make(map[*tensor.Param]*Bucket, len(s.params))
	type kind struct {
		g     *dist.Group
		dtype tensor.DType
	}
	open, bytes := map[kind]*Bucket{}, map[*Bucket]int{}
	for _, p := range s.params {
		k := kind{s.over(p), p.Value.DType()}
		b, size := open[k], p.Len()*k.dtype.Size()
		limit := s.cap
		if b == nil || b.first {
			limit = min(firstBucketBytes, s.cap)
		}
		if b == nil || bytes[b]+size > limit {
			b = &Bucket{Group: k.g, Exec: s.exec, first: b == nil}
			open[k] = b
		} else {
			s.buckets = slices.DeleteFunc(s.buckets, func(o *Bucket) bool { return o == b })
		}
		s.buckets = append(s.buckets, b) // in the order in which they are full
		b.params = append(b.params, p)
		bytes[b] += size
		s.of[p] = b
	}
	for i, b := range s.buckets {
		b.Index = i
	}
	for _, b := range s.buckets {
		b.layOut()
	}
}

// waitPending waits until the bucket has all that Backward gave.
func (b *Bucket) waitPending() {
	for _, p := range b.after {
		if err := p.Wait(); err != nil {
			panic(&tensor.Failure{Op: "ddp", Err: err})
		}
	}
	b.after = b.after[:0]
}

func (b *Bucket) layOut() {
	n := 0
	for _, p := range b.params {
		n += p.Len()
	}
	b.Grad = b.Group.AllocFor(tensor.Gradients, b.params[0].Value.DType(), n)
	at := 0
	for _, p := range b.params {
		p.Grad = b.Grad.Range(at, at+p.Len()).View(p.Dims()...)
		at += p.Len()
	}
}
