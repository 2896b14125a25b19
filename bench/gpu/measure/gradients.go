package measure

import (
	"errors"
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// normGradient measures all gradients of a LayerNorm of r rows in one pass: x and the upstream gradient are read, that of x is written.
func (m *meter) normGradient(dtype tensor.DType, r, c int) error {
	if m.dev.Kernels()[ops.OpLayerNormGrad][dtype] == nil {
		return nil // a host has no such pass
	}
	x, g, w, b := m.random(1, dtype, r, c), m.random(2, dtype, r, c), m.random(3, dtype, c), m.random(4, dtype, c)
	mean, rstd := tensor.New(m.dev, tensor.Float32, r), tensor.New(m.dev, tensor.Float32, r)
	d, dw, db := tensor.New(m.dev, dtype, r, c), tensor.New(m.dev, dtype, c), tensor.New(m.dev, dtype, c)
	dims := [6]int{r, c}
	backward := func() {
		m.launch(&tensor.Args{Op: ops.OpLayerNormGrad, DType: dtype, Outs: 3, Dim: dims}, d, dw, db, x, g, w, mean, rstd)
	}
	check := func() error {
		forward := &tensor.Args{Op: ops.OpLayerNorm, DType: dtype, Outs: 3, Dim: dims}
		forward.F[0] = 1e-5
		m.launch(forward, d, mean, rstd, x, w, b)
		backward()
		return checkNormGradient(r, c, x, g, w, d, dw, db)
	}
	moved := 3e-9 * float64(r*c*dtype.Size())
	return m.add(fmt.Sprintf("%v layernorm gradient %dx%d", dtype, r, c), "GB/s", moved, check, backward)
}

// checkNormGradient checks some rows of d, and some elements of dw and db, which are sums over all rows.
func checkNormGradient(r, c int, x, g, w, d, dw, db tensor.Tensor) error {
	xs, gs, ws := tensor.Floats(x), tensor.Floats(g), tensor.Floats(w)
	deviations := make([]float64, r)
	for i := range deviations { // xs becomes normal
		deviations[i] = normalize(xs[i*c : (i+1)*c])
	}
	err := samples(r*c, c, rounded(x.DType()), func(i int) (got, want []float64) {
		want = make([]float64, c)
		mean, slope := 0., 0.
		for j := range want {
			want[j] = gs[i+j] * ws[j]
			mean, slope = mean+want[j]/float64(c), slope+want[j]*xs[i+j]/float64(c)
		}
		for j := range want {
			want[j] = (want[j] - mean - slope*xs[i+j]) / deviations[i/c]
		}
		return part(d, i, c), want
	})
	for _, j := range []int{0, c / 2, c - 1} {
		err = errors.Join(err,
			dot(x.DType(), part(dw, j, 1)[0], r, func(i int) (float64, float64) { return gs[i*c+j], xs[i*c+j] }),
			dot(x.DType(), part(db, j, 1)[0], r, func(i int) (float64, float64) { return gs[i*c+j], 1 }))
	}
	return err
}

// normalize subtracts the mean of a row, divides by its deviation, and returns that.
func normalize(x []float64) (deviation float64) {
	mean, square := 0., 0.
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		square += (v - mean) * (v - mean) / float64(len(x))
	}
	deviation = math.Sqrt(square + 1e-5)
	for i, v := range x {
		x[i] = (v - mean) / deviation
	}
	return deviation
}

// crossEntropy measures the losses of r rows of logits and their gradient in one pass: the logits are read, the gradient is written.
func (m *meter) crossEntropy(dtype tensor.DType, r, c int) error {
	if m.dev.Kernels()[ops.OpCrossEntropyBoth][dtype] == nil {
		return nil
	}
	x, labels := m.random(1, dtype, r, c), m.whole(2, uint64(c), r)
	loss, lse, d := tensor.New(m.dev, tensor.Float32, r), tensor.New(m.dev, tensor.Float32, r), tensor.New(m.dev, dtype, r, c)
	a := &tensor.Args{Op: ops.OpCrossEntropyBoth, DType: dtype, Outs: 3, Dim: [6]int{r, c}, I: [8]int{-100}}
	a.F[1] = 1 / float64(r)
	both := func() { m.launch(a, loss, lse, d, x, labels) }
	check := func() error {
		both()
		return samples(r, 1, bound{own: 1. / 128}, func(i int) (got, want []float64) {
			label, logit := int(part(labels, i, 1)[0]), 0.
			want = part(x, i*c, c)
			logit = want[label]
			sum := 0.
			for _, v := range want {
				sum += math.Exp(v)
			}
			for j, v := range want {
				want[j] = math.Exp(v) / sum / float64(r)
			}
			want[label] -= 1 / float64(r)
			return append(part(d, i*c, c), part(loss, i, 1)...), append(want, (math.Log(sum)-logit)/float64(r))
		})
	}
	return m.add(fmt.Sprintf("%v cross-entropy and gradient %dx%d", dtype, r, c), "GB/s", 2e-9*float64(r*c*dtype.Size()), check, both)
}
