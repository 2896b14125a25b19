package peer_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/peer"
	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/tensor"
	ringocuda "github.com/ringo-ml/ringo/tensor/cuda"
)

// Rows may have any address: a multiple of 16 bytes, where kernels load 16 bytes at a time, or not.
func TestReducerOfRows(t *testing.T) {
	emu.Start(t, emu.Config{})
	dev, err := ringocuda.NewDevice(0)
	require.NoError(t, err)
	require.NoError(t, dev.Bind())
	defer dev.Unbind()
	red, err := peer.NewReducer(dev.GPU())
	require.NoError(t, err)
	const n, count = 3, 37
	for _, stride := range []int{37, 40} {
		for _, first := range []int{0, 1} { // first element of the rows, and of the result
			x, want := make([]float32, first+n*stride), make([]float64, count)
			for i := range x {
				x[i] = float32(i % 11)
			}
			for i := range want {
				for r := range n {
					want[i] += float64(x[first+r*stride+i])
				}
			}
			src, dst := tensor.New(dev, tensor.Float32, len(x)), tensor.New(dev, tensor.Float32, first+count)
			tensor.Copy(src, tensor.FromSlice(x, len(x)))
			at := func(x tensor.Tensor) cuda.Ptr { return cuda.Ptr(uintptr(x.Ptr())) + cuda.Ptr(4*first) }
			op := &backend.Op{Kind: backend.AllReduce, DType: tensor.Float32, Red: backend.Sum}
			s := dev.Queue(0).(*ringocuda.Queue).Stream()
			require.NoError(t, red.Queue(s, op, peer.Rows{Src: at(src), Stride: int64(stride), Dst: at(dst)}, n, count))
			assert.Equal(t, want, tensor.Floats(dst.Range(first, first+count)), fmt.Sprintf("stride %d from %d", stride, first))
		}
	}
	require.NoError(t, dev.Close())
}
