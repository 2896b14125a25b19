package cuda_test

import (
	"math"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	gpu "github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/cuda/emu/fragment"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cuda"
)

const mmaSource = `
extern "C" __global__ void product(float* d, const u32* a, const u32* b) {
  int l = threadIdx.x;
  u32 x[4];
  float y[4];
  for (int i = 0; i < 4; i++) x[i] = a[4 * l + i], y[i] = d[4 * l + i];
  mma<T>(y, x, b[2 * l], b[2 * l + 1]);
  for (int i = 0; i < 4; i++) d[4 * l + i] = y[i];
}
extern "C" __global__ void tiles(u32* r, const u16* x, int ld, int trans) {
  extern __shared__ vec16 tile[];
  u16* s = (u16*)tile;
  int l = threadIdx.x;
  for (int i = l; i < 32 * ld; i += 32) s[i] = x[i];
  __syncwarp();
  u32 q[4];
  if (trans) ldmatrix_trans(q, s + l * ld);
  else ldmatrix(q, s + l * ld);
  for (int i = 0; i < 4; i++) r[4 * l + i] = q[i];
}
extern "C" __global__ void copies(u32* early, u32* y, const u32* x) {
  __shared__ vec16 both[64];
  u32(*s)[128] = (u32(*)[128])both;
  int l = threadIdx.x;
  copy16(&s[0][4 * l], x + 4 * l, l < 30);
  copies_commit();
  for (int i = 0; i < 4; i += 2) copy8(&s[1][4 * l + i], x + 4 * l + 2 - i, l != 3);
  copies_commit();
  copies_wait<1>();
  for (int i = 0; i < 4; i++) y[4 * l + i] = s[0][4 * l + i], early[4 * l + i] = s[1][4 * l + i];
  copies_wait<0>();
  for (int i = 0; i < 4; i++) y[128 + 4 * l + i] = s[1][4 * l + i];
}
extern "C" __global__ void packs(u32* y, const float* x) {
  int l = threadIdx.x;
  y[l] = pack<T>(x[2 * l], x[2 * l + 1]);
  y[32 + l] = __float_as_uint(exp2_(x[l]));
}
`

// launchHeader runs a kernel of mmaSource on a warp. Each operand is a parameter of n bytes; it is read back after the launch.
func launchHeader(t *testing.T, dev *cuda.Device, elem, name string, shared int, xs []operand, more func(a *gpu.Args)) {
	t.Helper()
	require.NoError(t, dev.Bind())
	f, err := cuda.Header(dev, "mma.cuh", mmaSource, elem, name)
	require.NoError(t, err)
	launchOn(t, dev, f, fragment.Lanes, shared, xs, more)
}

// launchOn runs f on a block of threads.
func launchOn(t *testing.T, dev *cuda.Device, f *gpu.Func, threads, shared int, xs []operand, more func(a *gpu.Args)) {
	t.Helper()
	q := dev.Queue(0).(*cuda.Queue)
	args := gpu.NewArgs()
	var on []tensor.Tensor
	for _, x := range xs {
		y := tensor.New(dev, tensor.Uint8, len(x.bytes))
		dev.Copy(y.Ptr(), unsafe.Pointer(unsafe.SliceData(x.bytes)), len(x.bytes), q)
		args.Ptr(gpu.Ptr(uintptr(y.Ptr())))
		on = append(on, y)
	}
	if more != nil {
		more(args)
	}
	require.NoError(t, q.Stream().Launch(f, gpu.Dim{X: 1}, gpu.Dim{X: threads}, shared, args))
	for i, x := range xs {
		dev.Copy(unsafe.Pointer(unsafe.SliceData(x.bytes)), on[i].Ptr(), len(x.bytes), q)
	}
	require.NoError(t, q.Sync())
}

// spread puts a matrix into the registers of a warp.
func spread(m fragment.Matrix, d tensor.DType, at func(row, col int) float64) operand {
	return values(d, fragment.Lanes*m.Each(), func(i int) float64 { return at(m.At(i/m.Each(), i%m.Each())) })
}

// TestMMA multiplies integers, whose sums are exact in any order.
func TestMMA(t *testing.T) {
	dev := device(t)
	for d, elem := range map[tensor.DType]string{tensor.BFloat16: "bf16", tensor.Float16: "f16"} {
		r := rng(1)
		var a [16][16]float64
		var b [16][8]float64
		var c [16][8]float64
		for i := range 16 {
			for j := range 16 {
				a[i][j], b[i][j%8], c[i][j%8] = float64(r.IntN(200)-100), float64(r.IntN(200)-100)/128, float64(r.IntN(1000))
			}
		}
		x := []operand{
			spread(fragment.D, tensor.Float32, func(i, j int) float64 { return c[i][j] }),
			spread(fragment.A, d, func(i, j int) float64 { return a[i][j] }),
			spread(fragment.B, d, func(i, j int) float64 { return b[i][j] }),
		}
		launchHeader(t, dev, elem, "product", 0, x, nil)
		want := spread(fragment.D, tensor.Float32, func(i, j int) float64 {
			sum := c[i][j]
			for k := range 16 {
				sum += a[i][k] * b[k][j]
			}
			return sum
		})
		require.Equal(t, want.bytes, x[0].bytes, elem)
	}
}

// TestMMAElementByElement multiplies a matrix with one nonzero element, at each place of each register, by one whose elements are all
// different.
func TestMMAElementByElement(t *testing.T) {
	dev := device(t)
	b := spread(fragment.B, tensor.BFloat16, func(k, col int) float64 { return float64(8*k + col + 1) })
	for i := range fragment.Lanes * fragment.A.Each() {
		a := blank(tensor.BFloat16, fragment.Lanes*fragment.A.Each())
		a.set(i, 1)
		x := []operand{blank(tensor.Float32, fragment.Lanes*fragment.D.Each()), a, b}
		launchHeader(t, dev, "bf16", "product", 0, x, nil)
		at, k := fragment.A.At(i/fragment.A.Each(), i%fragment.A.Each())
		want := spread(fragment.D, tensor.Float32, func(row, col int) float64 {
			if row != at {
				return 0
			}
			return float64(8*k + col + 1)
		})
		require.Equal(t, want.bytes, x[0].bytes, "lane %d, element %d", i/fragment.A.Each(), i%fragment.A.Each())
	}
}

// Small, large and special 16-bit numbers, times one.
func TestMMAOfEveryNumber(t *testing.T) {
	dev := device(t)
	for d, elem := range map[tensor.DType]string{tensor.BFloat16: "bf16", tensor.Float16: "f16"} {
		for _, bits := range []uint16{0, 1, 0x8001, 0x03ff, 0x0400, 0x3c00, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x7f80, 0x7fc0, 0x0080} {
			number := blank(d, 1)
			*(*uint16)(unsafe.Pointer(&number.bytes[0])) = bits
			v := number.at(0)
			x := []operand{
				blank(tensor.Float32, 128),
				spread(fragment.A, d, func(i, j int) float64 { return v * float64(1-min(j, 1)) }),
				spread(fragment.B, d, func(i, j int) float64 { return 1 }),
			}
			if v != v || v-v != 0 { // times zero is not zero
				x[1] = spread(fragment.A, d, func(i, j int) float64 { return v })
			}
			launchHeader(t, dev, elem, "product", 0, x, nil)
			if v != v {
				require.NotEqual(t, x[0].at(5), x[0].at(5), "%s %#x", elem, bits)
			} else {
				require.Equal(t, v, x[0].at(5), "%s %#x", elem, bits)
			}
		}
	}
}

func TestLoadMatrix(t *testing.T) {
	dev := device(t)
	const ld = 24 // 48 bytes
	x := blank(tensor.BFloat16, 32*ld)
	number := func(matrix, row, col int) uint16 { return uint16(matrix<<8 | row<<4 | col) }
	for i := range 32 {
		for j := range 8 { // lane l has the address of row l of memory
			*(*uint16)(unsafe.Pointer(&x.bytes[2*(fragment.RowLane(i/8, i%8)*ld+j)])) = number(i/8, i%8, j)
		}
	}
	for trans := range 2 {
		r := blank(tensor.Int32, 128)
		launchHeader(t, dev, "bf16", "tiles", 32*ld*2, []operand{r, x}, func(a *gpu.Args) { a.I32(ld).I32(trans) })
		for i := range 256 {
			matrix, row, col := fragment.Loaded(i/8, i%8/2, i%2, trans == 1)
			require.Equal(t, number(matrix, row, col), *(*uint16)(unsafe.Pointer(&r.bytes[2*i])), "lane %d matrix %d", i/8, matrix)
		}
	}
}

// Copies arrive when they are waited for, one group after the other.
func TestCopies(t *testing.T) {
	dev := device(t)
	early, y := blank(tensor.Int32, 128), blank(tensor.Int32, 256)
	x := values(tensor.Int32, 128, func(i int) float64 { return float64(i + 1) })
	launchHeader(t, dev, "bf16", "copies", 0, []operand{early, y, x}, nil)
	for i := range 128 {
		first, second := i+1, i^2+1
		if i >= 120 {
			first = 0
		}
		if i/4 == 3 {
			second = 0
		}
		require.Equal(t, float64(first), y.at(i), i)
		require.Equal(t, float64(second), y.at(128+i), i)
		if !emu.OnGPU() {
			require.Equal(t, float64(-1), early.at(i), "a copy was there before it was waited for")
		}
	}
}

func TestPack(t *testing.T) {
	dev := device(t)
	for d, elem := range map[tensor.DType]string{tensor.BFloat16: "bf16", tensor.Float16: "f16"} {
		r := rng(2)
		x, y := values(tensor.Float32, 64, func(int) float64 { return r.NormFloat64() }), blank(tensor.Float32, 64)
		launchHeader(t, dev, elem, "packs", 0, []operand{y, x}, nil)
		want := values(d, 64, x.at)
		require.Equal(t, want.bytes, y.bytes[:128])
		exps := values(tensor.Float32, 32, func(i int) float64 { return math.Exp2(x.at(i)) })
		require.Equal(t, -1, differs(exps, operand{d: tensor.Float32, bytes: y.bytes[128:]}, tolerance{f32: 0x1p-21}))
	}
}
