package cuda_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/cuda"
	"github.com/ringo-ml/ringo/tensor/ops"
)

func counts(n ...int) operand {
	return values(tensor.Int64, len(n), func(i int) float64 { return float64(n[i]) })
}

// grouped is a case of a grouped product.
type grouped struct {
	n, k   int
	counts []int
	tb     bool
	beta   float64
}

func (g grouped) rows() (rows int) {
	for _, c := range g.counts {
		rows += c
	}
	return rows
}

func (g grouped) set(a *tensor.Args) {
	a.Dim, a.NDim = [6]int{g.rows(), g.n, g.k, len(g.counts)}, 4
	if g.tb {
		a.I[0] = 1
	}
	a.F[0] = g.beta
}

// output is NaN if the product is not added to it.
func (g grouped) output(r *rand.Rand, d tensor.DType, n int) operand {
	if g.beta == 0 {
		return values(d, n, func(int) float64 { return math.NaN() })
	}
	return random(r, d, n)
}

// forward is the product, grad the gradient of b.
func (g grouped) forward(d tensor.DType) launch {
	r := rng(5)
	return launch{op: ops.OpGroupedLinear, d: d, outs: 1, set: g.set, x: []operand{g.output(r, d, g.rows()*g.n), random(r, d, g.rows()*g.k),
		random(r, d, len(g.counts)*g.n*g.k), counts(g.counts...)}}
}

func (g grouped) grad(d tensor.DType) launch {
	r := rng(6)
	return launch{op: ops.OpGroupedGrad, d: d, outs: 1, set: g.set, x: []operand{g.output(r, d, len(g.counts)*g.n*g.k),
		random(r, d, g.rows()*g.n), random(r, d, g.rows()*g.k), counts(g.counts...)}}
}

func TestGrouped(t *testing.T) {
	bothOrders(t, func(t *testing.T, dev *cuda.Device) {
		each(t, fewTypes(t), func(t *testing.T, d tensor.DType) {
			for _, sizes := range [][]int{{5}, {0, 3, 0, 70}, {64, 1, 130, 0}, {0, 0}} {
				for i := range 4 {
					g := grouped{17, 33, sizes, i&1 != 0, float64(i / 2)}
					if g.rows() > 0 {
						g.forward(d).agree(t, dev, sumsOf(g.k))
						g.grad(d).agree(t, dev, sumsOf(g.rows()))
					}
				}
			}
		})
		require.NotContains(t, strings.Join(cuda.Compiled(dev, "grouped"), " "), "mma")
	})
}

// mmaGroups are cases of products on tensor cores: full and partial steps and tiles of the kernel, more steps than it copies ahead, empty
// groups, and results that are added to old ones or not.
var mmaGroups = []grouped{
	{8, 24, []int{0, 1, 17, 64, 65, 200}, true, 0},
	{24, 136, []int{200, 0, 65, 64, 1, 17}, false, 0},
	{136, 8, []int{0, 1, 17, 64, 65, 200}, true, 1},
	{64, 64, []int{0, 1, 17, 64, 65, 200, 0}, false, 1},
	{136, 136, []int{1, 0, 65}, false, 0.5},
	{8, 8, []int{0, 0, 130, 0, 0}, true, 1},
	{256, 32, []int{128, 0, 3}, true, 0},
}

// TestGroupedOnTensorCores compares with the CPU. Threads in reverse order give the same bits. Rows that ldmatrix reads together are in
// different banks.
func TestGroupedOnTensorCores(t *testing.T) {
	host := cpu.New(1)
	defer host.Close()
	gots := map[string]operand{}
	for _, reverse := range []bool{false, true} {
		emu.Start(t, emu.Config{Reverse: reverse, Banks: true})
		dev := open(t, 0)
		for i, g := range mmaGroups {
			d := []tensor.DType{tensor.BFloat16, tensor.Float16}[(i+i/2)%2]
			for _, l := range []launch{g.forward(d), g.grad(d)} {
				name, got := fmt.Sprint(l.op, d, g), l.on(t, dev)[0]
				if reverse {
					require.Equal(t, gots[name], got, name)
				} else {
					require.Negative(t, differs(l.on(t, host)[0], got, sumsOf(g.k)), name)
				}
				gots[name] = got
			}
		}
		require.NotContains(t, cuda.Compiled(dev, "grouped"), "grouped")
		require.NotContains(t, cuda.Compiled(dev, "grouped"), "grouped_grad")
	}
}

// TestGroupedAndPlainKernel compares the two kernels, and two runs; on compute capability 9.0, those of other devices, too. The long form
// has the largest case, too.
func TestGroupedAndPlainKernel(t *testing.T) {
	dev := device(t)
	for range 2 {
		for i, d := range []tensor.DType{tensor.BFloat16, tensor.Float16} {
			for k, g := range []grouped{{72, 136, []int{1, 0, 17, 65}, i == 0, float64(i)}, {264, 328, []int{0, 257, 64, 1, 0, 130}, i == 0, 0},
				{328, 72, []int{129, 63}, i != 0, 0.5}} {
				if k == 1 && !long(t) {
					continue
				}
				for _, l := range []launch{g.forward(d), g.grad(d)} {
					got := l.on(t, dev)
					require.Equal(t, got, l.on(t, dev))
					cuda.Plain(dev, true)
					want := l.on(t, dev)
					cuda.Plain(dev, false)
					require.Negative(t, differs(want[0], got[0], sumsOf(max(g.k, g.rows()))), "%v %v %+v", l.op, d, g)
				}
			}
		}
		if !cuda.Hopper(dev, true) {
			return
		}
		require.Len(t, cuda.Compiled(dev, "grouped_wgmma"), 6)
		cuda.Hopper(dev, false)
	}
}

func TestLongGroupedAndPlainKernel(t *testing.T) { reliability.AsLong(t, TestGroupedAndPlainKernel) }

// A group's gradient takes nothing of the rows behind its last, which are the next group's: a NaN there stays there. A product's rows do
// not either.
func TestGroupsKeepNaN(t *testing.T) {
	dev := device(t)
	for _, d := range []tensor.DType{tensor.BFloat16, tensor.Float32} {
		g := grouped{72, 136, []int{70, 1, 0, 65}, true, 0}
		for _, l := range []launch{g.forward(d), g.grad(d)} {
			width := l.x[1].n() / g.rows()
			x := l.x[1]
			l.x[1] = values(d, x.n(), func(i int) float64 {
				if i/width == 70 {
					return math.NaN()
				}
				return x.at(i)
			})
			l.agree(t, dev, sumsOf(max(g.k, g.rows())))
		}
	}
}

// Cases that tensor cores cannot do use the plain kernel.
func TestGroupedWithoutTensorCores(t *testing.T) {
	for _, c := range []struct {
		d       tensor.DType
		n, k    int
		shifted int // the operand with an unaligned address
		mma     bool
	}{
		{tensor.BFloat16, 8, 16, -1, true},
		{tensor.Float16, 8, 16, 3, true}, // the sizes of the groups
		{tensor.Float32, 8, 16, -1, false},
		{tensor.BFloat16, 12, 16, -1, false},
		{tensor.BFloat16, 8, 20, -1, false},
		{tensor.BFloat16, 8, 16, 0, false},
		{tensor.BFloat16, 8, 16, 1, false},
		{tensor.BFloat16, 8, 16, 2, false},
	} {
		g := grouped{c.n, c.k, []int{3, 2}, true, 0}
		dev := device(t)
		for _, l := range []launch{g.forward(c.d), g.grad(c.d)} {
			if c.shifted >= 0 {
				l.x[c.shifted] = l.x[c.shifted].shifted(1)
			}
			l.agree(t, dev, sumsOf(c.k))
		}
		want := "grouped grouped_grad"
		if c.mma {
			want = "grouped_mma_tb grouped_mma_grad"
		}
		if cuda.Hopper(dev, true) {
			want = strings.ReplaceAll(want, "_mma_", "_wgmma_")
		}
		require.Equal(t, want, strings.Join(cuda.Compiled(dev, "grouped"), " "), "%+v", c)
	}
}

// TestDeletedBarrierInGrouped removes the barrier and the wait for copies from the kernels, or makes them wait for too few copies.
func TestDeletedBarrierInGrouped(t *testing.T) { //long: one order of threads is enough to see it
	emu.Only(t, "a GPU may be right by chance")
	g := grouped{40, 136, []int{40, 100}, true, 0}
	other := g
	other.tb = false
	for _, call := range [][2]string{
		{"__syncthreads();", ""}, {"copies_wait<STAGES - 2>();", ""}, {"copies_wait<STAGES - 2>();", "copies_wait<STAGES - 1>();"},
	} {
		for _, l := range []launch{g.forward(tensor.BFloat16), other.forward(tensor.BFloat16), g.grad(tensor.BFloat16)} {
			t.Run(fmt.Sprint(l.op, " with ", call[1], " for ", call[0]), func(t *testing.T) {
				seen := false
				bothOrders(t, func(t *testing.T, dev *cuda.Device) {
					if seen {
						return
					}
					want := l.on(t, dev)
					require.NoError(t, cuda.Alter(dev, "grouped_mma.cu", call[0], call[1]))
					seen = !assert.ObjectsAreEqual(want, l.on(t, dev))
				})
				require.True(t, seen, "nobody noticed")
			})
		}
	}
}

// TestWrongConstantsOnHopper plants mistakes in the kernels for compute capability 9.0. The short runs on the emulator only find their
// places.
func TestWrongConstantsOnHopper(t *testing.T) {
	g := grouped{264, 328, []int{0, 257, 65, 1, 130}, true, 0.5}
	plain := g
	plain.tb, plain.beta = false, 0
	for _, c := range []struct {
		from, to string
		l        launch
	}{
		{"da + i * (ACROSS_A ? 128 : 2)", "da + i * (ACROSS_A ? 128 : 4)", g.forward(tensor.BFloat16)},
		{"db + i * (ACROSS_B ? 128 : 2)", "db + i * (ACROSS_B ? 64 : 2)", plain.forward(tensor.Float16)},
		{"lead = ACROSS ? box / 16 : 1", "lead = ACROSS ? box / 32 : 1", g.grad(tensor.BFloat16)},
		{"stride = 1024 / 16", "stride = 512 / 16", g.forward(tensor.BFloat16)},
		{"r = valid + i / 40", "r = valid + 1 + i / 40", g.grad(tensor.Float16)},
		{"i * 2 * BOX, b, at, j.n + i * 128", "i * 2 * BOX, b, at, j.n", g.forward(tensor.BFloat16)},
		{"acc[2 * i] + beta * widen(old.v[0])", "acc[2 * i] + widen(old.v[0])", g.forward(tensor.BFloat16)},
		{"int col = 32 * i + 8 * q;", "int col = 32 * i + 8 * (q ^ 1);", plain.forward(tensor.BFloat16)},
		{"role * 64 + warp * 16", "role * 64 + (warp ^ 1) * 16", g.grad(tensor.BFloat16)},
		{"s > 0 || i > 0", "s > 0", g.forward(tensor.BFloat16)},
	} {
		dev := hopper(t, emu.Config{})
		if !long(t) {
			require.NoError(t, cuda.Alter(dev, "grouped_wgmma.cu", c.from, c.to))
			continue
		}
		want := c.l.on(t, dev)
		require.NoError(t, cuda.Alter(dev, "grouped_wgmma.cu", c.from, c.to))
		require.NotEqual(t, want, c.l.on(t, dev), "nobody noticed %s", c.to)
	}
}

func TestLongWrongConstantsOnHopper(t *testing.T) {
	reliability.AsLong(t, TestWrongConstantsOnHopper)
}

// TestGroupedOnHopper compares with the CPU. Threads in reverse order give the same bits, and so does another run.
func TestGroupedOnHopper(t *testing.T) {
	host := cpu.New(1)
	defer host.Close()
	cases := []grouped{{72, 136, []int{0, 1, 130, 65, 0}, false, 0.5}}
	if long(t) {
		cases = append(mmaGroups, grouped{264, 328, []int{0, 257, 65, 1, 130}, true, 1}, grouped{520, 72, []int{63, 0, 400, 64, 0}, false, 0})
	}
	gots := map[string]operand{}
	for _, reverse := range []bool{false, true} {
		dev := hopper(t, emu.Config{Reverse: reverse})
		for i, g := range cases {
			d := []tensor.DType{tensor.BFloat16, tensor.Float16}[i%2]
			for _, l := range []launch{g.forward(d), g.grad(d)} {
				name, got := fmt.Sprint(l.op, d, g), l.on(t, dev)[0]
				if reverse {
					require.Equal(t, gots[name], got, name)
					require.Equal(t, got, l.on(t, dev)[0], name)
				} else {
					require.Negative(t, differs(l.on(t, host)[0], got, sumsOf(max(g.k, g.rows()))), name)
				}
				gots[name] = got
			}
		}
		for _, name := range cuda.Compiled(dev, "grouped") {
			require.Contains(t, name, "wgmma")
		}
	}
}

func TestLongGroupedOnHopper(t *testing.T) { reliability.AsLong(t, TestGroupedOnHopper) }

// Only the device knows the groups' sizes. Wrong ones are an error of the next Sync, and nothing outside of the result is written.
func TestGroupsThatDoNotFit(t *testing.T) {
	dev := device(t)
	for _, d := range []tensor.DType{tensor.Float32, tensor.BFloat16} {
		for _, sizes := range [][]int{{2, 2}, {2, 4}, {-1, 6}} {
			tape := tensor.NewTape(dev)
			x := tape.Input(tensor.FromSlice(make([]float32, 5*8), 5, 8))
			w := tape.Input(tensor.FromSlice(make([]float32, 2*16*8), 2, 16, 8))
			c := tape.Input(tensor.FromSlice([]int64{int64(sizes[0]), int64(sizes[1])}, 2))
			ops.GroupedLinear(x.Cast(d), w.Cast(d), c)
			require.ErrorContains(t, dev.Queue(0).Sync(), "grouped_linear", fmt.Sprint(d, sizes))
		}
	}
	want := []string{"grouped", "grouped_mma_tb"}
	if cuda.Hopper(dev, true) {
		want[1] = "grouped_wgmma_tb"
	}
	require.ElementsMatch(t, want, cuda.Compiled(dev, "grouped"))
	for _, d := range []tensor.DType{tensor.Float32, tensor.BFloat16} {
		tape := tensor.NewTape(dev)
		x, w := tensor.New(dev, d, 5, 8), tensor.New(dev, d, 0, 16, 8)
		ops.GroupedLinear(tape.Input(x), tape.Input(w), tape.Input(tensor.New(dev, tensor.Int64, 0)))
		require.ErrorContains(t, dev.Queue(0).Sync(), "grouped_linear", "5 rows of no group")
	}
}

func TestGroupedAllocatesNothing(t *testing.T) {
	dev := device(t)
	require.NoError(t, dev.Bind())
	g := grouped{8, 16, []int{3, 2}, true, 0}
	y, x, w := tensor.New(dev, tensor.BFloat16, 40), tensor.New(dev, tensor.BFloat16, 80), tensor.New(dev, tensor.BFloat16, 256)
	c := tensor.New(dev, tensor.Int64, 2)
	tensor.Copy(c, tensor.FromSlice([]int64{3, 2}, 2))
	for op, xs := range map[tensor.Op][]tensor.Tensor{ops.OpGroupedLinear: {y, x, w, c}, ops.OpGroupedGrad: {w, y, x, c}} {
		a := tensor.Args{Op: op, DType: tensor.BFloat16, N: len(xs)}
		g.set(&a)
		allocatesNothing(t, dev, &a, xs)
	}
}
