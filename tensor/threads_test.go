package tensor

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/wait"
)

// Random programs on tensors that are large enough to be divided over threads.
func TestThreadsPrograms(t *testing.T) {
	for seed := range uint64(4) {
		var want [][]float64
		for _, threads := range []int{1, 2, 3, 5} {
			dev := NewCPU(threads)
			for _, d := range []DType{Float32, BFloat16} {
				got := randomProgram(dev, d, seed)
				if threads == 1 {
					want = append(want, got)
					continue
				}
				require.Equal(t, want[d/BFloat16], got, "seed %d, %v, %d threads", seed, d, threads)
			}
			dev.Close()
		}
	}
}

// randomProgram applies random operations to matrices [m, n] and returns the loss and the gradients.
func randomProgram(dev Device, d DType, seed uint64) []float64 {
	const m, n = 130, 193
	ps := &params{dev: dev, dtype: d}
	x, w, v := ps.add("x", UniformInit(-1, 1), m, n), ps.add("w", UniformInit(-0.1, 0.1), n, n), ps.add("v", UniformInit(0, 1), n)
	r := rand.New(rand.NewPCG(seed, 1))
	t := NewTape(dev, Seed(seed))
	have := []Tensor{t.Use(x), t.Input(random(dev, d, seed, m, n))}
	pick := func() Tensor { return have[r.IntN(len(have))] }
	programs := []func() Tensor{
		func() Tensor { return pick().Add(pick()) },
		func() Tensor { return pick().Mul(t.Use(v)) },
		func() Tensor { return Linear(pick(), t.Use(w), t.Use(v)) },
		func() Tensor { return LinearAct(pick(), t.Use(w), t.Use(v), Activation(1+r.IntN(4))) },
		func() Tensor { return MatMul(t.Use(w), pick(), true, true).Transpose(0, 1) },
		func() Tensor { return pick().GELU() },
		func() Tensor { return pick().Softmax().Scale(10) },
		func() Tensor { return LayerNorm(pick(), t.Use(v), Tensor{}, 1e-5) },
		func() Tensor { return pick().Dropout(0.2, r.Uint64()) },
		func() Tensor { return pick().Sub(pick().Mean(0)) },
		func() Tensor { return pick().Mul(pick().Sum(1).Scale(1./n).Reshape(m, 1)) },
		func() Tensor { return Concat(1, pick().Slice(1, 90, n), pick().Slice(1, 0, 90)) },
		func() Tensor { return Embedding(pick(), randomTokens(dev, m, m)) },
		func() Tensor { return Where(pick().Gt(pick()), pick(), pick().Tanh()) },
		func() Tensor { v, _ := pick().Max(0); return pick().Sub(v) },
	}
	for range 12 {
		have = append(have, programs[r.IntN(len(programs))]().Tanh())
	}
	loss := CrossEntropy(have[len(have)-1].Add(have[len(have)-2]), randomTokens(dev, n, m), CrossEntropyOptions{})
	t.Backward(loss)
	out := Floats(loss)
	for _, g := range ps.grads() {
		out = append(out, g...)
	}
	t.Close()
	return out
}

// Several goroutines may use a model at the same time for inference, each with a device and a NoGrad tape of its own.
func TestConcurrentInference(t *testing.T) {
	ps := &params{dev: hostDevice, dtype: Float32}
	m, tokens := newGPT(ps, 11, 6, 8, 2, 2), randomTokens(hostDevice, 11, 3, 7)
	infer := func() []float64 {
		dev := NewCPU(1)
		defer dev.Close()
		tape := NewTape(dev, NoGrad())
		ids, _ := gptBatch(tape, tokens)
		return Floats(m.forward(tape, ids))
	}
	want := infer()
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() { assert.Equal(t, want, infer()) })
	}
	group.Wait()
}

// Kernels of registered operations use the device's threads, too.
func TestParallel(t *testing.T) {
	count, cost := func(a *Args) int { return a.Len[0] }, func(*Args) int { return 1 }
	var parts atomic.Int32
	op := Register(OpSpec{Name: "test_parallel", Const: true, CPU: [NumDTypes]Kernel{Float32: Parallel(count, cost, func(a *Args, lo, hi int) {
		parts.Add(1)
		for i := lo; i < hi; i++ {
			Operand[float32](a, 0)[i] += float32(i)
		}
	})}})
	dev := NewCPU(3)
	defer dev.Close()
	e, x := NewExec(dev), New(dev, Float32, 5*grainElems)
	e.Args(op, Float32).Out(x)
	e.Launch()
	assert.GreaterOrEqual(t, parts.Load(), int32(3)) // more in debug mode, which computes twice
	for i, v := range Data[float32](x) {
		require.EqualValues(t, i, v)
	}
}

// The pool cuts a range into aligned parts that cover it once and are at least as large as the grain.
func TestPool(t *testing.T) {
	for _, threads := range []int{1, 2, 3, 5} {
		p := newPool(threads, threads)
		for _, n := range []int{0, 1, 15, 16, 17, 100, 1000} {
			for _, align := range []int{1, 16} {
				hits, a := make([]int32, n), &Args{}
				p.run(nil, a, n, 1, align, func(_ *CPUQueue, got *Args, lo, hi, thread int) {
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
		p.run(nil, nil, 100, 60, 1, func(_ *CPUQueue, _ *Args, lo, hi, _ int) { calls += hi - lo })
		assert.Equal(t, 100, calls, "two parts would be too small")
		p.close()
		p.close()
		p.run(nil, nil, 10, 1, 1, func(_ *CPUQueue, _ *Args, lo, hi, _ int) { calls += hi - lo })
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
		p.run(nil, nil, 3, 1, 1, func(_ *CPUQueue, _ *Args, lo, _, _ int) {
			if ended[lo] = true; lo == bad {
				panic(v)
			}
		})
	}
	cause := errors.New("cause")
	for bad := range 3 {
		assert.ErrorIs(t, Try(func() { run(bad, &Failure{Op: "x", Err: cause}) }), cause)
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
			p.run(nil, nil, 4, 1, 1, func(_ *CPUQueue, _ *Args, lo, _, _ int) { sum[lo] = lo })
			require.Equal(t, [4]int{0, 1, 2, 3}, sum)
		}
		p.close()
	}
	dev := NewCPU(2)
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
		p.run(nil, nil, 3, 1, 1, func(_ *CPUQueue, _ *Args, lo, hi, thread int) {
			for i := lo; i < hi; i++ {
				hits[i] += 1 + thread
			}
		})
		require.Equal(t, [3]int{1, 1, 1}, hits)
	}
}

// BenchmarkPool measures the cost of running an empty kernel on all threads, with some work between two runs.
func BenchmarkPool(b *testing.B) {
	dev := NewCPU(2)
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
				p.run(nil, nil, 2, 1, 1, func(*CPUQueue, *Args, int, int, int) {})
			}
		})
	}
}
