package nccl

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/nccl"
	"github.com/ringo-ml/ringo/tensor"
)

// types are NCCL's names of element types. It has no truth values: 0 and 1 are bytes.
var types = [tensor.NumDTypes]nccl.DType{
	tensor.Float32: nccl.Float32, tensor.Float64: nccl.Float64, tensor.BFloat16: nccl.BFloat16, tensor.Float16: nccl.Float16,
	tensor.Int32: nccl.Int32, tensor.Int64: nccl.Int64, tensor.Uint8: nccl.Uint8, tensor.Bool: nccl.Uint8,
}

var reds = map[backend.Red]nccl.RedOp{backend.Sum: nccl.Sum, backend.Prod: nccl.Prod, backend.Max: nccl.Max, backend.Min: nccl.Min,
	backend.Avg: nccl.Avg}

// boolean are the reductions of truth values, as bytes.
var boolean = map[backend.Red]nccl.RedOp{backend.Sum: nccl.Max, backend.Max: nccl.Max, backend.BOr: nccl.Max,
	backend.Prod: nccl.Min, backend.Min: nccl.Min, backend.BAnd: nccl.Min}

// reduction returns NCCL's name of a reduction; that of PreMulSum is made for each operation.
func reduction(op *backend.Op) (nccl.RedOp, bool) {
	table := reds
	if op.DType == tensor.Bool {
		table = boolean
	}
	r, ok := table[op.Red]
	return r, ok || op.Red == backend.PreMulSum
}

// check returns an error for what no engine can do.
func check(op *backend.Op) error {
	if op.Src.Bytes > 0 && op.Dst.Bytes > 0 && op.Src.Device != op.Dst.Device {
		return fmt.Errorf("input and output are in different memory, one of them the host's")
	}
	return nil
}

// call is one operation on its way to NCCL: n calls are one group.
type call struct {
	b      *endpoint
	op     *backend.Op
	d      nccl.DType
	size   int
	stream uintptr
	result nccl.Result
}

// run queues an operation on the end's stream.
func (b *endpoint) run(op *backend.Op) (name string, r nccl.Result, err error) {
	c := call{b: b, op: op, d: types[op.DType], size: op.DType.Size(), stream: b.stream.Handle()}
	src, dst := cuda.Ptr(uintptr(op.Src.Ptr)), cuda.Ptr(uintptr(op.Dst.Ptr))
	switch {
	case nothing(op):
		return "", nccl.Success, nil
	case ranked(op):
		if r, err = c.exchange(src); r == nccl.Success && err == nil {
			r, err = c.combine(dst)
		}
	case grouped(op, b.comm):
		r = c.group(src, dst)
	default:
		name, r = c.single(src, dst)
		return name, r, nil
	}
	return "ncclGroupEnd", r, err
}

// single queues an operation that is one call.
func (c *call) single(src, dst cuda.Ptr) (string, nccl.Result) {
	b, op, comm, n := c.b, c.op, c.b.comm, c.op.Count
	if op.Kind.Reduces() {
		if r := b.prepare(op, c.d); r != nccl.Success {
			return "ncclRedOpCreatePreMulSum", r
		}
	}
	switch op.Kind {
	case backend.Barrier:
		return "ncclAllReduce", comm.AllReduce(b.flag, b.flag, 1, nccl.Int32, nccl.Sum, c.stream)
	case backend.Broadcast:
		return "ncclBroadcast", comm.Broadcast(dst, dst, n, c.d, op.Root, c.stream)
	case backend.Reduce:
		return "ncclReduce", comm.Reduce(src, dst, n, c.d, b.op, op.Root, c.stream)
	case backend.AllReduce:
		return "ncclAllReduce", comm.AllReduce(src, dst, n, c.d, b.op, c.stream)
	case backend.AllGather:
		return "ncclAllGather", comm.AllGather(src, dst, n, c.d, c.stream)
	case backend.ReduceScatter:
		return "ncclReduceScatter", comm.ReduceScatter(src, dst, n, c.d, b.op, c.stream)
	case backend.AllToAll:
		return "ncclAlltoAll", comm.AllToAll(src, dst, n, c.d, c.stream)
	case backend.Send:
		return "ncclSend", comm.Send(src, n, c.d, 1, c.stream)
	}
	return "ncclRecv", comm.Recv(dst, n, c.d, 0, c.stream)
}

// grouped reports whether an operation is a group of several calls.
func grouped(op *backend.Op, comm *nccl.Comm) bool {
	switch op.Kind {
	case backend.Gather, backend.Scatter, backend.AllGatherV, backend.ReduceScatterV, backend.AllToAllV:
		return true
	case backend.AllToAll:
		return !comm.HasAllToAll()
	}
	return false
}

// group queues the calls of an operation that NCCL does not have by itself.
func (c *call) group(src, dst cuda.Ptr) nccl.Result {
	b, op := c.b, c.op
	me, lib := b.spec.Rank, b.e.lib
	if op.Kind.Reduces() {
		c.note(b.prepare(op, c.d))
	}
	c.note(lib.GroupStart())
	from, to := src, dst
	for i := range b.spec.Ranks {
		switch op.Kind {
		case backend.Gather:
			if i == op.Root {
				c.send(src, op.Count, i)
			}
			if me == op.Root {
				to = c.recv(to, op.Count, i)
			}
		case backend.Scatter:
			if me == op.Root {
				from = c.send(from, op.Count, i)
			}
			if i == op.Root {
				c.recv(dst, op.Count, i)
			}
		case backend.AllToAll:
			from, to = c.send(from, op.Count, i), c.recv(to, op.Count, i)
		case backend.AllToAllV:
			from, to = c.send(from, op.SrcCounts[i], i), c.recv(to, op.DstCounts[i], i)
		case backend.AllGatherV:
			n := op.DstCounts[i]
			mine := to
			if i == me {
				mine = src
			}
			c.note(b.comm.Broadcast(mine, to, n, c.d, i, c.stream))
			to += c.bytes(n)
		case backend.ReduceScatterV:
			n := op.SrcCounts[i]
			c.note(b.comm.Reduce(from, dst, n, c.d, b.op, i, c.stream))
			from += c.bytes(n)
		}
	}
	c.note(lib.GroupEnd())
	return c.result
}

func (c *call) bytes(n int) cuda.Ptr { return cuda.Ptr(n * c.size) }

// note keeps the first failure of the group.
func (c *call) note(r nccl.Result) {
	if c.result == nccl.Success {
		c.result = r
	}
}

// send and recv return the address behind what they move.
func (c *call) send(at cuda.Ptr, n, peer int) cuda.Ptr {
	if n > 0 {
		c.note(c.b.comm.Send(at, n, c.d, peer, c.stream))
	}
	return at + c.bytes(n)
}

func (c *call) recv(at cuda.Ptr, n, peer int) cuda.Ptr {
	if n > 0 {
		c.note(c.b.comm.Recv(at, n, c.d, peer, c.stream))
	}
	return at + c.bytes(n)
}

// prepare sets b.op to the reduction of op.
func (b *endpoint) prepare(op *backend.Op, d nccl.DType) (r nccl.Result) {
	if op.Red != backend.PreMulSum {
		b.op, _ = reduction(op)
		return nccl.Success
	}
	var factor [8]byte
	switch op.DType {
	case tensor.Float64:
		*(*float64)(unsafe.Pointer(&factor)) = op.Factor
	case tensor.Float32:
		*(*float32)(unsafe.Pointer(&factor)) = float32(op.Factor)
	case tensor.BFloat16:
		*(*uint16)(unsafe.Pointer(&factor)) = uint16(tensor.ToBF16(float32(op.Factor)))
	default:
		*(*uint16)(unsafe.Pointer(&factor)) = uint16(tensor.ToF16(float32(op.Factor)))
	}
	b.op, r = b.comm.PreMulSum(unsafe.Pointer(&factor), d)
	b.custom = r == nccl.Success
	return r
}

// nothing reports whether an operation has no data on any rank, so that there is nothing to call.
func nothing(op *backend.Op) bool {
	if op.Kind == backend.AllToAllV { // of the others, too, this rank gets and gives nothing
		return sum(op.SrcCounts)+sum(op.DstCounts) == 0
	}
	return op.Kind != backend.Barrier && op.Nothing()
}

func sum(x []int) (n int) {
	for _, v := range x {
		n += min(v, math.MaxInt-n)
	}
	return n
}
