package tensor

import (
	"testing"
	"unsafe"

	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/tensor/compare"
	"github.com/ringo-ml/ringo/tensor/internal/arena"
)

// For the external tests of this package, which use package ops or share their cases with tensortest.

var HostDevice = hostDevice

const (
	MinBlock       = arena.MinBlock
	LargestSlab    = arena.LargestSlab
	FirstSteps     = firstSteps
	ComparedSteps  = compare.ComparedSteps
	NumActivations = len(activationOps)
)

// Poison fills the tape's new and freed memory with NaN, as the debug mode does.
func Poison(t *Tape) { t.mem.Spoil = func(b arena.Block) { spoil(t.dev, b.P, b.Bytes) } }

// Recorded reports whether the tape has a node of op.
func Recorded(t *Tape, op Op) bool {
	for i := range t.nn {
		if t.node(i).op == op {
			return true
		}
	}
	return false
}

// SpecOf returns the OpSpec of an operation.
func SpecOf(op Op) OpSpec { return ops[op] }

// StoreFloat writes element i at p.
func StoreFloat(p Ptr, d DType, i int, v float64) { storeFloat(p, d, i, v) }

// Check makes the tape compare each kernel with its reference, as the debug mode does.
func Check(t *Tape, c Checker) { t.check = c.Checked() }

// KeepAll makes the tape free nothing before Reset.
func KeepAll(t *Tape, on bool) { t.keepAll = on }

// Nodes returns the number of the tape's nodes.
func Nodes(t *Tape) int { return t.nn }

// Fill writes v to all elements of x, by a kernel.

// PlaceOf returns where the rows are in x.
func PlaceOf(x Tensor) layout.Place { return x.hdr().at }

// CutAlong says that the features of x are divided along the dimensions of a mask.
func CutAlong(x Tensor, mask uint8) { x.hdr().at = x.hdr().at.WithCut(mask) }

// PendingUses returns how many recorded uses of the parameter that x views are not differentiated yet.
func PendingUses(x Tensor) int { return int(x.h.base.pending) }

// Micro returns the step and the microbatch of the tape's random numbers.
func Micro(t *Tape) [2]int { return [2]int{t.random.Step, t.random.Micro} }

// StepsDone returns the tape's steps that compared something, and all.
func StepsDone(t *Tape) []int { return []int{t.agreement.Steps, int(t.stepsDone)} }

// Init returns the initializer of p.
func Init(p *Param) Initializer { return p.init }

// SetFrozen is Freeze or Unfreeze in the middle of a step.
func SetFrozen(p *Param, on bool) { p.frozen = on }

// HasThrough reports whether Through was called.
func HasThrough(p *Param) bool { return p.through != nil }

// Random returns a tensor outside tapes, uniform in ±1.
func Random(dev Device, dtype DType, key uint64, dims ...int) Tensor {
	x := New(dev, dtype, dims...)
	UniformInit(-1, 1).Fill(x, key, 0)
	return x
}

// Debugging reports whether kernels are compared with their references.
func Debugging() bool { return debugMode }

// SkipInDebug is for tests that count allocations.
func SkipInDebug(t *testing.T) {
	if Debugging() {
		t.Skip("debug mode allocates")
	}
}

// heap is a device of Go memory that computes nothing, for tests inside of the package.
type heap struct {
	host
	mem map[Ptr][]byte
}

func newHeap() *heap { return &heap{mem: map[Ptr][]byte{}} }

func (d *heap) Alloc(n int) (Ptr, error) {
	p, keep := alignedBytes(max(n, 1))
	d.mem[p] = unsafe.Slice((*byte)(keep), n)
	return p, nil
}

func (d *heap) Free(p Ptr)        { delete(d.mem, p) }
func (d *heap) Queue(k int) Queue { return hostDevice.Queue(k) }
func (d *heap) Kernels() *Table   { return hostDevice.Kernels() }
