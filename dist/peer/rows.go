package peer

import (
	"unsafe"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor"
)

// Rows is the same elements of all ranks in one GPU buffer, a row for each rank (Ranks in reduce.cu, with ROWS).
type Rows struct {
	Src     cuda.Ptr
	Stride  int64    // elements from one row to the next
	Dst     cuda.Ptr // address of the result
	Factors cuda.Ptr // for PreMulSum: a float64 for each row
}

// Reducer combines rows that ranks of other processes have sent. The bits are those of the host engine, for any number of ranks. Only one
// goroutine at a time may use it.
type Reducer struct {
	gpu   *cuda.Device
	sms   int
	funcs [tensor.NumDTypes][backend.NumReds]*cuda.Func
	rows  Rows
	args  cuda.Args
}

// NewReducer makes the Reducer of a GPU.
func NewReducer(gpu *cuda.Device) (*Reducer, error) {
	sms, err := gpu.Attribute(cuda.Multiprocessors)
	return &Reducer{gpu: gpu, sms: sms}, err
}

// Queue queues on s the reduction of op: it combines the first count elements of n rows, in their order. The first use compiles the
// kernel. The device's context is current.
func (r *Reducer) Queue(s *cuda.Stream, op *backend.Op, rows Rows, n, count int) (err error) {
	f := &r.funcs[op.DType][op.Red]
	if *f == nil {
		if *f, err = compile(r.gpu, op, append(options(op.DType), "-DROWS")); err != nil {
			return err
		}
	}
	items, vec := pieces(uintptr(rows.Src)|uintptr(rows.Dst)|uintptr(rows.Stride)*uintptr(op.DType.Size()), count, op.DType)
	r.rows = rows
	r.args.Reset().Struct(unsafe.Pointer(&r.rows), int(unsafe.Sizeof(r.rows))).I64(int64(count)).I32(n).I32(1).I32(vec)
	grid := cuda.Dim{X: min((items+threads-1)/threads, r.sms*16)}
	return s.Launch(*f, grid, cuda.Dim{X: threads}, 0, &r.args)
}
