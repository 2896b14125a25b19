package ddp

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// Bucket is a flat piece of memory that holds the gradients of several parameters of one type, which are communicated
// together.
type Bucket struct {
	Index  int // from 0, in the order of communication
	Group  *dist.Group
	Exec   *tensor.Exec    // for kernels of a CommHook
	Params []*tensor.Param // in the order in which their gradients lie
	Grad   tensor.Tensor   // flat; Param.Grad are views of it
	Wire   tensor.Tensor   // a CommHook's own memory, made by Group.Alloc and kept between steps
	State  any             // a CommHook's own

	first   bool             // of its group and type
	waiting int              // parameters that have no gradient in this Backward yet
	after   []tensor.Pending // what must be over before these are complete
	work    dist.Work
	tape    *tensor.Tape // whose Backward makes the gradients
}

// CommHook adds up a bucket over its group. Hooks of all ranks must be the same: Attach compares what their String returns, or their types.
type CommHook interface {
	// Start issues the communication of b.Grad; its Work is waited for before Finish.
	Start(b *Bucket) dist.Work
	// Finish leaves the sum over the group in b.Grad.
	Finish(b *Bucket)
}

// StatefulHook is a CommHook that keeps state from step to step, and communicates twice: see package powersgd.
type StatefulHook interface {
	CommHook
	// Attach returns the hook for a model, which it may refuse. Attach of this package calls it.
	Attach(params nn.Params, c Config) (StatefulHook, error)
	// Arrived is called when what Start sent of all buckets has arrived.
	Arrived(buckets []*Bucket)
	// Again issues a second communication of a bucket; its Work is waited for before Finish.
	Again(b *Bucket) dist.Work
	// Done ends a step.
	Done()
}

type allReduce struct{}

func (allReduce) Start(b *Bucket) dist.Work { return b.Sum(b.Grad) }
func (allReduce) Finish(*Bucket)            {}

// Sum adds x up over the group, for a CommHook. One rank does nothing.
func (b *Bucket) Sum(x tensor.Tensor) dist.Work {
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

// String names the hook where ranks compare what they attach.
func (c compress) String() string { return fmt.Sprintf("Compress(%v)", c.dtype) }

func (c compress) Start(b *Bucket) dist.Work {
	if b.Wire.IsZero() {
		b.Wire = b.Group.Alloc(c.dtype, b.Grad.Len())
	}
	b.Exec.Cast(b.Wire, b.Grad)
	return b.Sum(b.Wire)
}

func (c compress) Finish(b *Bucket) { b.Exec.Cast(b.Grad, b.Wire) }

// build cuts the parameters, in the order of r.params, into buckets of one group and type, and makes their gradients views of
// these. Buckets are in the order of their last parameters: the same on all ranks of a group.
func (r *reducer) build() {
	for _, b := range r.buckets {
		b.Group.Free(b.Grad)
		if !b.Wire.IsZero() {
			b.Group.Free(b.Wire)
		}
	}
	r.buckets, r.of = nil, make(map[*tensor.Param]*Bucket, len(r.params))
	type kind struct {
		g     *dist.Group
		dtype tensor.DType
	}
	open, bytes := map[kind]*Bucket{}, map[*Bucket]int{}
	for _, p := range r.params {
		k := kind{r.over(p), p.Value.DType()}
		b, size := open[k], p.Len()*k.dtype.Size()
		limit := r.bucketBytes
		if b == nil || b.first {
			limit = min(firstBucketBytes, r.bucketBytes)
		}
		if b == nil || bytes[b]+size > limit {
			b = &Bucket{Group: k.g, Exec: r.exec, first: b == nil}
			open[k] = b
		} else {
			r.buckets = slices.DeleteFunc(r.buckets, func(o *Bucket) bool { return o == b })
		}
		r.buckets = append(r.buckets, b) // in the order in which they are full
		b.Params = append(b.Params, p)
		bytes[b] += size
		r.of[p] = b
	}
	for i, b := range r.buckets {
		b.Index = i
	}
	for _, b := range r.buckets {
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
	for _, p := range b.Params {
		n += p.Len()
	}
	b.Grad = b.Group.AllocFor(memory.Gradients, b.Params[0].Value.DType(), n)
	at := 0
	for _, p := range b.Params {
		p.Grad = b.Grad.Range(at, at+p.Len()).View(p.Dims()...)
		at += p.Len()
	}
}
