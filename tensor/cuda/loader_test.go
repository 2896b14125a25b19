package cuda_test

import (
	"errors"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/data"
	driver "github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cuda"
)

// counting is a dataset whose sample i is the number i, in X and in Y. It sends each requested index to at.
type counting struct {
	n  int
	at func(first int)
}

func (c counting) Len() int { return c.n }
func (c counting) Shapes() (x, y tensor.Shape) {
	return tensor.Shape{DType: tensor.Float32, Dims: []int{100}}, tensor.Shape{DType: tensor.Int64}
}
func (c counting) Batch(idx []int, x, y tensor.Tensor) error {
	c.at(idx[0])
	for i, k := range idx {
		for j := range 100 {
			tensor.Data[float32](x)[100*i+j] = float32(k)
		}
		tensor.Data[int64](y)[i] = int64(k)
	}
	return nil
}

// arrives waits until x holds v, while the device computes.
func arrives(t *testing.T, dev *cuda.Device, x tensor.Tensor, v float32) {
	gpu := dev.GPU()
	require.NoError(t, gpu.Lock())
	defer gpu.Unlock()
	s, err := gpu.NewStream("beside", 0)
	require.NoError(t, err)
	y := make([]float32, x.Len())
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(&y[0])), 4*len(y))
	for until := time.Now().Add(10 * time.Second); y[len(y)-1] != v; {
		require.NoError(t, errors.Join(s.Download(bytes, driver.Ptr(uintptr(x.Ptr()))), s.Sync()))
		require.True(t, time.Now().Before(until), "it does not arrive")
	}
	require.NoError(t, s.Close())
}

// While the device does a step, the next batches are copied to it, and the loop gets as far ahead as there is memory. Nothing overwrites
// memory that a step still reads.
func TestBatchesOverlapSteps(t *testing.T) {
	emu.Only(t, "it holds a stream back")
	emu.Start(t, emu.Config{})
	dev, err := cuda.NewDevice(0)
	require.NoError(t, err)
	defer func() { assert.NoError(t, dev.Close()) }()
	const rows, steps = 4, 9
	seen := tensor.New(dev, tensor.Float32, steps*rows, 100)
	busy, ahead := make(chan struct{}), make(chan struct{})
	l := data.NewLoader(counting{steps * rows, func(first int) {
		switch first / rows {
		case 1:
			<-busy
		case 4:
			close(ahead)
		}
	}}, data.Config{Batch: rows, Device: dev})
	compute := dev.Queue(0).(*cuda.Queue)
	defer func() { emu.Release(compute.Stream()) }()
	for i, b := range l.Epoch(t.Context(), 0) {
		switch i {
		case 0:
			require.NoError(t, compute.Sync())
			emu.Hold(compute.Stream()) // from here on the device is in step 0
			close(busy)
		case 1, 2:
			arrives(t, dev, b.X, float32(i*rows+3))
		}
		dev.Copy(seen.Range(i*rows*100, (i+1)*rows*100).Ptr(), b.X.Ptr(), 4*rows*100, compute)
		if i == 2 {
			<-ahead // batch 3 has been given to the device, for the memory of batch 0
			third := dev.Queue(1).Mark()
			require.Never(t, third.Done, 20*time.Millisecond, time.Millisecond)
			emu.Release(compute.Stream())
		}
	}
	require.NoError(t, l.Err())
	for i, v := range tensor.Floats(seen) {
		require.Equal(t, float64(i/100), v)
	}
}

// The same on streams that run only as far as somebody waits for them, over several epochs and after loops that ended early.
func TestBatchesOnLazyStreams(t *testing.T) {
	emu.Start(t, emu.Config{Lazy: true})
	dev, err := cuda.NewDevice(0)
	require.NoError(t, err)
	defer func() { assert.NoError(t, dev.Close()) }()
	const n, rows = 23, 4
	l := data.NewLoader(counting{n, func(int) {}}, data.Config{Batch: rows, Device: dev})
	for epoch := range 6 {
		seen := tensor.New(dev, tensor.Float32, n, 100)
		got := 0
		for i, b := range l.Epoch(t.Context(), epoch) {
			tensor.Copy(seen.Range(got*100, (got+b.Rows)*100), b.X.Range(0, b.Rows*100))
			if got += b.Rows; i == epoch {
				break
			}
		}
		require.NoError(t, l.Err())
		require.Equal(t, min((epoch+1)*rows, n), got)
		for i, v := range tensor.Floats(seen)[:got*100] {
			require.Equal(t, float64(i/100), v)
		}
	}
}
