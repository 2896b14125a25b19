package data

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"unsafe"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The feed runs two batches ahead, no further, and leaves the batch in hand alone.
func TestPrefetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		l := NewLoader(failing{numbers(23), func([]int) error { calls.Add(1); return nil }}, Config{Batch: 2})
		for i, b := range l.Epoch(t.Context(), 0) {
			before := samplesOf(t, b)
			synctest.Wait() // the feed is as far as it can get
			assert.Equal(t, int32(min(i+3, 12)), calls.Load())
			assert.Equal(t, before, samplesOf(t, b))
		}
		require.NoError(t, l.Err())
	})
}

// However a loop ends, its goroutine is over before the code after it runs; synctest fails if one stays.
func TestFeedIsJoined(t *testing.T) {
	ends := map[string]func(i int, cancel func()) bool{ // each tells whether to break
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

// fence is an operation that is over once it was waited for.
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
			tensor.Borrow(b.X, f, seq+1)
			tensor.Borrow(b.Y, f, seq+2)
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

// remote is a device whose memory is not the host's.
type remote struct {
	tensor.Device
	copies, bytes int
	pending       bool
	err           error
}

func (d *remote) String() string         { return "remote" }
func (d *remote) Host() bool             { return false }
func (d *remote) Memory() *tensor.Memory { return new(tensor.Memory) }
func (d *remote) Alloc(n int) (tensor.Ptr, error) {
	return unsafe.Pointer(unsafe.SliceData(make([]uint64, n/8+1))), nil
}
func (d *remote) Free(tensor.Ptr)        {}
func (d *remote) Queue(int) tensor.Queue { return d }
func (d *remote) Sync() error            { d.pending = false; return d.err }
func (d *remote) Copy(dst, src tensor.Ptr, n int, _ tensor.Queue) {
	copy(unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src), n))
	d.copies, d.bytes, d.pending = d.copies+1, d.bytes+n, true
}

func TestDevice(t *testing.T) {
	dev := &remote{}
	l := NewLoader(numbers(20), Config{Batch: 6, Shuffle: true, Device: dev, Sharder: rankOf{1, 3}})
	dev.copies, dev.bytes = 0, 0 // but for those that made the tensors
	want, _ := epochOf(t, NewLoader(numbers(20), Config{Batch: 6, Shuffle: true, Sharder: rankOf{1, 3}}), 1)
	for i, b := range l.Epoch(t.Context(), 1) {
		assert.Same(t, dev, b.X.Device())
		assert.False(t, dev.pending, "the copy is over before the host memory is filled again")
		var got []int
		for _, v := range unsafe.Slice((*int32)(b.Y.Ptr()), b.Rows) {
			got = append(got, int(v))
		}
		assert.Equal(t, want[i], got)
	}
	require.NoError(t, l.Err())
	assert.Equal(t, 8, dev.copies)
	assert.Equal(t, 7*(2*8+4), dev.bytes) // 2+2+2+1 rows

	dev.err = errors.New("device lost")
	for range l.Epoch(t.Context(), 2) {
		assert.Fail(t, "yielded")
	}
	assert.ErrorIs(t, l.Err(), dev.err)
	assert.ErrorContains(t, l.Err(), "copying a batch to remote")
}

// A rank without rows in a batch neither asks the dataset nor copies.
func TestNoRows(t *testing.T) {
	dev, calls := &remote{}, 0
	ds := failing{numbers(5), func(idx []int) error { calls++; return nil }}
	l := NewLoader(ds, Config{Batch: 4, Device: dev, Sharder: rankOf{2, 3}})
	dev.copies = 0
	var rows []int
	for _, b := range l.Epoch(t.Context(), 0) {
		rows = append(rows, b.Rows)
	}
	require.NoError(t, l.Err())
	assert.Equal(t, []int{1, 0}, rows)
	assert.Equal(t, 1, calls)
	assert.Equal(t, 2, dev.copies)
}
