package cuda_test

import (
	"math"
	"testing"

	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// Codes and scales are those of the definition: with one scale, one for each row, or one for each column; as they are, transposed, or both;
// for all shapes, and where x is not aligned. In the short form, formats and forms take turns.
func TestQuantize8(t *testing.T) {
	dev := device(t)
	each(t, []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float16}, func(t *testing.T, d tensor.DType) {
		for _, perLine := range []bool{false, true} { // nothing is nothing's codes
			quantized{turned: true, perLine: perLine}.agrees(t, dev, blank(d, 0), 0, 32)
			quantized{turned: true, perLine: perLine}.agrees(t, dev, blank(d, 0), 16, 0)
		}
		for i, shape := range [][3]int{{16, 16, 0}, {80, 144, 1}, {192, 1040, 0}, {3, 8224, 0}, {2, 33024, 1}, {5, 48, 3}, {32, 4112, 0}} {
			rows, cols, r := shape[0], shape[1], rng(3)
			x := values(d, rows*cols, func(int) float64 { return math.Ldexp(r.NormFloat64(), r.IntN(16)-8) })
			x.set(5, 0)
			if cols == 144 {
				x.set(cols+2, math.NaN())
				x.set(2*cols+1, math.Inf(-1))
			}
			for c := range cols {
				x.set((rows-1)*cols+c, 0) // a scale from the smallest magnitude
			}
			for k, q := range []quantized{{plain: true}, {plain: true, perLine: true}, {turned: true}, {turned: true, perLine: true},
				{plain: true, turned: true}} {
				for q.format = kernel.E4M3; q.format <= kernel.E5M2; q.format++ {
					if (!q.turned || rows%16 == 0) && turn(t, d, i+k+2*int(q.format), 6) {
						q.agrees(t, dev, x.shifted(shape[2]), rows, cols)
					}
				}
			}
		}
	})
}

func TestLongQuantize8(t *testing.T) { reliability.AsLong(t, TestQuantize8) }

// quantized is what is asked of OpQuantize8.
type quantized struct {
	plain, turned, perLine bool
	format                 kernel.Float8
}

func (q quantized) agrees(t *testing.T, dev tensor.Device, x operand, rows, cols int) {
	t.Helper()
	line := func(r, c int) int { // whose scale element (r, c) has
		switch {
		case !q.perLine:
			return 0
		case q.turned:
			return c
		}
		return r
	}
	amax := map[int]float32{}
	for i := range x.n() {
		k, v := line(i/cols, i%cols), float32(math.Abs(x.at(i)))
		if most, ok := amax[k]; !ok || v > most || v != v {
			amax[k] = v
		}
	}
	l := launch{op: ops.OpQuantize8, d: x.d, outs: 3, x: []operand{{d: tensor.Uint8}, {d: tensor.Uint8}, stale(tensor.Float32, len(amax)), x},
		set: func(a *tensor.Args) {
			a.Dim[0], a.Dim[1], a.I[0] = rows, cols, int(q.format)
			if q.perLine {
				a.I[1] = 1
			}
		}}
	for i, want := range []bool{q.plain, q.turned} {
		if want {
			l.x[i] = blank(tensor.Uint8, x.n())
		}
	}
	out := l.on(t, dev)
	for i := range x.n() {
		r, c := i/cols, i%cols
		scale := q.format.Max() / max(amax[line(r, c)], 1e-12)
		want := q.format.Code(float32(x.at(i)) * scale)
		check := func(o operand, at int) {
			if got := uint8(o.at(at)); got != want && (got&0x7f != 0x7f || want&0x7f != 0x7f) {
				t.Fatalf("%v [%d,%d] %+v: element %d, %v times %v, is %#x, want %#x", x.d, rows, cols, q, i, x.at(i), scale, got, want)
			}
		}
		if q.plain {
			check(out[0], i)
		}
		if q.turned {
			check(out[1], c*rows+r)
		}
		if got := float32(out[2].at(line(r, c))); got != 1/scale && got == got {
			t.Fatalf("%v [%d,%d] %+v: inverse scale %d is %v, want %v", x.d, rows, cols, q, line(r, c), got, 1/scale)
		}
	}
}
