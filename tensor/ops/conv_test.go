package ops_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/ops"
	"github.com/ringo-ml/ringo/tensor/tensortest"
)

// naiveConv computes the convolution by its definition, and the gradients of x and w from g, the output's gradient.
func naiveConv(x, w, g []float64, c ops.Conv) (out, dx, dw []float64) {
	out, dx, dw = make([]float64, len(g)), make([]float64, len(x)), make([]float64, len(w))
	in, each := c.In/c.Groups, c.Out/c.Groups
	at := 0
	for n := range c.N {
		for o := range c.Out {
			for y := range c.OutH {
				for z := range c.OutW {
					for k := range in * c.KH * c.KW {
						i, j := k/c.KW%c.KH, k%c.KW
						row, col := y*c.StrideH-c.PadH+i*c.DilationH, z*c.StrideW-c.PadW+j*c.DilationW
						if row < 0 || row >= c.H || col < 0 || col >= c.W {
							continue
						}
						p, q := ((n*c.In+o/each*in+k/(c.KH*c.KW))*c.H+row)*c.W+col, o*in*c.KH*c.KW+k
						out[at] += x[p] * w[q]
						dx[p] += g[at] * w[q]
						dw[q] += g[at] * x[p]
					}
					at++
				}
			}
		}
	}
	return out, dx, dw
}

// Images that are cut into several tiles, blocks of channels and parts of the batch have the outputs and gradients of plain loops, with the
// same bits for any number of threads. The gradient of the weights is added to the old one.
func TestConvCut(t *testing.T) {
	for _, c := range []ops.Conv{
		{N: 2, In: 64, H: 5, W: 4, Out: 70, Groups: 1, KH: 3, KW: 3, StrideH: 1, StrideW: 1, PadH: 1, PadW: 1, DilationH: 1, DilationW: 1,
			OutH: 5, OutW: 4},
		{N: 1, In: 40, H: 34, W: 36, Out: 2, Groups: 1, KH: 3, KW: 3, StrideH: 1, StrideW: 1, PadH: 1, PadW: 0, DilationH: 1, DilationW: 1,
			OutH: 34, OutW: 34},
		{N: 19, In: 6, H: 9, W: 33, Out: 4, Groups: 2, KH: 3, KW: 2, StrideH: 2, StrideW: 1, PadH: 2, PadW: 3, DilationH: 1, DilationW: 2,
			OutH: 6, OutW: 37},
		{N: 3, In: 5, H: 7, W: 8, Out: 6, Groups: 1, KH: 1, KW: 1, StrideH: 1, StrideW: 1, DilationH: 1, DilationW: 1, OutH: 7, OutW: 8},
		{N: 2, In: 5, H: 7, W: 8, Out: 6, Groups: 1, KH: 1, KW: 1, StrideH: 2, StrideW: 3, DilationH: 1, DilationW: 1, OutH: 4, OutW: 3},
		{N: 2, In: 3, H: 4, W: 5, Out: 2, Groups: 1, KH: 1, KW: 1, StrideH: 1, StrideW: 1, PadH: 1, PadW: 2, DilationH: 1, DilationW: 1,
			OutH: 6, OutW: 9},
	} {
		o := ops.Conv2dOptions{Stride: [2]int{c.StrideH, c.StrideW}, Padding: [2]int{c.PadH, c.PadW},
			Dilation: [2]int{c.DilationH, c.DilationW}, Groups: c.Groups}
		var bits [3][]float64
		for _, threads := range []int{1, 2, 3} {
			dev := cpu.New(threads)
			dev.Queue(0).(*cpu.Queue).SetGrain(1)
			x, w := tensor.NewParam(tensor.UniformInit(-1, 1), c.N, c.In, c.H, c.W),
				tensor.NewParam(tensor.UniformInit(-1, 1), c.Out, c.In/c.Groups, c.KH, c.KW)
			x.SetName("x")
			x.Make(dev, tensor.Float64, 1)
			w.Make(dev, tensor.Float64, 1)
			g := tensor.New(dev, tensor.Float64, c.N, c.Out, c.OutH, c.OutW)
			tensor.UniformInit(-1, 1).Fill(g, 3, 0)
			tape := tensor.NewTape(dev)
			var y []float64
			for range 2 {
				out := ops.Conv2d(tape.Use(x), tape.Use(w), tensor.Tensor{}, o)
				y = tensor.Floats(out)
				tape.Backward(out.Mul(g).Sum(), tensor.More())
				tape.Reset()
			}
			out, dx, dw := naiveConv(tensor.Floats(x.Value), tensor.Floats(w.Value), tensor.Floats(g), c)
			got := [3][]float64{y, tensor.Floats(x.Grad), tensor.Floats(w.Grad)}
			for i, want := range [][]float64{out, dx, dw} {
				for k := range want {
					want[k] *= float64(min(1+i, 2)) // gradients of two steps
				}
				tensortest.RequireClose(t, want, got[i], 1e-12, fmt.Sprintf("%+v: %s", c, []string{"output", "gradient of x", "gradient of w"}[i]))
			}
			if threads == 1 {
				bits = got
			}
			require.Equal(t, bits, got, "%d threads", threads)
			dev.Close()
		}
	}
}

// Wrong shapes and options are failures that name them.
func TestPictureErrors(t *testing.T) {
	tape := tensor.NewTape(cpu.New(1))
	x := tape.Input(tensor.New(tape.Device(), tensor.Float32, 2, 4, 5, 6))
	w := tape.Input(tensor.New(tape.Device(), tensor.Float32, 6, 2, 3, 3))
	conv := func(o ops.Conv2dOptions) func() {
		return func() { ops.Conv2d(x, w, tensor.Tensor{}, o) }
	}
	double := func(dims ...int) tensor.Tensor { return tape.Input(tensor.New(tape.Device(), tensor.Float64, dims...)) }
	for want, f := range map[string]func(){
		"dimension 1 of the input is 4 in 1 groups, dimension 1 of the weight is 2": conv(ops.Conv2dOptions{}),
		"4 channels in and 6 out do not divide into 4 groups":                       conv(ops.Conv2dOptions{Groups: 4}),
		"a kernel of 3x3 does not fit into 5x6": conv(ops.Conv2dOptions{Groups: 2,
			Dilation: [2]int{3, 1}}),
		"no option may be negative": conv(ops.Conv2dOptions{Groups: 2,
			Padding: [2]int{-1, 0}}),
		"conv2d float32[2,4,30], float32[6,2,3,3]: wants an input [batch, in, h, w]": func() {
			ops.Conv2d(x.Reshape(2, 4, 30), w, tensor.Tensor{}, ops.Conv2dOptions{})
		},
		"conv2d float32[2,4,5,6], float32[6,2,3,3], float32[2,4,5,6]: wants": func() { ops.Conv2d(x, w, x, ops.Conv2dOptions{Groups: 2}) },
		"conv2d float32[2,4,5,6], float64[6,2,3,3]": func() {
			ops.Conv2d(x, double(6, 2, 3, 3), tensor.Tensor{}, ops.Conv2dOptions{Groups: 2})
		},
		"conv2d float32[2,4,5,6], float64[6]": func() {
			ops.Conv2d(x, w, double(6), ops.Conv2dOptions{Groups: 2})
		},
		"no option may be negative: {Stride:[0 0] Padding:[0 0] Dilation:[0 0] Groups:-1}": conv(ops.Conv2dOptions{Groups: -1}),
		"that the window fits into": func() { ops.MaxPool2d(x, ops.Pool2dOptions{}) },
		"padding of at most half of it": func() {
			ops.AvgPool2d(x, ops.Pool2dOptions{Kernel: [2]int{3, 3}, Padding: [2]int{2, 0}})
		},
		"max_pool2d float32[2,4,5,6]: wants": func() {
			ops.MaxPool2d(x, ops.Pool2dOptions{Kernel: [2]int{6, 1}})
		},
		"wants the sums of ChannelSums": func() {
			ops.BatchNorm(x, x, tensor.Tensor{}, tensor.Tensor{}, 1)
		},
		"wants a weight and a bias [channels]": func() {
			ops.BatchNorm(x, ops.ChannelSums(x), tape.Input(tensor.New(tape.Device(), tensor.Float32, 3)), tensor.Tensor{}, 1)
		},
	} {
		assert.ErrorContains(t, tensor.Try(f), want)
	}
}

// Of equal pixels the first one is taken, and gets the gradient. NaN is larger than all numbers.
func TestMaxPoolTakesTheFirst(t *testing.T) {
	dev, nan := cpu.New(1), math.NaN()
	defer dev.Close()
	for _, c := range []struct{ x, grad []float64 }{
		{[]float64{2, 2, 2, 2}, []float64{1, 0, 0, 0}},
		{[]float64{1, 3, 3, 2}, []float64{0, 1, 0, 0}},
		{[]float64{1, nan, 3, nan}, []float64{0, 1, 0, 0}},
		{[]float64{nan, 9, nan, 9}, []float64{1, 0, 0, 0}},
	} {
		x := tensor.NewParam(tensor.Constant(0), 1, 1, 2, 2)
		x.SetName("x")
		x.Make(dev, tensor.Float64, 1)
		tape := tensor.NewTape(dev)
		tensor.Copy(x.Value, tensor.FromSlice(c.x, 1, 1, 2, 2))
		y := ops.MaxPool2d(tape.Use(x), ops.Pool2dOptions{Kernel: [2]int{2, 2}})
		want := c.x[slices.Index(c.grad, 1)]
		require.Equal(t, math.IsNaN(want), math.IsNaN(y.Item()), c)
		if !math.IsNaN(want) {
			require.Equal(t, want, y.Item(), c)
		}
		sum := y.Sum()
		tape.BackwardFrom([]tensor.Tensor{sum}, []tensor.Tensor{tape.Input(tensor.FromSlice([]float64{1}))})
		require.Equal(t, c.grad, tensor.Floats(x.Grad), c)
	}
}
