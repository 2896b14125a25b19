package tensor

import (
	"testing"

	"github.com/ringo-ml/ringo/layout"
)

// For the external tests of this package, which use package ops or share their cases with tensortest.

var HostDevice = hostDevice

const (
	MinBlock       = minBlock
	LargestSlab    = largestSlab
	HalfChunk      = halfChunk
	FirstSteps     = firstSteps
	ComparedSteps  = comparedSteps
	NumActivations = len(activationOps)
)

// Poison fills the tape's new and freed memory with NaN, as the debug mode does.
func Poison(t *Tape) { t.mem.poison = true }

// CutAll makes a device divide even the smallest work over its threads.
func CutAll(d *CPU) { d.queue.SetGrain(1) }

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

// ThroughFloat32 is the kernel for 16-bit floats that converts whole operands.

// CPUTable returns the kernels of the CPU.
func CPUTable() Table { return cpuTable }

// Slabs returns how many blocks the tape has from its device, Blocks how many the device has given.
func Slabs(t *Tape) int { return len(t.mem.slabs) }
func Blocks(d *CPU) int { return len(d.mem) }

// KeepAll makes the tape free nothing before Reset.
func KeepAll(t *Tape, on bool) { t.keepAll = on }

// Nodes returns the number of the tape's nodes.
func Nodes(t *Tape) int { return t.nn }

// Fill writes v to all elements of x, by a kernel.
func Fill(t *Tape, x Tensor, v float64) { t.fill(x.hdr(), v) }

// PlaceOf returns where the rows are in x.
func PlaceOf(x Tensor) layout.Place { return x.hdr().at }

// CutAlong says that the features of x are divided along the dimensions of a mask.
func CutAlong(x Tensor, mask uint8) { x.hdr().at = x.hdr().at.WithCut(mask) }

// PendingUses returns how many recorded uses of the parameter that x views are not differentiated yet.
func PendingUses(x Tensor) int { return int(x.h.base.pending) }

// Micro returns the step and the microbatch of the tape's random numbers.
func Micro(t *Tape) [2]int { return [2]int{t.random.Step, t.random.Micro} }

// StepsDone returns the tape's steps that compared something, and all.
func StepsDone(t *Tape) []int { return []int{t.told.steps, int(t.stepsDone)} }

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

// SkipInDebug is for tests that count allocations.
func SkipInDebug(t *testing.T) {
	if debugMode {
		t.Skip("debug mode allocates")
	}
}

// FaultyDevice has a table of its own.
type FaultyDevice struct {
	*CPU
	Table Table
}

func (d *FaultyDevice) Kernels() *Table { return &d.Table }
