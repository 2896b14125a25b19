package gorgonia

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	gt "gorgonia.org/tensor"

	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// counting is a CPU that counts the kernels which run.
type counting struct {
	*cpu.Device
	table tensor.Table
	n     int
}

func (c *counting) Kernels() *tensor.Table { return &c.table }

// newCounting returns an Engine whose kernels are counted.
func newCounting(t *testing.T, threads int) (*Engine, *counting) {
	c := &counting{Device: cpu.New(threads)}
	t.Cleanup(c.Close)
	for op, row := range c.Device.Kernels() {
		for d, k := range row {
			if k != nil {
				c.table[op][d] = func(q tensor.Queue, a *tensor.Args) {
					c.n++
					k(q, a)
				}
			}
		}
	}
	return &Engine{exec: tensor.NewExec(c)}, c
}

// special are values that operations treat specially.
var special = []float64{0, math.Copysign(0, -1), 1, -1, 0.5, -2.25, math.Inf(1), math.Inf(-1), math.NaN(), 1e-320, 5e-42, 3e38, -1e300,
	88.5, -88.5, 2, 3, 1e-8}

// layouts make an array of a shape, with different layouts in memory.
var layouts = []struct {
	name   string
	packed bool // as the kernels need it
	make   func(values func(n int) any, e gt.Engine, shape gt.Shape) *gt.Dense
}{
	{"packed", true, packedArray},
	{"rows of a larger array", true, func(values func(n int) any, e gt.Engine, shape gt.Shape) *gt.Dense {
		larger := slices.Clone(shape)
		larger[0] += 2
		d := gt.New(gt.WithShape(larger...), gt.WithBacking(values(larger.TotalSize())), gt.WithEngine(e))
		return must(d.Slice(gt.S(1, 1+shape[0]))).(*gt.Dense)
	}},
	{"columns of a larger array", false, func(values func(n int) any, e gt.Engine, shape gt.Shape) *gt.Dense {
		larger := slices.Clone(shape)
		larger[len(larger)-1] += 3
		d := gt.New(gt.WithShape(larger...), gt.WithBacking(values(larger.TotalSize())), gt.WithEngine(e))
		cut := make([]gt.Slice, len(shape))
		cut[len(cut)-1] = gt.S(1, 1+shape[len(shape)-1])
		return must(d.Slice(cut...)).(*gt.Dense)
	}},
	{"transposed", false, func(values func(n int) any, e gt.Engine, shape gt.Shape) *gt.Dense {
		reversed := slices.Clone(shape)
		slices.Reverse(reversed)
		d := packedArray(values, e, reversed)
		if err := d.T(); err != nil {
			panic(err)
		}
		return d
	}},
	{"by columns", false, func(values func(n int) any, e gt.Engine, shape gt.Shape) *gt.Dense {
		return gt.New(gt.WithShape(shape...), gt.AsFortran(values(shape.TotalSize())), gt.WithEngine(e))
	}},
	{"masked", false, func(values func(n int) any, e gt.Engine, shape gt.Shape) *gt.Dense {
		d := packedArray(values, e, shape)
		d.ResetMask(false)
		return d
	}},
}

func packedArray(values func(n int) any, e gt.Engine, shape gt.Shape) *gt.Dense {
	return gt.New(gt.WithShape(shape...), gt.WithBacking(values(shape.TotalSize())), gt.WithEngine(e))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// ordinary is the seed of numbers without special ones. gt.StdEng divides by zero differently (see TestDivisionByZero), and its float32
// functions are wrong for some numbers (see TestFunctions).
const ordinary = 100

// numbers returns n numbers of a type that depend only on the seed, with special ones among them.
func numbers(t gt.Dtype, seed uint64) func(n int) any {
	return func(n int) any {
		r := rand.New(rand.NewPCG(seed, 1))
		v := make([]float64, n)
		for i := range v {
			v[i] = r.NormFloat64() * 3
			if r.IntN(4) == 0 && seed != ordinary {
				v[i] = special[r.IntN(len(special))]
			}
		}
		switch t {
		case gt.Float64:
			return v
		case gt.Float32:
			return convert[float32](v)
		}
		for i := range v {
			v[i] = math.Round(float64(r.IntN(9) + 1)) // integers are divided by it
		}
		return convert[int](v)
	}
}

func convert[T float32 | int](v []float64) []T {
	out := make([]T, len(v))
	for i := range v {
		out[i] = T(v[i])
	}
	return out
}

// elements returns an array's elements in row-major order.
func elements(d gt.Tensor) []any {
	var out []any
	dense := d.(*gt.Dense)
	it := dense.Iterator()
	for i, err := it.Next(); err == nil; i, err = it.Next() {
		out = append(out, dense.Get(i))
	}
	return out
}

// ulps is the distance of two numbers in units of their type: 0 for equal bits, or two NaNs; 1 for zeros of different signs.
func ulps(a, b any) float64 {
	if a == b && !isZero(a) {
		return 0
	}
	order := func(bits, sign uint64) float64 {
		if bits&sign != 0 {
			return -float64(bits&^sign) - 1
		}
		return float64(bits)
	}
	switch x := a.(type) {
	case float32:
		y := b.(float32)
		return distance(float64(x), float64(y), order(uint64(math.Float32bits(x)), 1<<31)-order(uint64(math.Float32bits(y)), 1<<31))
	case float64:
		y := b.(float64)
		if math.Float64bits(x) == math.Float64bits(y) {
			return 0
		}
		return distance(x, y, max(1, math.Abs(order(math.Float64bits(x), 1<<63)-order(math.Float64bits(y), 1<<63))))
	}
	return math.Inf(1) // other types have no ulps
}

func isZero(a any) bool { return a == float32(0) || a == 0.0 }

func distance(x, y, steps float64) float64 {
	switch {
	case math.IsNaN(x) && math.IsNaN(y):
		return 0
	case math.IsNaN(x) || math.IsNaN(y):
		return math.Inf(1)
	}
	return math.Abs(steps)
}

// result holds what an operation returned: its error, its result, and the content of its operands.
type result struct {
	err      error
	elements []any
	shape    gt.Shape
	dtype    gt.Dtype
	is       string // which of the given arrays it returned
	operands [][]any
}

// requireAlike compares the results of the Engine and of gt.StdEng.
func requireAlike(t *testing.T, want, got result, most float64, what string) {
	t.Helper()
	if want.err != nil {
		require.EqualError(t, got.err, want.err.Error(), what)
		return
	}
	require.NoError(t, got.err, what)
	require.Equal(t, want.is, got.is, what)
	require.Equal(t, want.dtype, got.dtype, what)
	require.True(t, want.shape.Eq(got.shape), "%s: shape %v, not %v", what, got.shape, want.shape)
	for k, list := range append([][]any{want.elements}, want.operands...) {
		mine := append([][]any{got.elements}, got.operands...)[k]
		require.Len(t, mine, len(list), what)
		for i := range list {
			if d := ulps(list[i], mine[i]); d > most {
				t.Fatalf("%s: array %d, element %d is %v and not %v: %v ulp", what, k, i, mine[i], list[i], d)
			}
		}
	}
}

// run does an operation on two arrays, with an option that may use them or a third one.
func run(op func(a, b *gt.Dense, opts ...gt.FuncOpt) (gt.Tensor, error), option string, a, b, c *gt.Dense) (r result) {
	var opts []gt.FuncOpt
	switch option {
	case "reuse":
		opts = append(opts, gt.WithReuse(c))
	case "reuse of a":
		opts = append(opts, gt.WithReuse(a))
	case "reuse of b":
		opts = append(opts, gt.WithReuse(b))
	case "unsafe":
		opts = append(opts, gt.UseUnsafe())
	case "incr":
		opts = append(opts, gt.WithIncr(c))
	case "same type":
		opts = append(opts, gt.AsSameType())
	}
	ret, err := op(a, b, opts...)
	if r.err = err; err != nil {
		return r
	}
	r.elements, r.shape, r.dtype = elements(ret), ret.Shape(), ret.Dtype()
	for name, d := range map[string]*gt.Dense{"a": a, "b": b, "c": c} {
		if ret == gt.Tensor(d) {
			r.is = name
		}
	}
	r.operands = [][]any{elements(a), elements(b), elements(c)}
	return r
}

type operation func(a, b *gt.Dense, opts ...gt.FuncOpt) (gt.Tensor, error)

// pair and single make an operation from one of gorgonia's functions, which find the engine themselves.
func pair(f func(a, b any, opts ...gt.FuncOpt) (gt.Tensor, error)) operation {
	return func(a, b *gt.Dense, opts ...gt.FuncOpt) (gt.Tensor, error) { return f(a, b, opts...) }
}

func single(f func(a gt.Tensor, opts ...gt.FuncOpt) (gt.Tensor, error)) operation {
	return func(a, _ *gt.Dense, opts ...gt.FuncOpt) (gt.Tensor, error) { return f(a, opts...) }
}

// elementwise are the Engine's own operations, and by how many ulps their float32 results may differ from gt.StdEng's. In float64 they have
// equal bits.
var elementwise = []struct {
	name   string
	do     operation
	f32    float64
	first  uint64 // seeds of the operands
	second uint64
}{
	{"add", pair(gt.Add), 0, 1, 2}, {"sub", pair(gt.Sub), 0, 1, 2}, {"mul", pair(gt.Mul), 0, 1, 2}, {"div", pair(gt.Div), 0, 1, ordinary},
	{"lt", pair(gt.Lt), 0, 1, 2}, {"lte", pair(gt.Lte), 0, 1, 2}, {"gt", pair(gt.Gt), 0, 1, 2}, {"gte", pair(gt.Gte), 0, 1, 2},
	{"eq", pair(gt.ElEq), 0, 1, 2}, {"ne", pair(gt.ElNe), 0, 1, 2},
	{"neg", single(gt.Neg), 0, 1, 2}, {"inv", single(gt.Inv), 0, 1, 2}, {"square", single(gt.Square), 0, 1, 2},
	{"sqrt", single(gt.Sqrt), 0, 1, 2}, {"abs", single(gt.Abs), 0, 1, 2},
	{"exp", single(gt.Exp), 100, ordinary, 2}, {"log", single(gt.Log), 2, ordinary, 2}, {"tanh", single(gt.Tanh), 2, ordinary, 2},
}

// TestElementwise compares every operation with gt.StdEng: for types, shapes, layouts in memory, and options. The kernels compute
// contiguous arrays, gt.StdEng all others.
func TestElementwise(t *testing.T) {
	e, count := newCounting(t, 2)
	shapes := []gt.Shape{{1}, {7}, {1, 9}, {9, 1}, {5, 3}, {2, 3, 4}, {2, 1, 2, 1, 3, 1, 2}, {70}}
	for _, op := range elementwise {
		compares := slices.Contains([]string{"lt", "lte", "gt", "gte", "eq", "ne"}, op.name)
		for _, dtype := range []gt.Dtype{gt.Float32, gt.Float64, gt.Int} {
			most := map[gt.Dtype]float64{gt.Float32: op.f32}[dtype]
			for i, shape := range shapes {
				for j, lay := range layouts {
					for k, option := range []string{"", "reuse", "reuse of a", "reuse of b", "unsafe", "incr", "same type"} {
						if (i+j+k)%3 != 0 && !reliability.Long(t) {
							continue
						}
						if option == "reuse of b" && !lay.packed {
							continue // gt.StdEng first copies a there, and uses only a
						}
						what := fmt.Sprintf("%s of %v%v, %s, %q", op.name, dtype, shape, lay.name, option)
						arrays := func(e gt.Engine) (a, b, c *gt.Dense) {
							return lay.make(numbers(dtype, op.first), e, shape), lay.make(numbers(dtype, op.second), e, shape),
								packedArray(numbers(dtype, 3), e, shape)
						}
						a, b, c := arrays(gt.StdEng{})
						want, panicked := attempt(op.do, option, a, b, c)
						a, b, c = arrays(e)
						before := count.n
						got, panics := attempt(op.do, option, a, b, c)
						require.Equal(t, panicked, panics, what)
						if panicked == nil {
							requireAlike(t, want, got, most, what)
						}
						ours := lay.packed && a.Dims() <= tensor.MaxNDim && dtype != gt.Int && option != "incr" && (option == "" || !compares)
						if !a.IsScalar() && (lay.packed || shape[0] == 5) { // for the other shapes, some layouts are contiguous, too
							require.Equal(t, ours, count.n == before+1, "%s: %d kernels", what, count.n-before)
						}
					}
				}
			}
		}
	}
}

func TestLongElementwise(t *testing.T) { reliability.AsLong(t, TestElementwise) }

// attempt is run; it returns a panic's value.
func attempt(op operation, option string, a, b, c *gt.Dense) (r result, panicked any) {
	defer func() { panicked = recover() }()
	return run(op, option, a, b, c), nil
}

// TestFunctions: float32 functions are within 3 ulp of the exact values, also where gt.StdEng's are not.
func TestFunctions(t *testing.T) {
	e, count := newCounting(t, 1)
	x := numbers(gt.Float32, 1)(20000).([]float32)
	for name, f := range map[string]struct {
		do    func(gt.Tensor, ...gt.FuncOpt) (gt.Tensor, error)
		exact func(float64) float64
	}{"exp": {gt.Exp, math.Exp}, "log": {gt.Log, math.Log}, "tanh": {gt.Tanh, math.Tanh}} {
		y := must(f.do(gt.New(gt.WithBacking(slices.Clone(x)), gt.WithEngine(e)))).Data().([]float32)
		for i := range x {
			require.LessOrEqual(t, ulps(y[i], float32(f.exact(float64(x[i])))), 3.0, "%s of %v is %v", name, x[i], y[i])
		}
	}
	require.Equal(t, 3, count.n)
	std := must(gt.Exp(gt.New(gt.WithBacking([]float32{88.5, 3e38})))).Data().([]float32)
	require.Equal(t, []float32{float32(math.Inf(1)), 0}, std, "gt.StdEng has learnt it: tell so in the documentation of Engine")
}

// TestDivisionByZero: IEEE 754's results, where gt.StdEng has +Inf for all.
func TestDivisionByZero(t *testing.T) {
	e, _ := newCounting(t, 1)
	divide := func(e gt.Engine) []float64 {
		a := gt.New(gt.WithBacking([]float64{1, -1, 0}), gt.WithEngine(e))
		return must(gt.Div(a, gt.New(gt.WithBacking(make([]float64, 3)), gt.WithEngine(e)))).Data().([]float64)
	}
	inf := math.Inf(1)
	require.Equal(t, []float64{inf, inf, inf}, divide(gt.StdEng{}))
	got := divide(e)
	require.Equal(t, []float64{inf, -inf}, got[:2])
	require.True(t, math.IsNaN(got[2]))
}

// TestOverlap: if a result and an operand overlap in part, gt.StdEng computes it.
func TestOverlap(t *testing.T) {
	e, count := newCounting(t, 2)
	var got [2][]float64
	for i, engine := range []gt.Engine{gt.StdEng{}, e} {
		whole := gt.New(gt.WithShape(9), gt.WithBacking(gt.Range(gt.Float64, 0, 9)), gt.WithEngine(engine))
		a, out := must(whole.Slice(gt.S(0, 8))), must(whole.Slice(gt.S(1, 9)))
		must(gt.Add(a, a.Clone().(gt.Tensor), gt.WithReuse(out)))
		got[i] = whole.Data().([]float64)
	}
	require.Equal(t, got[0], got[1])
	square := packedArray(numbers(gt.Float64, 1), e, gt.Shape{3, 3})
	other := packedArray(numbers(gt.Float64, 1), e, gt.Shape{3, 3})
	must(gt.MatMul(square, other, gt.WithReuse(square)))
	must(gt.MatMul(other, square, gt.WithReuse(square)))
	require.Zero(t, count.n)
}

// TestGoroutines: an Engine may be used from several goroutines.
func TestGoroutines(t *testing.T) {
	dev := cpu.New(2)
	defer dev.Close()
	e := NewEngine(dev)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			a := gt.New(gt.WithShape(50, 50), gt.WithBacking(gt.Range(gt.Float64, i, i+2500)), gt.WithEngine(e))
			for range 20 {
				sum := must(gt.Add(a, a))
				for k, v := range sum.Data().([]float64) {
					if v != 2*float64(i+k) {
						t.Errorf("element %d of goroutine %d is %v", k, i, v)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}
