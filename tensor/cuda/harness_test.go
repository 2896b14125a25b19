package cuda_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/cuda"
)

// device is an emulated GPU; without g++, the test is skipped.
func device(t testing.TB) *cuda.Device {
	t.Helper()
	emu.Start(t, emu.Config{})
	return open(t, 0)
}

// long reports whether a test runs in every variant: in the long runs, and on a real GPU.
func long(t *testing.T) bool { return reliability.Long(t) || emu.OnGPU() }

// bothOrders runs a test with the threads of blocks in descending order and, in the long runs, in ascending order: a missing barrier is
// found in one of them, mostly in the first.
func bothOrders(t *testing.T, fn func(t *testing.T, dev *cuda.Device)) {
	for _, reverse := range []bool{true, false} {
		if reverse == reliability.Long(t) && !emu.OnGPU() {
			continue
		}
		t.Run(map[bool]string{false: "ascending", true: "descending"}[reverse], func(t *testing.T) {
			emu.Start(t, emu.Config{Reverse: reverse})
			fn(t, open(t, 0))
		})
	}
}

// The tests of bothOrders, in ascending order.
func TestLongAscending(t *testing.T) {
	reliability.SkipUnlessLong(t)
	for name, test := range map[string]func(t *testing.T){
		"Attention": TestAttention, "AttentionWindows": TestAttentionWindows, "ColSum": TestColSum, "Convolutions": TestConvolutions,
		"Copy":           TestCopy,
		"CrossAttention": TestCrossAttention, "CrossAttentionMasks": TestCrossAttentionMasks, "CrossEntropy": TestCrossEntropy,
		"EmbeddingGrad": TestEmbeddingGrad, "Extremes": TestExtremes, "ExtremesOfLongLines": TestExtremesOfLongLines,
		"FusedGradients": TestFusedGradients, "GradNorm": TestGradNorm, "Grouped": TestGrouped,
		"NormGradients": TestNormGradients, "NormWeightGradients": TestNormWeightGradients, "Norms": TestNorms, "Softmax": TestSoftmax,
		"Sum": TestSum, "SumSquares": TestSumSquares, "TopK": TestTopK, "WholeSums": TestWholeSums,
	} {
		t.Run(name, test)
	}
}

// operand is memory of a launch: elements of type d, offset elements after a multiple of 64 bytes.
type operand struct {
	d      tensor.DType
	bytes  []byte
	offset int
}

func (o operand) n() int { return len(o.bytes) / o.d.Size() }

// at is element i.
func (o operand) at(i int) float64 {
	p := unsafe.Pointer(&o.bytes[i*o.d.Size()])
	switch o.d {
	case tensor.Float32:
		return float64(*(*float32)(p))
	case tensor.Float64:
		return *(*float64)(p)
	case tensor.BFloat16:
		return float64((*(*tensor.BF16)(p)).Float32())
	case tensor.Float16:
		return float64((*(*tensor.F16)(p)).Float32())
	case tensor.Int32:
		return float64(*(*int32)(p))
	case tensor.Int64:
		return float64(*(*int64)(p))
	}
	return float64(*(*uint8)(p))
}

// set writes element i.
func (o operand) set(i int, v float64) {
	p := unsafe.Pointer(&o.bytes[i*o.d.Size()])
	switch o.d {
	case tensor.Float32:
		*(*float32)(p) = float32(v)
	case tensor.Float64:
		*(*float64)(p) = v
	case tensor.BFloat16:
		*(*tensor.BF16)(p) = tensor.ToBF16(float32(v))
	case tensor.Float16:
		*(*tensor.F16)(p) = tensor.ToF16(float32(v))
	case tensor.Int32:
		*(*int32)(p) = int32(v)
	case tensor.Int64:
		*(*int64)(p) = int64(v)
	default:
		*(*uint8)(p) = uint8(v)
	}
}

func blank(d tensor.DType, n int) operand { return operand{d: d, bytes: make([]byte, n*d.Size())} }

// copied is a copy whose address is as far from a multiple of 64 as o asks for.
func (o operand) copied() operand {
	first := o.offset * o.d.Size()
	b := make([]byte, len(o.bytes)+64+first)
	first += int(-uintptr(unsafe.Pointer(&b[0])) & 63)
	o.bytes = append(b[first:first], o.bytes...)
	return o
}

// stale is n elements of what an output must not keep: NaN.
func stale(d tensor.DType, n int) operand {
	return values(d, n, func(int) float64 { return math.NaN() })
}

// values makes n elements from f.
func values(d tensor.DType, n int, f func(i int) float64) operand {
	o := blank(d, n)
	for i := range n {
		o.set(i, f(i))
	}
	return o
}

// random makes n elements: of floats in [-3, 3], of integers in [0, 9].
func random(r *rand.Rand, d tensor.DType, n int) operand {
	return values(d, n, func(int) float64 {
		switch {
		case d.IsFloat():
			return r.Float64()*6 - 3
		case d == tensor.Bool:
			return float64(r.IntN(2))
		}
		return float64(r.IntN(10))
	})
}

func (o operand) shifted(offset int) operand {
	o.offset = offset
	return o
}

// launch is a call of a kernel: outputs first. Outputs have content before the call.
type launch struct {
	op    tensor.Op
	d     tensor.DType
	x     []operand
	outs  int
	list  []operand // of a multi-tensor kernel, in groups; they are outputs
	group int
	set   func(a *tensor.Args)
}

// on runs the launch on a device and returns all operands after it.
func (l launch) on(t testing.TB, dev tensor.Device) []operand {
	t.Helper()
	q := dev.Queue(0)
	a := &tensor.Args{Op: l.op, DType: l.d, Outs: l.outs, N: len(l.x)}
	all := append(append([]operand(nil), l.x...), l.list...)
	var free, at []tensor.Ptr
	out := make([]operand, len(all))
	for i, o := range all {
		if dev.Host() { // CPU kernels work on the results
			out[i] = o.copied()
			at = append(at, unsafe.Pointer(unsafe.SliceData(out[i].bytes)))
			continue
		}
		p, err := dev.Alloc(len(o.bytes) + 64 + o.offset*o.d.Size())
		require.NoError(t, err)
		free = append(free, p)
		p = unsafe.Add(p, o.offset*o.d.Size())
		at = append(at, p)
		dev.Copy(p, unsafe.Pointer(unsafe.SliceData(o.bytes)), len(o.bytes), q)
	}
	for i, o := range l.x {
		if o.bytes != nil { // otherwise it is absent
			a.X[i], a.Len[i], a.DT[i] = at[i], o.n(), o.d
		}
	}
	for i, o := range l.list {
		a.List = append(a.List, at[len(l.x)+i])
		if o.bytes == nil {
			a.List[i] = nil
		}
		if i%l.group == 0 {
			a.ListLen = append(a.ListLen, o.n())
		}
	}
	if l.set != nil {
		l.set(a)
	}
	k := dev.Kernels()[l.op][l.d]
	require.NotNil(t, k, "%v has no kernel for %v of %v", dev, l.op, l.d)
	k(q, a)
	if dev.Host() {
		return out
	}
	for i, o := range all {
		out[i] = blank(o.d, o.n())
		dev.Copy(unsafe.Pointer(unsafe.SliceData(out[i].bytes)), at[i], len(o.bytes), q)
	}
	require.NoError(t, q.Sync())
	for _, p := range free {
		dev.Free(p)
	}
	return out
}

// exactly is on, but the CPU computes 16-bit floats in float32 and rounds only results: it is what others are compared with.
func (l launch) exactly(t testing.TB, dev tensor.Device) []operand {
	t.Helper()
	if !dev.Host() || !l.d.IsHalf() {
		return l.on(t, dev)
	}
	half := l.d
	l.d = tensor.Float32
	x := l.x
	l.x = make([]operand, len(x))
	for i, o := range x {
		if l.x[i] = o; o.d == half && o.bytes != nil {
			l.x[i] = values(tensor.Float32, o.n(), o.at)
		}
	}
	out := l.on(t, dev)
	for i, o := range out {
		if x[i].d == half {
			out[i] = values(half, o.n(), o.at)
		}
	}
	return out
}

// tolerance is the largest difference between two devices, relative to the larger of the value and floor. Zero means equal bits.
type tolerance struct {
	f32, f64, half float64
	floor          float64
}

// exact means equal bits, except for the payload of NaN.
var exact = tolerance{}

// near asks for 1e-5, 1e-12 and one unit in the last place of 16-bit floats.
var near = tolerance{f32: 1e-5, f64: 1e-12, half: 0x1p-7, floor: 0.1}

func (o tolerance) of(d tensor.DType) float64 {
	switch d {
	case tensor.Float32:
		return o.f32
	case tensor.Float64:
		return o.f64
	case tensor.BFloat16:
		return o.half
	case tensor.Float16:
		return o.half / 8
	}
	return 0
}

// agree runs the launch on the CPU and on dev, and compares all memory that it may write.
func (l launch) agree(t testing.TB, dev tensor.Device, tol tolerance) {
	t.Helper()
	host := cpu.New(1)
	defer host.Close()
	want, got := l.on(t, host), l.on(t, dev)
	for i := range want {
		if bad := differs(want[i], got[i], tol); bad >= 0 {
			t.Fatalf("%v %v: operand %d (%v) element %d of %d is %v, want %v", l.op, l.d, i, want[i].d, bad, want[i].n(),
				got[i].at(bad), want[i].at(bad))
		}
	}
}

// differs returns the first element whose difference is too large, or -1.
func differs(want, got operand, tol tolerance) int {
	if bytes.Equal(want.bytes, got.bytes) {
		return -1
	}
	eps := tol.of(want.d)
	for i := range want.n() {
		w, g := want.at(i), got.at(i)
		same := math.Float64bits(w) == math.Float64bits(g) || w != w && g != g
		if !same && !(eps > 0 && (w == g || math.Abs(w-g) <= eps*max(math.Abs(w), tol.floor))) {
			return i
		}
	}
	return -1
}

var floatTypes = []tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16, tensor.Float16}

var numberTypes = append([]tensor.DType{tensor.Int32, tensor.Int64, tensor.Uint8}, floatTypes...)

// fewTypes are those of floatTypes with kernels of their own: float32, of which float64 has the text, and one of the two 16-bit types. The
// long runs have all. TestConformance has all types of each operation.
func fewTypes(t *testing.T) []tensor.DType {
	if long(t) {
		return floatTypes
	}
	return []tensor.DType{tensor.Float32, tensor.BFloat16}
}

// turn reports whether the type's turn is at case i, of so many; in the long runs it always is.
func turn(t *testing.T, d tensor.DType, i, of int) bool { return long(t) || (i+int(d))%of == 0 }

// each runs a test for each type.
func each(t *testing.T, types []tensor.DType, fn func(t *testing.T, d tensor.DType)) {
	for _, d := range types {
		t.Run(fmt.Sprint(d), func(t *testing.T) { fn(t, d) })
	}
}

func rng(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 7)) }

// realCompiler is the NVRTC in the environment, before the emulator sets its own.
var realCompiler = os.Getenv("RINGO_NVRTC_LIB")

// hold stops a queue's stream, release lets it go on.
func hold(q *cuda.Queue)    { emu.Hold(q.Stream()) }
func release(q *cuda.Queue) { emu.Release(q.Stream()) }

// allocatesNothing repeats the launch in a on tensors.
func allocatesNothing(t *testing.T, dev *cuda.Device, a *tensor.Args, xs []tensor.Tensor) {
	t.Helper()
	for i, x := range xs {
		a.X[i], a.Len[i] = x.Ptr(), x.Len()
	}
	k := dev.Kernels()[a.Op][a.DType]
	k(dev.Queue(0), a)
	n := testing.AllocsPerRun(10, func() { k(dev.Queue(0), a) })
	require.True(t, n == 0 || reliability.Racing, "%v: %v allocations", a.Op, n)
	require.NoError(t, dev.Queue(0).Sync())
}
