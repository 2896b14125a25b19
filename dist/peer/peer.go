package peer

import (
	_ "embed"
	"fmt"
	"unsafe"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/local"
	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor"
)

// Device is a rank's GPU, for package local.
type Device struct {
	gpu     *cuda.Device
	compute *cuda.Stream
	sms     int // multiprocessors
	funcs   [tensor.NumDTypes][backend.NumReds]*cuda.Func
}

// New makes the device of a rank. compute is the stream whose kernels write what operations read, and wait for their results.
func New(gpu *cuda.Device, compute *cuda.Stream) (*Device, error) {
	sms, err := gpu.Attribute(cuda.Multiprocessors)
	return &Device{gpu: gpu, compute: compute, sms: sms}, err
}

// Meet makes the kernels of two devices able to use each other's memory.
func (d *Device) Meet(other local.Device) error {
	o := other.(*Device)
	if o.gpu == d.gpu {
		return nil
	}
	for _, p := range [2][2]*cuda.Device{{d.gpu, o.gpu}, {o.gpu, d.gpu}} {
		if err := p[0].Lock(); err != nil {
			return err
		}
		err := p[0].EnablePeer(p[1])
		p[0].Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

//go:embed reduce.cu
var source string

// maxRanks is the largest number of ranks of a reduction. Their addresses are parameters of the kernel, which has 4 KiB for parameters.
const maxRanks = 64

// ranks has the addresses of inputs and outputs (Ranks in reduce.cu).
type ranks struct {
	src, dst [maxRanks]cuda.Ptr
	factor   [maxRanks]float64
}

// elems are the C++ types of the element types.
var elems = [tensor.NumDTypes]string{"float", "double", "bf16", "f16", "int", "i64", "u8", "bool"}

// options are compiler options. Inputs are rounded after the multiplication by a factor and before the addition, as on the host, so fused
// multiply-add is off.
func options(t tensor.DType) []string {
	o := []string{"-DELEM=" + elems[t], fmt.Sprintf("-DMAX_RANKS=%d", maxRanks), "--fmad=false"}
	if t.IsFloat() {
		o = append(o, "-DFLOATS")
	}
	return o
}

// kernel returns the kernel of a reduction. The first use compiles it. The device's context is current.
func (d *Device) kernel(op *backend.Op) (*cuda.Func, error) {
	f := &d.funcs[op.DType][op.Red]
	if *f != nil {
		return *f, nil
	}
	var err error
	*f, err = compile(d.gpu, op, options(op.DType))
	return *f, err
}

func compile(gpu *cuda.Device, op *backend.Op, options []string) (f *cuda.Func, err error) {
	m, err := gpu.Module(cuda.Source{Name: "reduce.cu", Text: source}, options...)
	if err == nil {
		f, err = m.Func("peer_" + op.Red.String())
	}
	if err != nil {
		return nil, fmt.Errorf("kernel %v of %v: %w", op.Red, op.DType, err)
	}
	return f, nil
}

// threads is the size of a block.
const threads = 256

// reduce queues the reduction of a share. The device's context is current.
func (q *stream) reduce(s *algo.Share) error {
	if len(s.Srcs) > maxRanks {
		return fmt.Errorf("%d ranks of one process on GPUs; a reduction takes %d at most", len(s.Srcs), maxRanks)
	}
	f, err := q.dev.kernel(s.Op)
	if err != nil {
		return err
	}
	at := uintptr(0)
	for i, p := range s.Srcs {
		q.ranks.src[i], q.ranks.factor[i] = devPtr(p), s.Factors[i]
		at |= uintptr(p)
	}
	for i, p := range s.Dsts {
		q.ranks.dst[i] = devPtr(p)
		at |= uintptr(p)
	}
	items, vec := pieces(at, s.Count, s.Op.DType)
	q.args.Reset().Struct(unsafe.Pointer(&q.ranks), int(unsafe.Sizeof(q.ranks))).I64(int64(s.Count)).
		I32(len(s.Srcs)).I32(len(s.Dsts)).I32(vec)
	grid := cuda.Dim{X: min((items+threads-1)/threads, q.dev.sms*16)}
	return q.s.Launch(f, grid, cuda.Dim{X: threads}, 0, &q.args)
}

// pieces returns how many pieces a kernel handles, and whether a piece is 16 bytes long (1) or an element (0). at is all addresses,
// combined by OR.
func pieces(at uintptr, count int, t tensor.DType) (items, vec int) {
	if at%16 != 0 {
		return count, 0
	}
	return count/(16/t.Size()) + 1, 1
}

func devPtr(p tensor.Ptr) cuda.Ptr { return cuda.Ptr(uintptr(p)) }
