package emu_test

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
)

const addSource = `
extern "C" __global__ void add(const float* x, const float* y, float* z, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) z[i] = x[i] + y[i];
}`

func bytesOf[T any](x []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), len(x)*int(unsafe.Sizeof(x[0])))
}

func TestVectorAdd(t *testing.T) {
	t.Setenv("RINGO_CUDA_CACHE", t.TempDir())
	dev, err := emu.Start(t, emu.Config{}).Open(0)
	require.NoError(t, err)
	require.NoError(t, dev.Lock())
	defer dev.Unlock()
	s, err := dev.NewStream("compute", 0)
	require.NoError(t, err)
	defer s.Close()
	m, err := dev.Module(cuda.Source{Name: "add.cu", Text: addSource})
	require.NoError(t, err)
	add, err := m.Func("add")
	require.NoError(t, err)

	const n = 1000
	x, y, z := make([]float32, n), make([]float32, n), make([]float32, n)
	for i := range x {
		x[i], y[i] = float32(i), float32(2*i)
	}
	pool := dev.NewPool("test")
	var ptrs [3]cuda.Ptr
	for i := range ptrs {
		ptrs[i], err = pool.Alloc(s, n*4)
		require.NoError(t, err)
	}
	require.NoError(t, s.Upload(ptrs[0], bytesOf(x)))
	require.NoError(t, s.Upload(ptrs[1], bytesOf(y)))
	args := cuda.NewArgs().Ptr(ptrs[0]).Ptr(ptrs[1]).Ptr(ptrs[2]).I32(n)
	require.NoError(t, s.Launch(add, cuda.Dim{X: 4}, cuda.Dim{X: 256}, 0, args))
	require.NoError(t, s.Download(bytesOf(z), ptrs[2]))
	require.NoError(t, s.Sync())
	for i := range z {
		require.Equal(t, float32(3*i), z[i])
	}
	for _, p := range ptrs {
		require.NoError(t, pool.Free(p))
	}
	require.NoError(t, pool.Close())
}
