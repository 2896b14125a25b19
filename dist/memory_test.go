package dist

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// OpenGroups is how many groups a rank has that are not closed.
func OpenGroups(r *Rank) int {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	return len(r.c.groups())
}

// little is shared memory with room for one slab.
type little struct {
	bytes []byte
	freed bool
}

func (l *little) Alloc(n int) (p, owner tensor.Ptr, err error) {
	if l.bytes != nil {
		return nil, nil, errors.New("no room")
	}
	l.bytes = make([]byte, n)
	return unsafe.Pointer(&l.bytes[0]), unsafe.Pointer(l), nil
}

func (l *little) Free(p tensor.Ptr) error {
	l.freed = p == unsafe.Pointer(&l.bytes[0])
	return nil
}

// freeing is a CPU that counts what is freed.
type freeing struct {
	*cpu.Device
	got []tensor.Ptr
}

func (d *freeing) Free(p tensor.Ptr) {
	d.got = append(d.got, p)
	d.Device.Free(p)
}

// When shared memory is full, a tape uses the device's memory. It frees each buffer where it came from.
func TestStepMemoryWithoutRoom(t *testing.T) {
	dev := &freeing{Device: cpu.New(1)}
	defer dev.Device.Close()
	l := &little{}
	tape := tensor.NewTape(dev, tensor.MemoryFrom(&stepMemory{l, dev, map[tensor.Ptr]tensor.Ptr{}}))
	first, second := tape.New(tensor.Uint8, 2<<20), tape.New(tensor.Uint8, 2<<20)
	require.Equal(t, unsafe.Pointer(&l.bytes[0]), first.Ptr())
	want := []tensor.Ptr{second.Ptr()}
	tape.Close()
	assert.True(t, l.freed)
	assert.Equal(t, want, dev.got)
}

// Step memory that is sent is lent again when it has been read, and not before.
func TestStepMemoryStaysWhileItIsSent(t *testing.T) {
	const count = 10_000 // more than is posted with the operation
	synctest.Test(t, func(t *testing.T) {
		require.NoError(t, Run(context.Background(), Config{Ranks: 2, Threads: 1}, func(_ context.Context, r *Rank) error {
			if x := make([]float64, count); r.World.Rank() == 1 {
				time.Sleep(time.Second) // virtual: it ends when rank 0 cannot go on
				err := r.World.Recv(tensor.FromSlice(x, count), 0, 0).Wait()
				assert.Equal(t, 1.0, slices.Max(x))
				return err
			}
			tape := tensor.NewTape(r.Device, tensor.NoGrad())
			defer tape.Close()
			ones := ops.Arange(tape, tensor.Float64, 0, 1, 1.0/count).Affine(0, 1)
			w := r.World.Send(ones, 1, 0)
			tape.Reset()
			ops.Arange(tape, tensor.Float64, 0, 1, 1.0/count).Affine(0, 2)
			return w.Wait()
		}))
	})
}
