package cuda_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/cuda"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// asFloat64 is the same numbers in float64.
func (o operand) asFloat64() operand { return values(tensor.Float64, o.n(), o.at) }

// normGrad is a launch of all gradients of a norm. Operands are as in rowLaunch; what is not added to has NaNs before.
func normGrad(d tensor.DType, rows, cols int, centered bool, weight, bias rune, add bool) launch {
	op, outs, operands := ops.OpLayerNormGrad, 3, "o"+string(weight)+string(bias)+"xx"+string(weight)+"ss"
	if !centered {
		op, outs, operands = ops.OpRMSNormGrad, 2, "o"+string(weight)+"xx"+string(weight)+"s"
	}
	l := rowLaunch(op, d, rows, cols, uint64(rows+cols), outs, operands)
	l.x[0] = random(rng(1), d, rows*cols)
	for i := range outs {
		if l.x[i].n() == 0 {
			l.x[i].bytes = nil
		} else if !add {
			l.x[i] = stale(d, l.x[i].n())
		}
	}
	if weight == 'n' {
		l.x[outs+2].bytes = nil
	}
	return l.with(func(a *tensor.Args) { a.F[0], a.F[1], a.F[2] = truthOf(add), truthOf(add), truthOf(add) })
}

func truthOf(b bool) float64 { return float64(truth(b)) }

// single computes the gradients of a launch of normGrad one by one, in float64 on the CPU.
func (l launch) single(t *testing.T, host tensor.Device, add bool) []operand {
	wide := make([]operand, len(l.x))
	for i, o := range l.x {
		if o.bytes != nil {
			wide[i] = o.asFloat64()
		}
	}
	in := wide[l.outs:]
	x, g, w, stats := in[0], in[1], in[2], in[3:]
	run := func(op tensor.Op, n int, in ...operand) operand {
		return launch{op: op, d: tensor.Float64, outs: 1, x: append([]operand{blank(tensor.Float64, n)}, in...), set: l.set}.with(
			func(a *tensor.Args) { a.F = [8]float64{} }).on(t, host)[0]
	}
	steps := []tensor.Op{ops.OpLayerNormGradX, ops.OpLayerNormGradW}
	if l.op == ops.OpRMSNormGrad {
		steps = []tensor.Op{ops.OpRMSNormGradX, ops.OpRMSNormGradW}
	}
	cols := x.n() / stats[0].n()
	out := []operand{run(steps[0], x.n(), append([]operand{x, g, w}, stats...)...), run(steps[1], cols, append([]operand{x, g}, stats...)...)}
	if l.outs == 3 {
		out = append(out, run(tensor.OpColSum, cols, g))
	}
	for i, o := range out {
		if l.x[i].bytes == nil {
			out[i] = operand{}
			continue
		}
		for j := range o.n() {
			if v := o.at(j); add {
				o.set(j, v+wide[i].at(j))
			}
		}
	}
	return out
}

// TestNormGradients: all gradients of norms in one pass are those that the CPU computes in float64 one by one, and have the same bits in
// another run: where a warp has a row, where a block has one, and for longer rows; for widths and numbers of rows that fill no vector, no
// warp, no block and no part.
func TestNormGradients(t *testing.T) {
	shapes := [][2]int{{1, 1}, {300, 31}, {33, 33}, {70, 768}, {9, 1000}, {37, 1024}, {3, 1025}, {20, 1040}, {3, 4096}, {290, 104}, {41, 256},
		{9, 384}, {33, 512}, {9, 1536}}
	eps := map[tensor.DType]float64{tensor.Float32: 2e-6, tensor.Float64: 2e-14, tensor.BFloat16: 0x1p-8, tensor.Float16: 0x1p-10}
	bothOrders(t, func(t *testing.T, dev *cuda.Device) {
		host := cpu.New(1)
		defer host.Close()
		each(t, fewTypes(t), func(t *testing.T, d tensor.DType) {
			for i, s := range shapes {
				if !turn(t, d/2, i, 2) {
					continue
				}
				for j, c := range []struct {
					centered     bool
					weight, bias rune
				}{{true, 'w', 'w'}, {false, 'w', 'n'}, {true, 'n', 'w'}, {true, 'w', 'n'}} {
					turn := (i/2+j)%2 == 0
					if j != (i/2)%4 && !long(t) { // in the short form, a shape has one of them for each type
						continue
					}
					add := (i+j)%2 == 1
					l := normGrad(d, s[0], s[1], c.centered, c.weight, c.bias, add)
					if i%3 == 2 && i < 9 {
						l.x[l.outs].offset = 1 // not aligned to 16 bytes
					}
					want, got := l.single(t, host, add), l.on(t, dev)
					if turn && j/2 == i%2 || !long(t) && i%3 == 0 {
						require.Equal(t, got, l.on(t, dev), "another run")
					}
					for k, w := range want {
						requireClose(t, w, got[k], eps[d], "%v of %v, %v with weight %c and bias %c: gradient %d", l.op, s, d, c.weight, c.bias, k)
					}
				}
			}
		})
	})
}

// requireClose fails unless the elements differ by at most eps of the largest one.
func requireClose(t *testing.T, want, got operand, eps float64, what string, args ...any) {
	t.Helper()
	most := 0.0
	for i := range want.n() {
		most = max(most, math.Abs(want.at(i)))
	}
	for i := range want.n() {
		if !(math.Abs(want.at(i)-got.at(i)) <= eps*most) {
			t.Fatalf(what+": element %d of %d is %v, want %v", append(args, i, want.n(), got.at(i), want.at(i))...)
		}
	}
}
