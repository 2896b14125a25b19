package cuda_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// A kernel gets the map that the driver made of a tensor. The emulator's function checks what the driver's is documented to check, and
// writes its arguments down.
func TestTensorMap(t *testing.T) {
	emu.Only(t, "a driver's map cannot be read")
	r := newRig(t, emu.Config{})
	require.True(t, r.dev.HasTensorMaps())
	read := r.kernel(`struct map { unsigned long long words[16]; };
extern "C" __global__ void read(unsigned long long* y, map a, map b) { y[threadIdx.x] = threadIdx.x < 16 ? a.words[threadIdx.x] : b.words[threadIdx.x - 16]; }`, "read")
	x, y, m, args := r.alloc(3*40*24*2), r.alloc(8*32), new(cuda.TensorMap), cuda.NewArgs()
	require.NoError(t, m.Set(r.dev, true, x, [3]int{24, 40, 3}, [2]int{64, 128}))
	args.Ptr(y).TensorMap(m)
	require.NoError(t, m.SetHeads(r.dev, false, x+16, [4]int{48, 5, 2, 3}, 104, 96))
	require.NoError(t, r.s.Launch(read, dim(1), dim(32), 0, args.TensorMap(m)))
	const bfloat16, float16 = 9, 6
	require.Equal(t, []uint64{
		uint64(x), bfloat16, 3, 24, 40, 3, 0, 2 * 24, 2 * 24 * 40, 0, 64, 128, 1, 0, 3, 3,
		uint64(x) + 16, float16, 4, 48, 5, 2, 3, 2 * 104, 2 * 48, 2 * 104 * 5, 64, 96, 1, 1, 3, 2,
	}, get[uint64](r, r.s, y, 32))
	for what, err := range map[string]error{
		"address": m.Set(r.dev, true, x+2, [3]int{24, 40, 3}, [2]int{64, 128}),
		"rows":    m.Set(r.dev, true, x, [3]int{20, 40, 3}, [2]int{64, 128}),
		"empty":   m.Set(r.dev, true, x, [3]int{24, 0, 3}, [2]int{64, 128}),
		"heads":   m.SetHeads(r.dev, true, x, [4]int{64, 40, 0, 3}, 64, 128),
		"between": m.SetHeads(r.dev, true, x, [4]int{64, 40, 2, 3}, 132, 128),
		"box":     m.Set(r.dev, true, x, [3]int{24, 40, 3}, [2]int{72, 128}),
	} {
		require.ErrorContains(t, err, "cuTensorMapEncodeTiled on device 0: CUDA_ERROR_INVALID_VALUE", what)
	}
	if !reliability.Racing {
		require.Zero(t, testing.AllocsPerRun(10, func() { runtime.KeepAlive(m.Set(r.dev, true, x, [3]int{24, 40, 3}, [2]int{64, 64})) }))
	}
}

// Code for one architecture is compiled for it, and not taken for the same text for all.
func TestSpecificModule(t *testing.T) {
	emu.Only(t, "a GPU may have another architecture")
	r := newRig(t, emu.Config{})
	src := cuda.Source{Name: "one.cu", Text: `
#ifndef __CUDA_ARCH_FEAT_SM90_ALL
#define __CUDA_ARCH_FEAT_SM90_ALL 0
#endif
extern "C" __global__ void one(float* y) { y[0] = __CUDA_ARCH_FEAT_SM90_ALL == 0 ? 1.f : 2.f; }`}
	y := r.alloc(4)
	for _, src.Specific = range []bool{false, true} {
		m, err := r.dev.Module(src)
		require.NoError(t, err)
		f, err := m.Func("one")
		require.NoError(t, err)
		require.NoError(t, r.s.Launch(f, dim(1), dim(1), 0, cuda.NewArgs().Ptr(y)))
		require.Equal(t, []float32{map[bool]float32{false: 1, true: 2}[src.Specific]}, get[float32](r, r.s, y, 1))
	}
}
