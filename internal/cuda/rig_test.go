package cuda_test

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
)

// rig is an emulated device with a stream and a pool, bound to the test's thread.
type rig struct {
	testing.TB
	dev  *cuda.Device
	s    *cuda.Stream
	pool *cuda.Pool
}

func newRig(t testing.TB, cfg emu.Config) *rig {
	t.Helper()
	dev, err := emu.Start(t, cfg).Open(0)
	require.NoError(t, err)
	require.NoError(t, dev.Lock())
	if emu.Leaks() == "" { // the test's first rig
		t.Cleanup(func() { require.Empty(t, emu.Leaks()) })
	}
	r := &rig{TB: t, dev: dev, pool: dev.NewPool("test")}
	r.s = r.stream()
	t.Cleanup(func() {
		require.NoError(t, r.pool.Close())
		dev.Unlock()
	})
	return r
}

func (r *rig) stream() *cuda.Stream {
	s, err := r.dev.NewStream("stream", 0)
	require.NoError(r, err)
	r.Cleanup(func() { s.Close() })
	return s
}

func (r *rig) event() *cuda.Event {
	e, err := r.dev.NewEvent(false)
	require.NoError(r, err)
	r.Cleanup(func() { e.Close() })
	return e
}

func (r *rig) alloc(n int) cuda.Ptr {
	r.Helper()
	p, err := r.pool.Alloc(r.s, n)
	require.NoError(r, err)
	r.Cleanup(func() { r.pool.Free(p) }) // an error when the test did it
	return p
}

func (r *rig) kernel(source, name string) *cuda.Func {
	r.Helper()
	m, err := r.dev.Module(cuda.Source{Name: "test.cu", Text: source})
	require.NoError(r, err)
	f, err := m.Func(name)
	require.NoError(r, err)
	return f
}

func (r *rig) put(x any) cuda.Ptr {
	r.Helper()
	b := bytesOf(x)
	p := r.alloc(len(b))
	require.NoError(r, r.s.Upload(p, b))
	return p
}

func get[T any](r *rig, s *cuda.Stream, p cuda.Ptr, n int) []T {
	r.Helper()
	x := make([]T, n)
	require.NoError(r, s.Download(sliceBytes(x), p))
	return x
}

func sliceBytes[T any](x []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), len(x)*int(unsafe.Sizeof(x[0])))
}

func bytesOf(x any) []byte {
	switch x := x.(type) {
	case []float32:
		return sliceBytes(x)
	case []uint16:
		return sliceBytes(x)
	case []int32:
		return sliceBytes(x)
	}
	panic("no such type")
}

func dim(n int) cuda.Dim { return cuda.Dim{X: n} }
