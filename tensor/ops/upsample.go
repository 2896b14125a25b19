package ops

import (
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/typing"
)

// The operations of Upsample2d and of its gradient.
var OpUpsample2d, OpUpsample2dGrad tensor.Op

func init() {
	OpUpsample2d = register(tensor.OpSpec{Name: "upsample2d", Class: typing.Linear, Rows: tensor.RowsFirst, VJP: upsample2dVJP},
		upsampleKernel[float32](), upsampleKernel[float64]())
	OpUpsample2dGrad = register(tensor.OpSpec{Name: "upsample2d_grad", Const: true}, upsampleGradKernel[float32](),
		upsampleGradKernel[float64]())
}

// Interpolation says how pixels between others are made.
type Interpolation int

// The interpolations are PyTorch's modes with align_corners=False.
const (
	Nearest  Interpolation = iota // the pixel at the same share of the picture, rounded down
	Bilinear                      // of the four pixels around
)

// Upsample2d scales x [.., height, width] to height×width pixels, more or fewer, as torch.nn.functional.interpolate.
func Upsample2d(x tensor.Tensor, height, width int, mode Interpolation) tensor.Tensor {
	t := OpUpsample2d.Tape(x)
	x = t.Packed(x)
	d, rank := dimsOf(x)
	if rank < 3 || min(height, width) < 1 || min(d[max(rank-2, 0)], d[max(rank-1, 0)]) < 1 {
		OpUpsample2d.Fail([]tensor.Tensor{x}, "wants [.., h, w], and pixels of both sizes: %dx%d", height, width)
	}
	d[rank-2], d[rank-1] = height, width
	out := t.New(x.DType(), d[:rank]...)
	if out.Len() > 0 {
		upsample(t.Args(OpUpsample2d, x.DType()).Out(out).In(x), x, out, mode)
		t.Launch()
	}
	if n := t.Record(OpUpsample2d, out, x); n != nil {
		n.I[0] = int(mode)
	}
	return out
}

func upsample2dVJP(t *tensor.Tape, n *tensor.Node, _ uint8) {
	d := t.NewLike(n.In(0))
	if d.Len() > 0 {
		upsample(t.Args(OpUpsample2dGrad, d.DType()).Out(d).In(n.Grad()), d, n.Grad(), Interpolation(n.I[0]))
		t.Launch()
	}
	t.AddGrad(n, 0, d)
}

// upsample adds the sizes of planes: small ones of x, and large ones of y.
func upsample(a *tensor.Args, x, y tensor.Tensor, mode Interpolation) {
	h, w := x.Dim(-2), x.Dim(-1)
	a.Dim = [tensor.MaxNDim]int{x.Len() / (h * w), h, w, y.Dim(-2), y.Dim(-1)}
	a.I[0] = int(mode)
}

// between returns the pixels of n from which pixel i of out is made: 1−weight of the first, and weight of the second.
func (mode Interpolation) between(i, n, out int) (first, second int, weight float64) {
	if mode == Nearest {
		return i * n / out, i * n / out, 0
	}
	at := max((float64(i)+0.5)*float64(n)/float64(out)-0.5, 0)
	first = int(at)
	return first, min(first+1, n-1), at - float64(first)
}

// fourPixels makes a kernel that calls f for each pixel of the large planes, with the four pixels of the small one and their weights.
func fourPixels(f func(a *tensor.Args, plane, large int, small [4]int, weights [4]float64)) tensor.Kernel {
	cost := func(a *tensor.Args) int { return 4 * (a.Dim[1]*a.Dim[2] + a.Dim[3]*a.Dim[4]) }
	return cpu.Parallel(dim0, cost, func(a *tensor.Args, lo, hi int) {
		mode, h, w, height, width := Interpolation(a.I[0]), a.Dim[1], a.Dim[2], a.Dim[3], a.Dim[4]
		for plane := lo; plane < hi; plane++ {
			for i := range height {
				r0, r1, down := mode.between(i, h, height)
				for j := range width {
					c0, c1, right := mode.between(j, w, width)
					f(a, plane*h*w, (plane*height+i)*width+j, [4]int{r0*w + c0, r0*w + c1, r1*w + c0, r1*w + c1},
						[4]float64{(1 - down) * (1 - right), (1 - down) * right, down * (1 - right), down * right})
				}
			}
		}
	})
}

func upsampleKernel[T float]() tensor.Kernel {
	return fourPixels(func(a *tensor.Args, plane, large int, small [4]int, weights [4]float64) {
		in, sum := tensor.Operand[T](a, 1)[plane:], 0.
		for k, at := range small {
			if weights[k] != 0 { // an infinite pixel that has no weight has no part
				sum += weights[k] * float64(in[at])
			}
		}
		tensor.Operand[T](a, 0)[large] = T(sum)
	})
}

func upsampleGradKernel[T float]() tensor.Kernel {
	add := fourPixels(func(a *tensor.Args, plane, large int, small [4]int, weights [4]float64) {
		d, g := tensor.Operand[T](a, 0)[plane:], float64(tensor.Operand[T](a, 1)[large])
		for k, at := range small {
			if weights[k] != 0 {
				d[at] += T(weights[k] * g)
			}
		}
	})
	return func(q tensor.Queue, a *tensor.Args) {
		clear(tensor.Operand[T](a, 0))
		add(q, a)
	}
}
