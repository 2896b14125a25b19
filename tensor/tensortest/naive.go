package tensortest

import (
	"math"
	"slices"
)

// Array is an array of float64, computed by plain loops, that operations are compared with. Its elements are in row-major order.
type Array struct {
	Dims []int
	V    []float64
}

func count(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

// build makes an array, element by element in row-major order.
func build(dims []int, f func(i []int) float64) Array {
	a := Array{dims, make([]float64, count(dims))}
	i := make([]int, len(dims))
	for k := range a.V {
		rest := k
		for d := len(dims) - 1; d >= 0; d-- {
			i[d], rest = rest%dims[d], rest/dims[d]
		}
		a.V[k] = f(i)
	}
	return a
}

// at returns the element at index i, with NumPy's rules of broadcasting.
func (a Array) at(i ...int) float64 {
	i = i[len(i)-len(a.Dims):]
	k := 0
	for d, n := range a.Dims {
		c := i[d]
		if n == 1 {
			c = 0
		}
		k = k*n + c
	}
	return a.V[k]
}

// joint is the shape that a and b broadcast to.
func joint(a, b []int) []int {
	if len(a) < len(b) {
		a, b = b, a
	}
	out := slices.Clone(a)
	for i := range b {
		if k := len(a) - len(b) + i; out[k] == 1 {
			out[k] = b[i]
		}
	}
	return out
}

func (a Array) each(f func(v float64) float64) Array {
	return build(a.Dims, func(i []int) float64 { return f(a.at(i...)) })
}

func (a Array) with(b Array, f func(x, y float64) float64) Array {
	return build(joint(a.Dims, b.Dims), func(i []int) float64 { return f(a.at(i...), b.at(i...)) })
}

// along applies f to the lines of dimension d, which gets the length of f's results.
func (a Array) along(d int, f func(line []float64) []float64) Array {
	line := make([]float64, a.Dims[d])
	length := len(f(make([]float64, a.Dims[d])))
	dims := slices.Clone(a.Dims)
	dims[d] = length
	return build(dims, func(i []int) float64 {
		k := slices.Clone(i)
		for j := range line {
			k[d] = j
			line[j] = a.at(k...)
		}
		return f(line)[i[d]]
	})
}

// drop removes dimension d, of size 1.
func (a Array) drop(d int) Array { return Array{slices.Delete(slices.Clone(a.Dims), d, d+1), a.V} }

func (a Array) matrix() (rows, cols int) { return a.Dims[len(a.Dims)-2], a.Dims[len(a.Dims)-1] }

// matmul multiplies the last two dimensions of a and b, each transposed or not; b may have only two dimensions.
func (a Array) matmul(b Array, ta, tb bool) Array {
	m, k := a.matrix()
	n, _ := b.matrix()
	if ta {
		m, k = k, m
	}
	if !tb {
		_, n = b.matrix()
	}
	r := len(a.Dims)
	dims := append(slices.Clone(a.Dims[:r-2]), m, n)
	return build(dims, func(i []int) (sum float64) {
		x, y := slices.Clone(i), slices.Clone(i)
		for p := range k {
			x[r-2], x[r-1] = i[r-2], p
			if ta {
				x[r-2], x[r-1] = p, i[r-2]
			}
			y[r-2], y[r-1] = p, i[r-1]
			if tb {
				y[r-2], y[r-1] = i[r-1], p
			}
			sum += a.at(x...) * b.at(y...)
		}
		return sum
	})
}

func sumOf(line []float64) (s float64) {
	for _, v := range line {
		s += v
	}
	return s
}

func logSumExpOf(line []float64) float64 {
	if len(line) == 0 {
		return math.Inf(-1)
	}
	m, s := slices.Max(line), 0.0
	for _, v := range line {
		s += math.Exp(v - m)
	}
	return m + math.Log(s)
}

func softmaxOf(line []float64) []float64 {
	l := logSumExpOf(line)
	return mapLine(line, func(v float64) float64 { return math.Exp(v - l) })
}

func mapLine(line []float64, f func(v float64) float64) []float64 {
	out := make([]float64, len(line))
	for i, v := range line {
		out[i] = f(v)
	}
	return out
}

func layerNormOf(eps float64) func(line []float64) []float64 {
	return func(line []float64) []float64 {
		n := float64(len(line))
		mean := sumOf(line) / n
		v := sumOf(mapLine(line, func(x float64) float64 { return (x - mean) * (x - mean) })) / n
		return mapLine(line, func(x float64) float64 { return (x - mean) / math.Sqrt(v+eps) })
	}
}

func rmsNormOf(eps float64) func(line []float64) []float64 {
	return func(line []float64) []float64 {
		v := sumOf(mapLine(line, func(x float64) float64 { return x * x })) / float64(len(line))
		return mapLine(line, func(x float64) float64 { return x / math.Sqrt(v+eps) })
	}
}

func sigmoidOf(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

func geluOf(x float64) float64 { return x * 0.5 * math.Erfc(-x/math.Sqrt2) }

func geluTanhOf(x float64) float64 {
	return 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
}

func bceOf(x, y float64) float64 {
	return math.Max(x, 0) - x*y + math.Log1p(math.Exp(-math.Abs(x)))
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// maxOf is the maximum, and NaN if one operand is.
func maxOf(x, y float64) float64 {
	if x != x || y != y {
		return math.NaN()
	}
	return math.Max(x, y)
}

func minOf(x, y float64) float64 { return -maxOf(-x, -y) }

// topOf returns the k largest elements of a line, or their positions: NaN first, then the largest; of equal ones the first.
func topOf(k int, values bool) func(line []float64) []float64 {
	return func(line []float64) []float64 {
		at := make([]int, len(line))
		for i := range at {
			at[i] = i
		}
		above := func(v, w float64) bool { return v > w || v != v && w == w }
		slices.SortStableFunc(at, func(i, j int) int {
			switch {
			case above(line[i], line[j]):
				return -1
			case above(line[j], line[i]):
				return 1
			}
			return 0
		})
		out := make([]float64, k)
		for c := range out {
			out[c] = float64(at[c])
			if values {
				out[c] = line[at[c]]
			}
		}
		return out
	}
}

// argmaxOf is the position of the first largest element; a NaN is the largest.
func argmaxOf(line []float64) float64 {
	best := 0
	for i, v := range line {
		if line[best] == line[best] && (v > line[best] || v != v) {
			best = i
		}
	}
	return float64(best)
}
