package cuda_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/cuda"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// ringed are rows for the ring of cross-entropy.
type ringed struct {
	d          tensor.DType
	rows, cols int
	smoothing  float64
	at         func(i int) float64 // elements; nil: random ones
}

const ringedScale = 0.5

func (c ringed) launch(op tensor.Op, outs int, operands string) launch {
	l := rowLaunch(op, c.d, c.rows, c.cols, 5, outs, operands).with(func(a *tensor.Args) { a.F[0], a.I[0] = c.smoothing, -100 })
	for i, o := range operands {
		switch {
		case o == 'l': // the first, an ignored, and the last label
			l.x[i] = ints(c.rows, func(r int) int { return []int{0, -100, c.cols - 1, 7}[r%4] })
		case o == 'x' && c.at != nil:
			l.x[i] = values(c.d, c.rows*c.cols, c.at)
		}
	}
	return l
}

func (c ringed) both() launch {
	return c.launch(ops.OpCrossEntropyBoth, 3, "SSoxl").with(func(a *tensor.Args) { a.F[1] = ringedScale })
}

// want returns what both is to compute, by the two operations of the CPU: the loss, the logarithm of the sum, and the gradient.
func (c ringed) want(t *testing.T) []operand {
	t.Helper()
	host := cpu.New(1)
	defer host.Close()
	loss := c.launch(ops.OpCrossEntropy, 2, "SSxl").on(t, host)
	grad := c.launch(ops.OpCrossEntropyGrad, 1, "oxsl1")
	grad.x[1], grad.x[2] = c.both().x[3], loss[1]
	grad.x[4].set(0, ringedScale)
	scaled := values(loss[0].d, c.rows, func(r int) float64 { return ringedScale * loss[0].at(r) })
	return []operand{scaled, loss[1], grad.on(t, host)[0]}
}

// tolerance is for gradients that are differences of about 1/cols, which are so small in float16 that they have fewer bits.
func (c ringed) tolerance() tolerance {
	tol := tolerance{f32: 1e-5, f64: 1e-12, half: 0x1p-7, floor: 0.1 / float64(c.cols)}
	if c.d == tensor.Float16 {
		tol.floor = 0x1p-14
	}
	return tol
}

// ringedCases have a piece more than the least, two turns of the ring, and a row that is all of it; and not as many rows as blocks.
func ringedCases(t *testing.T) []ringed {
	cases := []ringed{{d: tensor.BFloat16, rows: 9, cols: 16392, smoothing: 0.1}, {d: tensor.Float32, rows: 3, cols: 8192}}
	if long(t) {
		cases = append(cases, ringed{d: tensor.Float16, rows: 6, cols: 50304}, ringed{d: tensor.Float16, rows: 7, cols: 16384, smoothing: 0.2},
			ringed{d: tensor.Float32, rows: 11, cols: 12300, smoothing: 0.1}, ringed{d: tensor.BFloat16, rows: 5, cols: 106496},
			ringed{d: tensor.Float32, cols: 8192})
	}
	return cases
}

// TestCrossEntropyRing compares with the CPU; with the loss alone, and with the gradient in place of the rows, which have the same bits. So
// have two runs, with threads in both orders.
func TestCrossEntropyRing(t *testing.T) {
	var before [][]operand
	for _, reverse := range []bool{false, true} {
		dev := hopper(t, emu.Config{Reverse: reverse})
		for i, c := range ringedCases(t) {
			got := c.both().on(t, dev)[:3]
			for j, want := range c.want(t) {
				bad := differs(want, got[j], c.tolerance())
				require.Negative(t, bad, "%v [%d,%d]: operand %d is wrong", c.d, c.rows, c.cols, j)
			}
			alone := c.launch(ops.OpCrossEntropy, 2, "SSxl")
			alone.x[2] = c.both().x[3]
			require.Equal(t, got[1], alone.on(t, dev)[1])
			over := c.both().with(func(a *tensor.Args) { a.X[2] = a.X[3] }).on(t, dev)
			require.Equal(t, []operand{got[0], got[1], got[2]}, []operand{over[0], over[1], over[3]})
			if before = append(before, got); reverse {
				require.Equal(t, before[i], got)
			}
		}
		require.Contains(t, cuda.Compiled(dev, "cross_entropy"), "cross_entropy_ring")
	}
}

func TestLongCrossEntropyRing(t *testing.T) { reliability.AsLong(t, TestCrossEntropyRing) }

// Rows of -Inf, with +Inf, with NaN, and with an element that is much larger than the others: that alone is the sum.
func TestCrossEntropyRingOfSpecialValues(t *testing.T) {
	dev := hopper(t, emu.Config{})
	const cols = 16392
	ends := []float64{math.Inf(-1), math.Inf(1), math.NaN(), math.Inf(-1), 1000, 2.3e38, -3e38}
	each(t, []tensor.DType{tensor.Float32, tensor.BFloat16}, func(t *testing.T, d tensor.DType) {
		c := ringed{d: d, rows: len(ends), cols: cols, at: func(i int) float64 {
			if r := i / cols; r == 0 || i%cols == cols-1 {
				return ends[r]
			}
			return float64(i % 3)
		}}
		got := c.both().on(t, dev)[:3]
		for j, want := range c.want(t) {
			require.Negative(t, differs(want, got[j], near), "operand %d is wrong", j)
		}
	})
}

// A label outside of the classes is an error of the next Sync, which names the first one or another, and its row has no gradient.
func TestLabelOutsideOfTheRing(t *testing.T) {
	dev := hopper(t, emu.Config{})
	tape := tensor.NewTape(dev)
	x := tape.Input(tensor.New(dev, tensor.Float32, 2, 8192))
	ops.CrossEntropy(x, tape.Input(tensor.FromSlice([]int64{1, 8192}, 2)), ops.CrossEntropyOptions{})
	require.ErrorContains(t, dev.Queue(0).Sync(), "cross_entropy: cuda:0: index 8192 is out of range")
	require.Equal(t, []string{"cross_entropy_ring"}, cuda.Compiled(dev, "cross_entropy"))
}

// Rows that are longer than the ring, short, not aligned, or of float64 are the other kernel's.
func TestCrossEntropyWithoutRing(t *testing.T) {
	dev := hopper(t, emu.Config{})
	for _, c := range []ringed{{d: tensor.BFloat16, cols: 13*8192 + 8}, {d: tensor.Float32, cols: 8188}, {d: tensor.BFloat16, cols: 16396},
		{d: tensor.Float64, cols: 8192}} {
		c.rows = 2
		got := c.both().on(t, dev)[:3]
		for j, want := range c.want(t) {
			require.Negative(t, differs(want, got[j], c.tolerance()), "%v [%d]: operand %d is wrong", c.d, c.cols, j)
		}
	}
	require.NotContains(t, cuda.Compiled(dev, "cross_entropy"), "cross_entropy_ring")
}
