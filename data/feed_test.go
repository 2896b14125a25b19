package data

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/tensortest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The feed runs two batches ahead, not more, and does not change the current batch.
func TestPrefetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		l := NewLoader(failing{numbers(23), func([]int) error { calls.Add(1); return nil }}, Config{Batch: 2})
		for i, b := range l.Epoch(t.Context(), 0) {
			before := samplesOf(t, b)
			synctest.Wait() // the feed has done all it can
			assert.Equal(t, int32(min(i+3, 12)), calls.Load())
			assert.Equal(t, before, samplesOf(t, b))
		}
		require.NoError(t, l.Err())
	})
}

// However a loop ends, its goroutine ends before the code after the loop runs; synctest fails if one stays.
func TestFeedIsJoined(t *testing.T) {
	ends := map[string]func(i int, cancel func()) bool{ // each returns whether to break
		"whole":  func(int, func()) bool { return false },
		"break":  func(i int, _ func()) bool { return i == 1 },
		"cancel": func(i int, cancel func()) bool { cancel(); return false },
		"panic": func(i int, _ func()) bool {
			panic(&tensor.Failure{Op: "step", Err: errors.New("in the body")})
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var inside, calls atomic.Int32
				l := NewLoader(failing{numbers(100), func([]int) error {
					inside.Add(1)
					defer inside.Add(-1)
					calls.Add(1)
					runtime.Gosched()
					return nil
				}}, Config{Batch: 3})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				_ = tensor.Try(func() {
					for i := range l.Epoch(ctx, 0) {
						if end(i, cancel) {
							break
						}
					}
				})
				assert.Zero(t, inside.Load())
				n := calls.Load()
				synctest.Wait()
				assert.Equal(t, n, calls.Load(), "it works on after the loop")
			})
		})
	}
}

// A loop that ends while the dataset is busy waits for it.
func TestFeedIsJoinedInBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, over := make(chan struct{}), atomic.Bool{}
		l := NewLoader(failing{numbers(10), func(idx []int) error {
			if idx[0] == 1 {
				<-gate
				over.Store(true)
			}
			return nil
		}}, Config{Batch: 1})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			synctest.Wait() // the loop waits for batch 1
			cancel()
			synctest.Wait() // and now for the feed
			assert.False(t, over.Load())
			close(gate)
		}()
		for range l.Epoch(ctx, 0) {
		}
		assert.True(t, over.Load())
		assert.ErrorIs(t, l.Err(), context.Canceled)
	})
}

// Two goroutine ranks share a dataset.
func TestRanksConcurrently(t *testing.T) {
	ds := synthetic(t, 100, 3)
	var wg sync.WaitGroup
	var rows atomic.Int64
	for r := range 3 {
		wg.Go(func() {
			l := NewLoader(ds, Config{Batch: 8, Shuffle: true, Sharder: rankOf{r, 3}})
			for epoch := range 2 {
				for _, b := range l.Epoch(t.Context(), epoch) {
					rows.Add(int64(b.Rows))
					clear(tensor.Data[float32](b.X)[:b.Rows]) // the batch in hand is the loop's: the race detector agrees
				}
			}
			assert.NoError(t, l.Err())
		})
	}
	wg.Wait()
	assert.Equal(t, int64(200), rows.Load())
}

// fence is an operation that is over when it has been waited for.
type fence struct{ waited uint64 }

func (f *fence) FenceDone(seq uint64) bool { return seq <= f.waited }
func (f *fence) FenceWait(seq uint64) error {
	f.waited = max(f.waited, seq)
	return nil
}

func TestBorrowedBatchIsNotReused(t *testing.T) {
	l := NewLoader(numbers(20), Config{Batch: 6})
	f, seq := &fence{}, uint64(0)
	for range 2 {
		for i, b := range l.Epoch(t.Context(), 0) {
			require.Equal(t, seq, f.waited)
			tensor.Raw(b.X).Borrow(f, seq+1)
			tensor.Raw(b.Y).Borrow(f, seq+2)
			seq += 2
			if i == 2 {
				break
			}
		}
		require.Equal(t, seq, f.waited, "also after a break")
	}
}

// A step allocates nothing: an epoch of 1,000 steps allocates no more than one of 10.
func TestStepsDoNotAllocate(t *testing.T) {
	ds := synthetic(t, 2003, 1)
	epoch := func(batch int) uint64 {
		l := NewLoader(ds, Config{Batch: batch, Shuffle: true, Sharder: rankOf{1, 2}})
		steps := 0
		run := func() {
			for _, b := range l.Epoch(t.Context(), 0) {
				steps += b.Rows
			}
		}
		run()
		defer reliability.SteadyRuntime()()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		run()
		runtime.ReadMemStats(&after)
		require.NoError(t, l.Err())
		require.NotZero(t, steps)
		return after.Mallocs - before.Mallocs
	}
	few, many := epoch(200), epoch(2)
	t.Logf("%d allocations in 11 steps, %d in 1002", few, many)
	assert.LessOrEqual(t, many, few+20)
}

// On a device with its own memory, batches are copied on another queue than the steps', to memory that earlier steps no longer use. The
// host memory is not filled again before it is copied: only for that does the feed wait.
func TestDevice(t *testing.T) {
	dev := tensortest.NewRemote(t, 1)
	sharder := rankOf{1, 3}
	l := NewLoader(numbers(2000), Config{Batch: 6, Shuffle: true, Device: dev, Sharder: sharder})
	want, _ := epochOf(t, NewLoader(numbers(2000), Config{Batch: 6, Shuffle: true, Sharder: sharder}), 1)
	seen := tensor.New(dev, tensor.Int32, 2000)
	dev.Counts()
	n, steps := 0, 0
	for i, b := range l.Epoch(t.Context(), 1) {
		require.Equal(t, tensor.Device(dev), b.X.Device())
		tensor.Copy(seen.Range(n, n+b.Rows), b.Y.Range(0, b.Rows))
		n, steps = n+len(want[i]), steps+1
	}
	require.NoError(t, l.Err())
	c := dev.Counts()
	assert.Equal(t, tensortest.Counts{Up: 2 * steps, Within: steps, Waits: steps - slots}, c)
	var got []int
	for _, v := range tensor.Data[int32](tensor.ToHost(seen.Range(0, n))) {
		got = append(got, int(v))
	}
	assert.Equal(t, slices.Concat(want...), got)
}

// lost is a device that stops working.
type lost struct {
	*cpu.Device
	err error
}

func (d *lost) Host() bool             { return false }
func (d *lost) Queue(int) tensor.Queue { return lostQueue{d.Device.Queue(0), d} }
func (d *lost) Kernels() *tensor.Table {
	return &tensor.Table{tensor.OpFill: {tensor.Uint8: func(tensor.Queue, *tensor.Args) {}}}
}
func (d *lost) FenceDone(uint64) bool  { return false }
func (d *lost) FenceWait(uint64) error { return d.err }

type lostQueue struct {
	tensor.Queue
	dev *lost
}

func (q lostQueue) Mark() tensor.Pending { return tensor.Pending{F: q.dev} }

func TestLostDevice(t *testing.T) {
	dev := &lost{cpu.New(1), errors.New("device lost")}
	defer dev.Close()
	l := NewLoader(numbers(20), Config{Batch: 6, Device: dev})
	steps := 0
	for range l.Epoch(t.Context(), 2) {
		steps++
	}
	assert.Zero(t, steps)
	assert.ErrorIs(t, l.Err(), dev.err)
	assert.ErrorContains(t, l.Err(), "copying a batch to cpu")
}

// A rank without rows in a batch does not call the dataset and does not copy.
func TestNoRows(t *testing.T) {
	dev, calls := tensortest.NewRemote(t, 2), 0
	ds := failing{numbers(5), func(idx []int) error { calls++; return nil }}
	l := NewLoader(ds, Config{Batch: 4, Device: dev, Sharder: rankOf{2, 3}})
	dev.Counts()
	var rows []int
	for _, b := range l.Epoch(t.Context(), 0) {
		rows = append(rows, b.Rows)
	}
	require.NoError(t, l.Err())
	assert.Equal(t, []int{1, 0}, rows)
	assert.Equal(t, 1, calls)
	assert.Equal(t, 2, dev.Counts().Up)
}
