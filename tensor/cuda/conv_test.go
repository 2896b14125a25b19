package cuda_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/cuda"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// Convolutions as products, and their gradients, are those of the CPU: with groups, strides, paddings and dilations, for sizes that fill no
// tile, and for more than one tile and part.
func TestConvolutions(t *testing.T) { convolutions(t, fewTypes(t), bothOrders) }

// TestLongConvolutionsDescending has all types with threads in descending order. TestLongAscending has them in ascending order.
func TestLongConvolutionsDescending(t *testing.T) {
	reliability.SkipUnlessLong(t)
	convolutions(t, floatTypes, func(t *testing.T, fn func(t *testing.T, dev *cuda.Device)) {
		emu.Start(t, emu.Config{Reverse: true})
		fn(t, open(t, 0))
	})
}

func convolutions(t *testing.T, types []tensor.DType, on func(t *testing.T, fn func(t *testing.T, dev *cuda.Device))) {
	for i, c := range []struct{ n, in, h, w, out, groups, kh, kw, sh, sw, ph, pw, dh, dw int }{
		{2, 1, 7, 8, 3, 1, 3, 3, 1, 1, 1, 1, 1, 1},
		{3, 6, 13, 11, 10, 2, 3, 3, 2, 2, 1, 1, 1, 1},
		{2, 5, 17, 19, 70, 1, 5, 3, 3, 2, 2, 0, 1, 2},
		{1, 130, 5, 4, 6, 1, 1, 1, 1, 1, 0, 0, 1, 1},
		{5, 9, 12, 12, 4, 1, 2, 3, 1, 3, 0, 1, 2, 1},
		{1, 2, 4, 4, 2, 1, 1, 2, 2, 2, 0, 0, 1, 1},
		{9, 8, 10, 10, 12, 4, 3, 3, 1, 1, 2, 2, 2, 2},
		{2, 4, 3, 40, 6, 2, 2, 33, 1, 2, 0, 1, 1, 1}, // too wide for that
	} {
		set := func(a *tensor.Args) {
			a.Dim = [6]int{c.n, c.in, c.h, c.w, c.out, c.groups}
			a.I = [8]int{c.kh, c.kw, c.sh, c.sw, c.ph, c.pw, c.dh, c.dw}
		}
		var a tensor.Args
		set(&a)
		o := ops.ConvOf(&a)
		on(t, func(t *testing.T, dev *cuda.Device) {
			each(t, types, func(t *testing.T, d tensor.DType) {
				if !turn(t, d/2, i, 2) { // of the two types
					return
				}
				r := rng(7)
				x, w := random(r, d, c.n*c.in*c.h*c.w), random(r, d, c.out*c.in/c.groups*c.kh*c.kw)
				b, g, xb := random(r, d, c.out), random(r, d, c.n*c.out*o.OutH*o.OutW), random(r, d, c.in)
				host := cpu.New(1)
				defer host.Close()
				for k, l := range []launch{
					{op: ops.OpConv2d, x: []operand{stale(d, g.n()), x, w, b}},
					{op: ops.OpConv2d, x: []operand{stale(d, g.n()), x, w}},
					{op: ops.OpConv2dGradX, x: []operand{stale(d, x.n()), g, w}},
					{op: ops.OpConvTranspose2d, x: []operand{stale(d, x.n()), g, w, xb}},
					{op: ops.OpConv2dGradW, x: []operand{stale(d, w.n()), x, g}},
					{op: ops.OpConv2dGradW, x: []operand{w, x, g}, group: 1},
				} {
					if l.d, l.outs, l.set = d, 1, set; !long(t) && (i/2+k)%2 == 1 && k != 3 {
						continue
					}
					if l.group == 1 {
						l.set = func(a *tensor.Args) { set(a); a.F[0] = 1 }
					}
					want, got := l.exactly(t, host), l.on(t, dev)
					eps := map[tensor.DType]float64{tensor.Float32: 2e-6, tensor.Float64: 1e-14, tensor.BFloat16: 0x1p-8,
						tensor.Float16: 0x1p-11}[d]
					requireClose(t, want[0], got[0], eps, "%v %v of %+v", l.op, d, c)
				}
			})
			require.Equal(t, c.kw <= 32, len(cuda.Compiled(dev, "conv_grad_w_ends")) > 0, "what computed it")
		})
	}
}
