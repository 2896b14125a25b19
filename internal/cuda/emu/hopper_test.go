package emu_test

import (
	"fmt"
	"math"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
)

const hopperFaults = `

extern "C" __global__ void fault(float* x, int i) {
  alignas(1024) __shared__ unsigned long long s[256];
  unsigned at = emu_shared_address(s), b = at + 1024, v[4] = {};
  unsigned long long swizzled = 1ull << 62, a = swizzled | at >> 4;
  float d[4];
  bool first = threadIdx.x == 0;
  if (first) emu_mbarrier_init(b, 1, __LINE__);
  if (i != 13) emu_mbarriers_ready();
  __syncthreads();
  switch (i) {
  case 13: if (first) emu_copy_bytes(at, x, 16, b, __LINE__); break;
  case 14: emu_mbarrier_wait(b, 0, __LINE__); break;
  case 15: if (first) emu_mbarrier_arrive(b, 16, __LINE__), emu_mbarrier_arrive(b, 0, __LINE__); break;
  case 16: emu_mbarrier_wait(at, 0, __LINE__); break;
  case 17: if (first) emu_copy_bytes(at, x, 24, b, __LINE__); break;
  case 18: if (first) emu_copy_bytes(at, x + 1, 16, b, __LINE__); break;
  case 19: if (first) emu_copy_bytes(at + 8, x, 16, b, __LINE__); break;
  case 20: if (first) emu_copy_bytes(at, x, 16, b, __LINE__); break;
  case 21: if (first) emu_mbarrier_arrive(b, 16, __LINE__), emu_copy_bytes(at, x, 32, b, __LINE__); emu_mbarrier_wait(b, 0, __LINE__); break;
  case 22: if (first) emu_mbarrier_arrive(b, 16, __LINE__), emu_copy_bytes(at, x + 1024, 16, b, __LINE__); emu_mbarrier_wait(b, 0, __LINE__); break;
  case 23: emu_bar(1, 256, true, __LINE__); break;
  case 24: emu_bar(1, 256, false, __LINE__); break;
  case 25: emu_bar(16, 128, true, __LINE__); break;
  case 26: emu_bar(1, first ? 128 : 256, false, __LINE__); break;
  case 27: emu_wgmma(d, 8, v, 0, a, 0, 0, 0, __LINE__); break;
  case 28: emu_wgmma_fence(); emu_wgmma(d, 8, v, 0, a ^ swizzled, 0, 0, 0, __LINE__); break;
  case 29: emu_wgmma_fence(); emu_wgmma(d, 8, v, 0, swizzled | 0x3000, 0, 0, 0, __LINE__); emu_wgmma_commit(); emu_wgmma_wait(0, __LINE__); break;
  case 30: if (first) emu_store16(at, v, __LINE__), emu_copy_bytes(at, x, 16, b, __LINE__); break;
  case 31:
    for (unsigned k = 0; k < 8; k++) emu_store16(at + 128 * k, v, __LINE__), emu_store16(at + 128 * k + 16, v, __LINE__);
    emu_wgmma_fence(), emu_wgmma(d, 8, v, 0, a, 0, 0, 0, __LINE__), emu_wgmma_commit(), emu_wgmma_wait(0, __LINE__); break;
  case 34: emu_wgmma_fence(); emu_wgmma(d, 8, v, 0, a + 2 * first, 0, 0, 0, __LINE__); emu_wgmma_commit(); emu_wgmma_wait(0, __LINE__); break;
  case 35: emu_shared_address(x); break;
  case 36: if (first) emu_mbarrier_arrive(b, 1 << 20, __LINE__); break;
  case 37: if (first) emu_copy_bytes(at + (1 << 20), x, 16, b, __LINE__); break;
  case 38: emu_registers(24, false, __LINE__); emu_registers(256, true, __LINE__); emu_registers(264, true, __LINE__); break;
  case 39: emu_registers(threadIdx.x < 128 ? 32 : 240, threadIdx.x >= 128, __LINE__); break;
  }
}`

// What a GPU would do wrong in silence, or wait for for ever, is an error with the line.
func TestHopperFaults(t *testing.T) {
	emu.Only(t, "a GPU does not find them")
	r := newRig(t, emu.Config{}, hopperFaults)
	x := put(r, make([]float32, 1024))
	for line, want := range map[int]string{
		13: "line 13: a copy's mbarrier was made without fence.mbarrier_init",
		14: "128 threads are left, and thread 0 waits in line 14 for what never comes, in block (0,0,0)",
		15: "line 15: more threads arrive at mbarrier 0x",
		16: "line 16: there is no mbarrier at 0x",
		17: "line 17: there is no copy of 24 bytes",
		18: "line 18: misaligned address",
		19: "line 19: misaligned address",
		20: "1 copies to shared memory are under way at the end",
		21: "gets more bytes than it expects",
		22: "0 bytes after the end of memory of 4096 bytes",
		23: "thread 0 waits in line 23 for what never comes",
		24: "128 threads have come to barrier 1, and no others do until the end",
		25: "line 25: there is no barrier 16 of 128 threads",
		26: "line 26: threads come to barrier 1 as one of 256 and of 128 threads",
		27: "line 27: wgmma without wgmma.fence",
		28: "line 28: the emulator has no wgmma of 8 columns with descriptors",
		29: "line 29: wgmma reads what is outside of shared memory",
		30: "line 30: a copy to where a thread stored without fence.proxy.async",
		31: "line 33: wgmma reads what is that a thread stored without fence.proxy.async",
		34: "lines 34 and 34: lanes of a warp have different products",
		35: "is not in shared memory",
		36: "line 36: mbarrier 0x",
		38: "line 38: setmaxnreg from 256 to 264 registers",
		39: "15 threads are left, and thread 369 waits in line 39 for what never comes",
		37: "of a copy's end is not in shared memory",
	} {
		threads := 128
		if line == 39 { // 168 registers each, of which two of three warpgroups can have 240 if the other keeps 24
			threads = 384
		}
		r.launch(r.s, "fault", 1, threads, 0, cuda.NewArgs().Ptr(x).I32(line))
		err := r.s.Sync()
		require.ErrorContains(t, err, "kernel fault: ")
		require.ErrorContains(t, err, want)
		emu.Heal()
		require.NoError(t, r.s.Sync())
	}
}

const boxSource = `
struct map { unsigned long long words[16]; };
extern "C" __global__ void __launch_bounds__(128) box(unsigned short* raw, float* d, const map m, int x, int y, int registers, int across) {
  alignas(1024) __shared__ unsigned char s[64 * 128];
  __shared__ unsigned long long bar;
  unsigned at = emu_shared_address(s), b = emu_shared_address(&bar), t = threadIdx.x, a[4], early = 0;
  if (t == 0) {
    emu_mbarrier_init(b, 1, __LINE__);
    emu_mbarriers_ready();
  }
  __syncthreads();
  if (t == 0) {
    emu_mbarrier_arrive(b, sizeof s, __LINE__);
    emu_copy_box(at, &m, x, y, 1, 0, 3, b, __LINE__);
    for (unsigned i = 0; i < sizeof s; i++) early += s[i] != 0xff;
  }
  emu_mbarrier_wait(b, 0, __LINE__);
  for (unsigned i = t; i < sizeof s / 2; i += 128) raw[i] = ((unsigned short*)s)[i];
  if (t == 0) raw[0] += early;
  // a[row][k] = row % 8 + k, as bfloat16.
  for (unsigned r = 0; r < 4; r++) {
    unsigned row = t / 32 * 16 + t % 32 / 4 + r % 2 * 8, k = t % 4 * 2 + r / 2 * 8;
    a[r] = emu_bf16((float)(row % 8 + k)) | (unsigned)emu_bf16((float)(row % 8 + k + 1)) << 16;
  }
  float sum[32];
  for (int i = 0; i < 32; i++) sum[i] = 1000.f;
  unsigned long long start = 1ull << 62 | 64ull << 32 | 512ull << 16 | at >> 4;
  emu_wgmma_fence();
  emu_wgmma(sum, 64, registers ? a : nullptr, start, start, across, true, false, __LINE__);
  emu_wgmma_commit();
  if (sum[0] != 1000.f) sum[0] = 0;
  emu_wgmma_wait(0, __LINE__);
  for (int i = 0; i < 32; i++) d[(t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8) * 64 + i / 4 * 8 + t % 4 * 2 + i % 2] = sum[i];
}`

// A box has the swizzled place that the PTX ISA gives it, with zeros outside of the matrix, and comes when it is waited for, not before.
// wgmma finds in it a matrix or its transpose, and writes when it is waited for.
func TestBoxesAndProducts(t *testing.T) {
	emu.Only(t, "kernels have PTX on a GPU")
	r := newRig(t, emu.Config{}, boxSource)
	const cols, rows = 56, 40
	value := func(row, col int) float32 { return float32((3*row+5*col)%17 - 8) }
	x := make([]uint16, 2*rows*cols)
	for i := range rows * cols {
		x[rows*cols+i] = uint16(math.Float32bits(value(i/cols, i%cols)) >> 16)
	}
	m, from, raw, d := new(cuda.TensorMap), put(r, x), r.alloc(64*128), r.alloc(64*64*4)
	require.NoError(t, m.Set(r.dev, true, from, [3]int{cols, rows, 2}, [2]int{64, 64}))
	for mode := range 8 {
		x0, y0, registers, across := 8*(mode%3-1), 5*(mode%2)-3, mode&1, mode>>1
		at := func(row, col int) float32 {
			if row, col = row+y0, col+x0; row < 0 || row >= rows || col < 0 || col >= cols {
				return 0
			}
			return value(row, col)
		}
		r.launch(r.s, "box", 1, 128, 0, cuda.NewArgs().Ptr(raw).Ptr(d).TensorMap(m).I32(x0).I32(y0).
			I32(registers).I32(across))
		got := get[uint16](r, r.s, raw, 64*64)
		for i := range got {
			row, col := i/64, i%64
			require.Equal(t, uint16(math.Float32bits(at(row, col))>>16), got[row*64+(col/8^row%8)*8+col%8], "row %d, column %d", row, col)
		}
		sums := get[float32](r, r.s, d, 64*64)
		for i := range sums {
			want := float32(1000)
			for k := range 16 {
				a, b := float32(i/64%8+k), at(i%64, k)
				if registers == 0 {
					a = at(i/64, k)
				}
				if registers == 0 && across&1 != 0 {
					a = at(k, i/64)
				}
				if across&2 != 0 {
					b = at(k, i%64)
				}
				want += a * b
			}
			require.Equal(t, want, sums[i], fmt.Sprint("element ", i, " of mode ", mode))
		}
	}
	runtime.KeepAlive(m)
}
