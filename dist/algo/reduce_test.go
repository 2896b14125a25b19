package algo_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// naive is the definition: element by element, in rank order, in float32.
func naive(red backend.Red, in [][]float32, factors []float64) []float32 {
	out := make([]float32, len(in[0]))
	for i := range out {
		acc := in[0][i]
		if red == backend.PreMulSum {
			acc = float32(acc * float32(factors[0])) // the conversion rounds here, also on machines that fuse products and sums
		}
		for r := 1; r < len(in); r++ {
			v := in[r][i]
			switch red {
			case backend.Sum, backend.Avg:
				acc += v
			case backend.PreMulSum:
				acc += float32(v * float32(factors[r]))
			case backend.Prod:
				acc *= v
			case backend.Min:
				acc = min(acc, v)
			case backend.Max:
				acc = max(acc, v)
			}
		}
		if red == backend.Avg {
			acc /= float32(len(in))
		}
		out[i] = acc
	}
	return out
}

// The reducer has the bits of the definition, whether the result goes to new memory or onto any of the inputs.
func TestReducerMatchesNaive(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var r algo.Reducer
	for _, red := range []backend.Red{backend.Sum, backend.Avg, backend.Prod, backend.Min, backend.Max, backend.PreMulSum} {
		for _, n := range []int{1, 2, 3, 4, 7} {
			for onto := -1; onto < n; onto++ {
				count := 1 + rng.IntN(10_000)
				in, factors, srcs := make([][]float32, n), make([]float64, n), make([][]byte, n)
				r.Begin(&backend.Op{Red: red, DType: tensor.Float32}, n)
				for k := range in {
					in[k] = make([]float32, count)
					for i := range in[k] {
						in[k][i] = rng.Float32() - 0.5
					}
					factors[k] = rng.Float64()
					r.SetFactor(k, factors[k])
					srcs[k] = tensor.FromSlice(in[k], count).Bytes()
				}
				want := naive(red, in, factors)
				out := make([]float32, count)
				dst := tensor.FromSlice(out, count).Bytes()
				if onto >= 0 {
					out, dst = in[onto], srcs[onto]
				}
				r.Reduce(dst, srcs)
				require.Equal(t, want, out, fmt.Sprint(red, n, onto))
			}
		}
	}
}

// With two destinations, both have the result of Reduce, wherever they are.
func TestReduceTwice(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var r algo.Reducer
	for _, red := range []backend.Red{backend.Sum, backend.Avg, backend.Max} {
		for _, dt := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16, tensor.Int32} {
			if algo.CheckReduction(red, dt) != nil {
				continue
			}
			for _, n := range []int{1, 2, 3, 4} {
				if n == 4 && !reliability.Long(t) {
					continue
				}
				for pair := range (n + 1) * (n + 1) {
					testReduceTwice(t, rng, &r, &backend.Op{Red: red, DType: dt}, n, pair/(n+1)-1, pair%(n+1)-1)
				}
			}
		}
	}
}

func TestLongReduceTwice(t *testing.T) { reliability.AsLong(t, TestReduceTwice) }

// testReduceTwice reduces onto inputs first and second; -1 means new memory.
func testReduceTwice(t *testing.T, rng *rand.Rand, r *algo.Reducer, op *backend.Op, n, first, second int) {
	if first == second && first >= 0 {
		return
	}
	count := 1 + rng.IntN(20_000)
	size := count * op.DType.Size()
	srcs := make([][]byte, n)
	for k := range srcs {
		for range count {
			srcs[k] = appendElement(srcs[k], op.DType, rng.Float64()*100-50)
		}
	}
	r.Begin(op, n)
	want, a, b := make([]byte, size), make([]byte, size), make([]byte, size)
	r.Reduce(want, srcs)
	if first >= 0 {
		a = srcs[first]
	}
	if second >= 0 {
		b = srcs[second]
	}
	r.ReduceTwice(a, b, srcs)
	require.Equal(t, want, a, "%v %v of %d onto %d and %d", op.Red, op.DType, n, first, second)
	require.Equal(t, want, b, "%v %v of %d onto %d and %d", op.Red, op.DType, n, first, second)
}

func appendElement(b []byte, dt tensor.DType, v float64) []byte {
	le := binary.LittleEndian
	switch bits := math.Float32bits(float32(v)); dt {
	case tensor.Float64:
		return le.AppendUint64(b, math.Float64bits(v))
	case tensor.BFloat16:
		return le.AppendUint16(b, uint16(bits>>16))
	default: // also valid as an int32
		return le.AppendUint32(b, bits)
	}
}

// An average that is a whole number is exact, also if the number of ranks is not a power of two.
func TestAvgRoundsCorrectly(t *testing.T) {
	for n := 1; n <= 9; n++ {
		srcs := make([][]byte, n)
		for k := range srcs {
			srcs[k] = tensor.FromSlice([]float32{49, 7, 1}, 3).Bytes()
		}
		out := make([]float32, 3)
		var r algo.Reducer
		r.Begin(&backend.Op{Red: backend.Avg, DType: tensor.Float32}, n)
		r.Reduce(tensor.FromSlice(out, 3).Bytes(), srcs)
		assert.Equal(t, []float32{49, 7, 1}, out, "%d ranks", n)
	}
}

func TestReducerDoesNotAllocate(t *testing.T) {
	var r algo.Reducer
	x, y := make([]byte, 100_000), make([]byte, 100_000)
	srcs := [][]byte{x, y}
	for d := tensor.DType(0); d < tensor.NumDTypes; d++ {
		o := backend.Op{Red: backend.Sum, DType: d}
		r.Begin(&o, 2)
		r.Reduce(x, srcs)
		assert.Zero(t, testing.AllocsPerRun(10, func() {
			r.Begin(&o, 2)
			r.Reduce(x, srcs)
		}), d.String())
	}
}

func TestCheckReduction(t *testing.T) {
	assert.ErrorContains(t, algo.CheckReduction(backend.Avg, tensor.Int32), "avg of int32")
	assert.ErrorContains(t, algo.CheckReduction(backend.PreMulSum, tensor.Bool), "premulsum of bool")
	assert.ErrorContains(t, algo.CheckReduction(backend.BAnd, tensor.Float16), "band of float16")
	assert.NoError(t, algo.CheckReduction(backend.Avg, tensor.BFloat16))
	assert.NoError(t, algo.CheckReduction(backend.BXor, tensor.Bool))
}

// Slices cover the buffer exactly once, for any numbers.
func TestSliceCovers(t *testing.T) {
	for _, count := range []int{0, 1, 63, 64, 65, 1000, 4099} {
		for n := 1; n <= 9; n++ {
			at := 0
			for r := range n {
				lo, hi := algo.Slice(count, n, r)
				require.Equal(t, at, lo, "%d elements, rank %d of %d", count, r, n)
				at = hi
			}
			require.Equal(t, count, at)
		}
	}
}

// The average of large numbers does not overflow, whichever algorithm adds: 60000 in float16, and numbers near the largest one where no
// rank sees all inputs. Its error is at most that of one addition in the type for each rank.
func TestAvgDoesNotOverflow(t *testing.T) {
	const count = 41
	large := map[tensor.DType]float64{tensor.Float16: 60000, tensor.BFloat16: 3e38, tensor.Float32: 3e38, tensor.Float64: 1.5e308}
	ulp := map[tensor.DType]float64{tensor.Float16: 1. / 1024, tensor.BFloat16: 1. / 128, tensor.Float32: 1e-6, tensor.Float64: 1e-15}
	bubbles(t, func(t *testing.T, w *world, n int) {
		for dt, v := range large {
			in := make([][]byte, n)
			for r := range in {
				in[r] = values(dt, count, func(int) float64 { return v })
			}
			for _, kind := range []backend.Kind{backend.AllReduce, backend.Reduce} {
				for _, name := range algo.Names(kind) {
					if algo.InRankOrder(name) && dt != tensor.Float16 {
						continue // adds as many as there are ranks in float32 or float64
					}
					out, _ := w.reduceOn(kind, name, reduction{backend.Avg, dt}, in, 0, false)
					got := floatsOf(dt, out[0])
					require.Len(t, got, count)
					for _, y := range got {
						require.InEpsilon(t, floatsOf(dt, in[0])[0], y, float64(n)*ulp[dt], "%s %v of %v, %d ranks", name, kind, dt, n)
					}
					if dt == tensor.Float16 && n == 4 {
						assert.EqualValues(t, 60000, got[0], "%s %v, %d ranks", name, kind, n)
					}
				}
			}
		}
	})
}

func TestLongAvgDoesNotOverflow(t *testing.T) { reliability.AsLong(t, TestAvgDoesNotOverflow) }

func floatsOf(dt tensor.DType, b []byte) []float64 {
	x := tensor.New(cpu.New(1), dt, len(b)/dt.Size())
	copy(x.Bytes(), b)
	return tensor.Floats(x)
}
