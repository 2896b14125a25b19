package tensor_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/ops"
	"github.com/ringo-ml/ringo/tensor/tensortest"
)

// newGradRun makes a run in float64 that fails if the case does not record op.
func newGradRun(t *testing.T, dev tensor.Device, op tensor.Op, c tensortest.GradCase, dims [][]int, key uint64) *tensortest.GradRun {
	g := tensortest.NewGradRun(t, dev, tensor.Float64, c, dims, key)
	tensor.Poison(g.Tape())
	g.Recorded = func(tape *tensor.Tape) { require.True(t, tensor.Recorded(tape, op), "the case does not record %v", op) }
	return g
}

// TestGradients checks each rule against finite differences, and all kinds of inputs against plain ones: of two sizes that have elements,
// in the long form of four.
func TestGradients(t *testing.T) {
	dev := cpu.New(1)
	defer dev.Close()
	for op, cases := range tensortest.GradCases() {
		for _, c := range cases {
			t.Run(op.String()+"/"+c.Name, func(t *testing.T) {
				r, whole := rand.New(rand.NewPCG(uint64(op), 5)), 0
				for k := 0; k < 4 && (whole < 1 || reliability.Long(t)); k++ {
					dims := c.Shapes(r)
					if !slices.ContainsFunc(dims, func(d []int) bool { return slices.Contains(d, 0) }) {
						whole++
					}
					g := newGradRun(t, dev, op, c, dims, uint64(k))
					checkGradients(t, g, c.Alone)
				}
			})
		}
	}
}

func TestLongGradients(t *testing.T) { reliability.AsLong(t, TestGradients) }

// checkGradients compares gradients with finite differences. In debug mode there are none, which would run the same kernels again and
// again: each kernel is compared with its reference there, and what is freed becomes NaN.
func checkGradients(t *testing.T, g *tensortest.GradRun, alone bool) {
	msg := fmt.Sprint(g.Dims)
	_, plain := g.Grads(tensortest.How{})
	if tensor.Debugging() {
		require.False(t, slices.ContainsFunc(slices.Concat(plain...), math.IsNaN), msg)
	} else {
		tensortest.RequireGrads(t, g.Numeric(plain), plain, 1e-6, msg)
	}
	same := func(want [][]float64, h tensortest.How) {
		_, got := g.Grads(h)
		tensortest.RequireGrads(t, want, got, 1e-13, msg+" "+h.Name)
	}
	for _, h := range tensortest.Ways() {
		if !h.Scope || !alone {
			same(plain, h)
		}
	}
	if len(g.Dims) == 1 {
		return
	}
	g.Recorded = nil
	for i := range g.Dims {
		want := append([][]float64(nil), plain...)
		want[i] = nil
		same(want, tensortest.How{Name: fmt.Sprintf("input %d frozen", i), Frozen: i + 1})
		same(want, tensortest.How{Name: fmt.Sprintf("input %d frozen, views", i), Frozen: i + 1, Inner: true, View: true})
	}
}

// TestEveryRuleHasACase fails if an operation with a gradient rule is not in the table, or if an operation has neither a rule nor Const.
func TestEveryRuleHasACase(t *testing.T) {
	cases := tensortest.GradCases()
	for _, op := range ops.All() {
		s := tensor.SpecOf(op)
		assert.NotEmpty(t, s.Name, "operation %d has no entry in rules", op)
		assert.Equal(t, s.VJP == nil, s.Const, "%v: either a VJP or Const", op)
		assert.Equal(t, s.VJP != nil, len(cases[op]) > 0, "%v: gradient cases", op)
	}
}
