package cuda_test

import (
	"fmt"
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

// convCase is the sizes of a convolution, of all channels.
type convCase struct{ n, in, h, w, out, groups, kh, kw, sh, sw, ph, pw, dh, dw int }

// few are those of the short runs: a size that is no multiple of 8, groups, strides, paddings, dilations, both tiles, two parts.
var few = []convCase{
	{2, 34, 7, 9, 48, 2, 3, 2, 3, 2, 1, 1, 1, 2},
	{1, 17, 6, 4, 70, 1, 1, 1, 1, 1, 0, 0, 1, 1},
	{3, 16, 17, 12, 16, 1, 2, 3, 1, 1, 1, 1, 1, 1},
}

var many = []convCase{
	{2, 40, 13, 11, 17, 1, 7, 7, 2, 2, 3, 3, 1, 1},
	{2, 48, 8, 8, 80, 2, 3, 3, 1, 1, 1, 1, 1, 1},
	{1, 130, 5, 4, 136, 1, 1, 1, 1, 1, 0, 0, 1, 1},
	{5, 16, 12, 12, 24, 1, 3, 3, 3, 3, 0, 1, 1, 1},
	{3, 51, 9, 10, 120, 3, 3, 3, 1, 1, 2, 2, 2, 2},
	{1, 16, 3, 5, 16, 1, 1, 2, 4, 4, 0, 0, 1, 1}, // stride over the kernel: some pixels of x are not read
	{2, 16, 2, 9, 16, 1, 2, 1, 3, 1, 0, 0, 1, 1},  // more classes of rows than rows
	{9, 32, 14, 14, 64, 1, 3, 3, 1, 1, 1, 1, 1, 1},
	{2, 8, 6, 6, 4, 1, 8, 8, 1, 1, 4, 4, 1, 1}, // few channels, the largest kernel
}

// TestConvolutionsChannelsLast: 16-bit convolutions and their gradients by conv_last.cu are those of the CPU, and have the same bits again,
// for another number of multiprocessors.
func TestConvolutionsChannelsLast(t *testing.T) {
	convolutionsChannelsLast(t, few, []tensor.DType{tensor.BFloat16}, true)
}

func TestLongConvolutionsChannelsLast(t *testing.T) {
	reliability.SkipUnlessLong(t)
	both := []tensor.DType{tensor.BFloat16, tensor.Float16}
	convolutionsChannelsLast(t, append(many, few...), both, true)
	convolutionsChannelsLast(t, append(many, few...), both, false)
}

func convolutionsChannelsLast(t *testing.T, cases []convCase, types []tensor.DType, reverse bool) {
	emu.Start(t, emu.Config{Reverse: reverse, Banks: true})
	dev := open(t, 0)
	cuda.ChannelsLast(dev)
	host := cpu.New(1)
	defer host.Close()
	for i, c := range cases {
		set := func(a *tensor.Args) {
			a.Dim = [6]int{c.n, c.in, c.h, c.w, c.out, c.groups}
			a.I = [8]int{c.kh, c.kw, c.sh, c.sw, c.ph, c.pw, c.dh, c.dw}
		}
		var a tensor.Args
		set(&a)
		o := ops.ConvOf(&a)
		each(t, types, func(t *testing.T, d tensor.DType) {
			r := rng(7)
			x, w := random(r, d, c.n*c.in*c.h*c.w), random(r, d, c.out*c.in/c.groups*c.kh*c.kw)
			b, g, xb := random(r, d, c.out), random(r, d, c.n*c.out*o.OutH*o.OutW), random(r, d, c.in)
			launches := []launch{
				{op: ops.OpConv2d, x: []operand{stale(d, g.n()).shifted(i % 2), x, w, b}},
				{op: ops.OpConvTranspose2d, x: []operand{stale(d, x.n()), g, w, xb}},
				{op: ops.OpConv2dGradW, x: []operand{w, x, g.shifted(i % 2)}, group: 1},
			}
			if long(t) {
				launches = append(launches, launch{op: ops.OpConv2d, x: []operand{stale(d, g.n()), x.shifted(1), w}},
					launch{op: ops.OpConv2dGradX, x: []operand{stale(d, x.n()).shifted(1), g, w}},
					launch{op: ops.OpConv2dGradW, x: []operand{stale(d, w.n()), x, g}})
			}
			for _, l := range launches {
				l.d, l.outs, l.set = d, 1, set
				if l.group == 1 {
					l.set = func(a *tensor.Args) { set(a); a.F[0] = 1 }
				}
				want, got := l.exactly(t, host), l.on(t, dev)
				requireRounded(t, want[0], got[0], fmt.Sprintf("%v %v of %+v", l.op, d, c))
				cuda.SetMultiprocessors(dev, 1+i)
				require.Equal(t, got[0].bytes, l.on(t, dev)[0].bytes, "%v %v of %+v again", l.op, d, c)
			}
		})
	}
	require.Empty(t, cuda.Compiled(dev, "conv_grad_"), "what computed it")
	require.NotEmpty(t, cuda.Compiled(dev, "conv_last_ends"))
}

// requireRounded wants each element to be a neighbour, among the numbers of 16 bits, of what it should be, apart from the order of sums.
func requireRounded(t *testing.T, want, got operand, what string) {
	t.Helper()
	most, eps := 0.0, map[tensor.DType]float64{tensor.BFloat16: 0x1p-7, tensor.Float16: 0x1p-10}[want.d]
	for i := range want.n() {
		most = max(most, math.Abs(want.at(i)))
	}
	for i := range want.n() {
		if v := want.at(i); !(math.Abs(v-got.at(i)) <= eps*math.Abs(v)+1e-5*most) {
			t.Fatalf("%s: element %d of %d is %v, want %v", what, i, want.n(), got.at(i), v)
		}
	}
}
