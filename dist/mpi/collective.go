package mpi

import (
	"fmt"
	"unsafe"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/mpi"
	"github.com/ringo-ml/ringo/tensor"
)

// byMPI as Op.Algo means MPI's own collective.
const byMPI = "mpi"

// types and reds are MPI's of ours; 0: it has no such type or reduction.
var (
	types = [tensor.NumDTypes]int{tensor.Float32: mpi.Float, tensor.Float64: mpi.Double, tensor.Int32: mpi.Int32, tensor.Int64: mpi.Int64,
		tensor.Uint8: mpi.Uint8}
	reds = [backend.NumReds]int{backend.Sum: mpi.Sum, backend.Min: mpi.Min, backend.Max: mpi.Max, backend.Prod: mpi.Prod,
		backend.BAnd: mpi.BAnd, backend.BOr: mpi.BOr, backend.BXor: mpi.BXor}
)

// Algorithms returns the names that Op.Algo may have.
func (b *endpoint) Algorithms() []string { return append([]string{byMPI}, algo.Names()...) }

// Choice returns "mpi" if MPI's own collective runs op, or the name of our algorithm.
func (b *endpoint) Choice(op *backend.Op) string {
	if b.native(op) {
		return byMPI
	}
	return b.tuner.Choose(op)
}

// native reports whether MPI's own collective runs op. MPI has no 16-bit floats, no truth values, and neither Avg nor PreMulSum; it may
// drop a NaN in Min and Max; and it does not add in rank order. Without large counts it does no large buffers.
func (b *endpoint) native(op *backend.Op) bool {
	switch {
	case op.Algo != "" && op.Algo != byMPI && op.Algo != backend.RankOrder, len(b.spec.Ranks) == 1 && op.Algo != byMPI:
		return false
	case algo.Bytes(op, len(b.spec.Ranks)) > b.e.limit:
		return false
	case !op.Kind.Reduces():
		return op.Kind != backend.Send && op.Kind != backend.Recv
	}
	chooses := op.Red == backend.Min || op.Red == backend.Max
	return op.Algo != backend.RankOrder && types[op.DType] != 0 && reds[op.Red] != 0 && !(chooses && op.DType.IsFloat())
}

// check returns an error if op names an algorithm that cannot do it.
func (b *endpoint) check(op *backend.Op) error {
	large := op.Kind == backend.AllToAllV && max(op.Src.Bytes, op.Dst.Bytes) > b.e.limit // other ranks do not know
	switch {
	case b.native(op) && !large:
		return nil
	case !b.native(op) && op.Algo != byMPI:
		return b.tuner.Check(op)
	case !op.Kind.Reduces():
		return fmt.Errorf("%v has no large counts: an %v of %d bytes is too large", b.e.lib.Version, op.Kind, max(op.Src.Bytes, op.Dst.Bytes))
	}
	return fmt.Errorf("MPI has no %v of %v by %v: leave the choice of the algorithm to the engine", op.Kind, op.DType, op.Red)
}

// begin calls MPI's collective for op.
func (b *endpoint) begin(op *backend.Op) {
	lib, comm := b.e.lib, b.comm
	size, root, me := op.DType.Size(), uintptr(op.Root), b.spec.Rank
	r := &request{of: b, writes: true}
	b.request = r
	d, n := lib.Of[mpi.Byte], uintptr(op.Count*size)
	if op.Kind.Reduces() {
		d, n, size = lib.Of[types[op.DType]], uintptr(op.Count), 1
	}
	red, req := lib.Of[reds[op.Red]], uintptr(unsafe.Pointer(&r.handle))
	src, dst := b.buffers(op, r)
	b.counters.Wire[op.Kind].Add(uint64(op.Src.Bytes))
	call := func(name string, a ...uintptr) {
		r.call, r.err = name, lib.Do(name, a...)
	}
	switch op.Kind {
	case backend.Broadcast:
		call("MPI_Ibcast", dst, n, d, root, comm, req)
	case backend.Reduce:
		call("MPI_Ireduce", src, dst, n, d, red, root, comm, req)
	case backend.AllReduce:
		call("MPI_Iallreduce", src, dst, n, d, red, comm, req)
	case backend.Gather:
		call("MPI_Igather", src, n, d, dst, n, d, root, comm, req)
	case backend.AllGather:
		call("MPI_Iallgather", src, n, d, dst, n, d, comm, req)
	case backend.Scatter:
		call("MPI_Iscatter", src, n, d, dst, n, d, root, comm, req)
	case backend.ReduceScatter:
		call("MPI_Ireduce_scatter_block", src, dst, n, d, red, comm, req)
	case backend.AllToAll:
		call("MPI_Ialltoall", src, n, d, dst, n, d, comm, req)
	case backend.ReduceScatterV:
		counts, _ := b.counts(r, op.SrcCounts, size)
		call("MPI_Ireduce_scatter", src, dst, counts, d, red, comm, req)
	case backend.AllGatherV:
		counts, at := b.counts(r, op.DstCounts, size)
		call("MPI_Iallgatherv", src, uintptr(op.DstCounts[me]*size), d, dst, counts, at, d, comm, req)
	case backend.AllToAllV:
		out, outAt := b.counts(r, op.SrcCounts, size)
		in, inAt := b.counts(r, op.DstCounts, size)
		call("MPI_Ialltoallv", src, out, outAt, d, dst, in, inAt, d, comm, req)
	}
}

// buffers returns what MPI reads and writes. The two may not overlap, so in the in-place forms MPI is told that the input lies in the
// output, or, if it has not the same form, gets a copy.
func (b *endpoint) buffers(op *backend.Op, r *request) (src, dst uintptr) {
	if op.Src.Bytes > 0 {
		src = uintptr(op.Src.Ptr)
	}
	if op.Dst.Bytes > 0 {
		dst = uintptr(op.Dst.Ptr)
	}
	if src == 0 || dst == 0 || src+uintptr(op.Src.Bytes) <= dst || dst+uintptr(op.Dst.Bytes) <= src {
		return src, dst
	}
	inPlace := b.e.lib.InPlace
	switch op.Kind {
	case backend.Broadcast:
		return src, dst
	case backend.Reduce, backend.AllReduce, backend.Gather, backend.AllGather, backend.AllGatherV:
		return inPlace, dst
	case backend.Scatter:
		return src, inPlace
	}
	own := make([]byte, op.Src.Bytes)
	copy(own, unsafe.Slice((*byte)(op.Src.Ptr), op.Src.Bytes))
	r.own = own
	return uintptr(unsafe.Pointer(&own[0])), dst
}

// counts returns the addresses of arrays with the parts of ranks, of size units for each element, and of where they begin.
func (b *endpoint) counts(r *request, counts []int, size int) (parts, begins uintptr) {
	if b.e.lib.Large {
		return addresses[int64](r, counts, size)
	}
	return addresses[int32](r, counts, size)
}

func addresses[T int32 | int64](r *request, counts []int, size int) (parts, begins uintptr) {
	n, at := len(counts), 0
	all := make([]T, 2*n)
	for i, c := range counts {
		all[i], all[n+i] = T(c*size), T(at)
		at += c * size
	}
	r.keep = append(r.keep, unsafe.Pointer(&all[0]))
	return uintptr(unsafe.Pointer(&all[0])), uintptr(unsafe.Pointer(&all[n]))
}
