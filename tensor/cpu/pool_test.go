package cpu

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/wait"
	"github.com/ringo-ml/ringo/tensor"
)

// Kernels of registered operations use the device's threads, too.
func TestParallel(t *testing.T) {
	count, cost := func(a *tensor.Args) int { return a.Len[0] }, func(*tensor.Args) int { return 1 }
	var parts atomic.Int32
	op := tensor.Register(tensor.OpSpec{Name: "test_parallel", Const: true})
	Register(op, kernels{tensor.Float32: Parallel(count, cost, func(a *tensor.Args, lo, hi int) {
		parts.Add(1)
		for i := lo; i < hi; i++ {
			tensor.Operand[float32](a, 0)[i] += float32(i)
		}
	})})
	dev := New(3)
	defer dev.Close()
	e, x := tensor.NewExec(dev), tensor.New(dev, tensor.Float32, 5*grainElems)
	e.Args(op, tensor.Float32).Out(x)
	e.Launch()
	assert.GreaterOrEqual(t, parts.Load(), int32(3)) // more in debug mode, which computes twice
	for i, v := range tensor.Data[float32](x) {
		require.EqualValues(t, i, v)
	}
}

// The pool cuts a range into aligned parts that cover it once and are at least as large as the grain.
func TestPool(t *testing.T) {
	for _, threads := range []int{1, 2, 3, 5} {
		p := newPool(threads, threads)
		for _, n := range []int{0, 1, 15, 16, 17, 100, 1000} {
			for _, align := range []int{1, 16} {
				hits, a := make([]int32, n), &tensor.Args{}
				p.run(nil, a, n, 1, align, func(_ *Queue, got *tensor.Args, lo, hi, thread int) {
					if got != a || lo%align != 0 || thread >= threads {
						panic("arguments")
					}
					for i := lo; i < hi; i++ {
						hits[i]++
					}
				})
				for i := range hits {
					require.EqualValues(t, 1, hits[i])
				}
			}
		}
		calls := 0
		p.run(nil, nil, 100, 60, 1, func(_ *Queue, _ *tensor.Args, lo, hi, _ int) { calls += hi - lo })
		assert.Equal(t, 100, calls, "two parts would be too small")
		p.close()
		p.close()
		p.run(nil, nil, 10, 1, 1, func(_ *Queue, _ *tensor.Args, lo, hi, _ int) { calls += hi - lo })
		assert.Equal(t, 110, calls, "a closed pool runs on the caller")
	}
}

// A panic in a kernel on any thread reaches the caller, after all parts have ended.
func TestPoolPanics(t *testing.T) {
	p := newPool(3, 3)
	defer p.close()
	var ended [3]bool
	run := func(bad int, v any) {
		ended = [3]bool{}
		p.run(nil, nil, 3, 1, 1, func(_ *Queue, _ *tensor.Args, lo, _, _ int) {
			if ended[lo] = true; lo == bad {
				panic(v)
			}
		})
	}
	cause := errors.New("cause")
	for bad := range 3 {
		assert.ErrorIs(t, tensor.Try(func() { run(bad, &tensor.Failure{Op: "x", Err: cause}) }), cause)
		func() {
			defer func() { assert.Contains(t, fmt.Sprint(recover()), "index out of range") }()
			run(bad, "index out of range")
		}()
		assert.Equal(t, [3]bool{true, true, true}, ended)
	}
	run(-1, nil)
}

// Threads are woken in every way of waiting.
func TestPoolWaits(t *testing.T) {
	for _, policy := range []wait.Policy{{}, {Yields: 3}, {Spin: time.Microsecond}, {Spin: 100 * time.Microsecond}} {
		p := newPool(4, 4)
		p.policy = policy
		for range 100 {
			var sum [4]int
			p.run(nil, nil, 4, 1, 1, func(_ *Queue, _ *tensor.Args, lo, _, _ int) { sum[lo] = lo })
			require.Equal(t, [4]int{0, 1, 2, 3}, sum)
		}
		p.close()
	}
	dev := New(2)
	defer dev.Close()
	dev.SetRanks(1000)
	assert.Equal(t, wait.Policy{Yields: wait.MaxYields}, dev.pool.policy)
}

// The caller computes the parts of threads that have not begun; here they never begin.
func TestPoolTakesOver(t *testing.T) {
	p := newPool(3, 3)
	p.started.Do(func() {
		for range p.n - 1 {
			p.workers = append(p.workers, &worker{bell: wait.NewBell()})
		}
	})
	for range 3 {
		var hits [3]int
		p.run(nil, nil, 3, 1, 1, func(_ *Queue, _ *tensor.Args, lo, hi, thread int) {
			for i := lo; i < hi; i++ {
				hits[i] += 1 + thread
			}
		})
		require.Equal(t, [3]int{1, 1, 1}, hits)
	}
}

// BenchmarkPool measures the cost of running an empty kernel on all threads, with some work between two runs.
func BenchmarkPool(b *testing.B) {
	dev := New(2)
	defer dev.Close()
	for name, runnable := range map[string]int{"spin": 1, "yield": 1000} {
		b.Run(name, func(b *testing.B) {
			p := newPool(2, runnable)
			defer p.close()
			x := make([]float32, 1<<12)
			for b.Loop() {
				for i := range x { // about 2 µs
					x[i] += 1
				}
				p.run(nil, nil, 2, 1, 1, func(*Queue, *tensor.Args, int, int, int) {})
			}
		})
	}
}
