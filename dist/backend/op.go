package backend

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/compare"
)

// Kind is what a collective or point-to-point operation does.
type Kind uint8

// The operations, named as in NCCL and MPI.
const (
	Broadcast Kind = iota
	Reduce
	AllReduce
	Gather
	AllGather
	Scatter
	ReduceScatter
	AllToAll
	AllGatherV
	ReduceScatterV
	AllToAllV
	Barrier
	MonitoredBarrier
	Send
	Recv
	Batch
	// NumKinds is the number of kinds.
	NumKinds = iota
)

var kindNames = [NumKinds]string{"broadcast", "reduce", "allreduce", "gather", "allgather", "scatter", "reducescatter",
	"alltoall", "allgatherv", "reducescatterv", "alltoallv", "barrier", "monitoredbarrier", "send", "recv", "batch"}

// String returns the lower-case name that errors, traces and RINGO_ALGO use.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Red is how a reducing operation combines elements.
type Red uint8

// The reductions. Avg is Sum divided by the number of ranks; PreMulSum multiplies each rank's input by its own factor.
const (
	Sum Red = iota
	Avg
	Prod
	Min
	Max
	BAnd
	BOr
	BXor
	PreMulSum
	// NumReds is the number of reductions.
	NumReds = iota
)

var redNames = [NumReds]string{"sum", "avg", "prod", "min", "max", "band", "bor", "bxor", "premulsum"}

// String returns the lower-case name.
func (r Red) String() string {
	if int(r) < len(redNames) {
		return redNames[r]
	}
	return fmt.Sprintf("Red(%d)", uint8(r))
}

// Mem is contiguous memory of Bytes bytes at Ptr.
type Mem struct {
	Ptr    tensor.Ptr
	Bytes  int
	Device bool // memory of the rank's device that Go code cannot access; only a DeviceUser gets it
}

// RankOrder as Op.Algo lets the engine choose among the algorithms that combine elements in rank order.
const RankOrder = "rank-order"

// Op describes one operation of this rank. Counts are in elements. Count means, as in NCCL: the whole buffer for Broadcast, Reduce,
// AllReduce, Send and Recv; one rank's input for Gather and AllGather; one rank's result for Scatter and ReduceScatter; the part for one
// peer for AllToAll.
type Op struct {
	Kind   Kind
	Red    Red
	DType  tensor.DType
	Seq    uint64 // number in the group (point-to-point: in the lane to the peer), from 1
	Count  int
	Root   int // rank in the group
	Peer   int // Send, Recv; -1 receives from any
	Tag    int
	Factor float64 // PreMulSum
	Algo   string  // a forced algorithm, RankOrder, or ""
	Src    Mem     // zero if the rank has no input
	Dst    Mem     // may be equal to Src (in place); zero if the rank has no output
	// In V forms, SrcCounts[i] elements go to rank i and DstCounts[i] come from rank i. For AllGatherV, DstCounts is what each rank
	// gives; for ReduceScatterV, SrcCounts is what each rank gets.
	SrcCounts, DstCounts []int
	Row                  int               // elements in one row; the counts of V forms are multiples of it
	Shape                tensor.Shape      // of the user's tensor, for errors
	Agreed               compare.Agreement // of the step; reductions only
	// Of is set in a Barrier, or in an empty Send or Recv, that stands for an operation whose data moves in another way, on a device. So
	// ranks that disagree about that operation notice it here. It is not changed until 2*Depth more operations are issued.
	Of *Op
	// Copied is where peers read a copy of the input of a one-shot all-reduce on device memory. Engines set it; nil in all other operations.
	Copied tensor.Ptr
}

// OnDevice reports whether the operation uses device memory that Go code cannot access.
func (op *Op) OnDevice() bool { return op.Src.Device || op.Dst.Device }

// Asked returns the kind of operation that the program called: that of Of, if it is set.
func (op *Op) Asked() Kind {
	if op.Of != nil {
		return op.Of.Kind
	}
	return op.Kind
}

// Nothing reports whether op moves no data on any rank. Ranks of an AllToAllV do not know that of each other: it is false.
func (op *Op) Nothing() bool {
	counts := []int{op.Count}
	switch op.Kind {
	case AllToAllV:
		return false
	case AllGatherV:
		counts = op.DstCounts
	case ReduceScatterV:
		counts = op.SrcCounts
	}
	return !slices.ContainsFunc(counts, func(n int) bool { return n > 0 })
}

// Issued is what an engine remembers of an operation.
type Issued struct {
	Op    *Op // until it is done
	Print uint64
	Copy  Op // for the text of a mismatch that shows later
	of    Op // behind Copy.Of
}

// History has an entry for each of the last 2*Depth operations of a group. The first use of an entry makes it, and those next to it: most
// groups have few operations, and all entries together take more memory than what else a group has.
type History[T any] struct {
	parts [2 * Depth / historyPart]*[historyPart]T
}

const historyPart = 16

// At returns the entry of operation seq. Another goroutine may only ask for one that was made before.
func (h *History[T]) At(seq uint64) *T {
	part := &h.parts[seq/historyPart%uint64(len(h.parts))]
	if *part == nil {
		*part = new([historyPart]T)
	}
	return &(*part)[seq%historyPart]
}

// Keep remembers op, which was issued in the group whose name has this hash. It uses the memory of the operation before.
func (r *Issued) Keep(op *Op, group uint64) {
	r.Op, r.Print = op, Fingerprint(op, group)
	r.Copy.Keep(op)
	if op.Of != nil {
		r.of.Keep(op.Of)
		r.Copy.Of = &r.of
	}
}

// Keep makes op a copy of from, in memory that it has.
func (op *Op) Keep(from *Op) {
	srcs, dsts, dims := op.SrcCounts[:0], op.DstCounts[:0], op.Shape.Dims[:0]
	*op = *from
	op.SrcCounts, op.DstCounts = append(srcs, from.SrcCounts...), append(dsts, from.DstCounts...)
	op.Shape.Dims = append(dims, from.Shape.Dims...)
}
