package disttest

import (
	"math"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

// reds are the reductions, each with its definition for two numbers. Bool has its own.
var reds = []struct {
	name string
	op   dist.Reduction
	fold func(a, b float64) float64
}{
	{"sum", dist.Sum, add},
	{"avg", dist.Avg, add},
	{"prod", dist.Prod, func(a, b float64) float64 { return a * b }},
	{"min", dist.Min, func(a, b float64) float64 { return min(a, b) }},
	{"max", dist.Max, func(a, b float64) float64 { return max(a, b) }},
	{"band", dist.BAnd, func(a, b float64) float64 { return float64(int(a) & int(b)) }},
	{"bor", dist.BOr, func(a, b float64) float64 { return float64(int(a) | int(b)) }},
	{"bxor", dist.BXor, func(a, b float64) float64 { return float64(int(a) ^ int(b)) }},
	{name: "premulsum", fold: add}, // each rank has its factor
}

func add(a, b float64) float64 { return a + b }

// factor is what a rank's input is multiplied by.
func factor(red, rank int) float64 {
	if reds[red].name == "premulsum" {
		return float64(2 - rank%2)
	}
	return 1
}

// redAvg, redMax and redBXor are the indices of some.
const redAvg, redMax, redBXor = 1, 4, 7

// valid reports whether a type has a reduction.
func valid(name string, d tensor.DType) bool {
	switch name {
	case "avg", "premulsum":
		return d.IsFloat()
	case "band", "bor", "bxor":
		return !d.IsFloat()
	}
	return true
}

// value is element i of rank's input. Values are small integers, so that the result is exact for every type and order.
func value(name string, d tensor.DType, n, rank, i int) float64 {
	switch {
	case d == tensor.Bool:
		return float64((rank + i/2) % (1 + i%3) % 2)
	case name == "prod":
		return float64(1 + (rank+i)%2)
	case name == "avg":
		return float64(n * ((rank + i) % 3)) // so that the sum is divisible by n
	case name == "min" || name == "max" || name == "sum" && d != tensor.Uint8 && d != tensor.BFloat16:
		return tag(rank, i) // large values show more mistakes
	}
	return float64((3*rank + 7*i) % 6)
}

// reduced returns element i of the reduction of n ranks' inputs.
func reduced(red int, d tensor.DType, n, i int) float64 {
	r := reds[red]
	acc := factor(red, 0) * value(r.name, d, n, 0, i)
	for rank := 1; rank < n; rank++ {
		acc = r.fold(acc, factor(red, rank)*value(r.name, d, n, rank, i))
	}
	switch {
	case r.name == "avg":
		acc /= float64(n)
	case d == tensor.Bool && acc > 1:
		acc = 1 // the sum of bools
	case d == tensor.Bool && acc < 0:
		acc = 0
	}
	return acc
}

// big is a number of elements that takes several blocks. With the race detector it is smaller, because other tests have many blocks.
func big(n int) int {
	if reliability.Racing {
		return min(n, 1_001)
	}
	return n
}

func set(x tensor.Tensor, at func(i int) float64) {
	overwrite(x, func(x tensor.Tensor) { setHost(x, at) })
}

var host = tensor.FromSlice([]uint8{0}, 1).Device()

// overwrite calls f, which sets all elements, with x in host memory.
func overwrite(x tensor.Tensor, f func(x tensor.Tensor)) {
	h := x
	if !x.Device().Host() {
		h = tensor.New(host, x.DType(), x.Shape().Dims...)
	}
	if f(h); h != x {
		tensor.Copy(x, h)
	}
}

// bytesOf returns x's bytes in host memory.
func bytesOf(x tensor.Tensor) []byte { return tensor.ToHost(x).Bytes() }

func setHost(x tensor.Tensor, at func(i int) float64) {
	switch x.DType() {
	case tensor.Float32:
		setAll(tensor.Data[float32](x), func(i int) float32 { return float32(at(i)) })
	case tensor.Float64:
		setAll(tensor.Data[float64](x), at)
	case tensor.BFloat16:
		setAll(tensor.Data[tensor.BF16](x), func(i int) tensor.BF16 { return bf16(at(i)) })
	case tensor.Float16:
		setAll(tensor.Data[tensor.F16](x), func(i int) tensor.F16 { return f16(at(i)) })
	case tensor.Int32:
		setAll(tensor.Data[int32](x), func(i int) int32 { return int32(at(i)) })
	case tensor.Int64:
		setAll(tensor.Data[int64](x), func(i int) int64 { return int64(at(i)) })
	case tensor.Uint8:
		setAll(tensor.Data[uint8](x), func(i int) uint8 { return uint8(at(i)) })
	case tensor.Bool:
		setAll(tensor.Data[bool](x), func(i int) bool { return int(at(i))&1 == 1 })
	}
}

func setAll[T any](x []T, at func(i int) T) {
	for i := range x {
		x[i] = at(i)
	}
}

// period divides by the period of tag, value and reduced.
const period = 97 * 12

// repeat sets x, in host memory, to at(0), at(1), …, for a function that repeats itself after period elements.
func repeat(x tensor.Tensor, at func(i int) float64) {
	n := min(x.Len(), period)
	setHost(x.Range(0, n), at)
	for b, done := x.Bytes(), n*x.DType().Size(); done < len(b); done *= 2 {
		copy(b[done:], b[:done])
	}
}

// bf16 and f16 store numbers that are exact in 16 bits, and NaN.
func bf16(x float64) tensor.BF16 { return tensor.BF16(math.Float32bits(float32(x)) >> 16) }

func f16(x float64) tensor.F16 {
	switch {
	case x != x:
		return 0x7e00
	case x == 0:
		return 0
	}
	u := math.Float32bits(float32(x))
	return tensor.F16(u>>16&0x8000 | (u&0x7fffffff)>>13 - 112<<10)
}
