package cuda_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/cuda"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// counted is a device that counts the launches of each operation. It may lack some.
type counted struct {
	*cuda.Device
	table    tensor.Table
	launches map[tensor.Op]int
}

func newCounted(dev *cuda.Device, without ...tensor.Op) *counted {
	c := &counted{Device: dev, launches: map[tensor.Op]int{}}
	for op, row := range dev.Kernels() {
		for d, k := range row {
			if k != nil {
				c.table[op][d] = func(q tensor.Queue, a *tensor.Args) {
					c.launches[a.Op]++
					k(q, a)
				}
			}
		}
	}
	for _, op := range without {
		c.table[op] = [tensor.NumDTypes]tensor.Kernel{}
	}
	return c
}

func (c *counted) Kernels() *tensor.Table { return &c.table }

// qkvLayers are layers of queries, keys and values. Attention follows, or their product, whose gradients are not in one memory.
type qkvLayers struct {
	Q, K, V *nn.Linear
	q, kv   int // heads, of 8 features
	apart   bool
	product bool
	bias    bool
	freeze  func(h *qkvLayers)
	passes  int
}

func (h qkvLayers) String() string {
	return fmt.Sprintf("%d heads, %d of keys, apart %v, product %v, bias %v, frozen %v, %d passes", h.q, h.kv, h.apart, h.product, h.bias,
		h.freeze != nil, h.passes)
}

// values returns the output and all gradients for rows of 9 features.
func (h qkvLayers) values(t *testing.T, dev tensor.Device, d tensor.DType) (all [][]float64) {
	const in, batch, time, head = 9, 2, 5, 8
	layer := func(heads int) *nn.Linear {
		l := nn.NewLinear(in, heads*head)
		if !h.bias {
			l.B = nil
		}
		return l
	}
	h.Q, h.K, h.V = layer(h.q), layer(h.kv), layer(h.kv)
	if !h.apart {
		nn.Together(h.Q, h.K, h.V)
	}
	params := nn.Init(&h, dev, d, 4)
	if h.freeze != nil {
		h.freeze(&h)
	}
	x := tensor.NewParam(tensor.UniformInit(-1, 1), batch*time, in)
	x.Make(dev, d, 6)
	tape := tensor.NewTape(dev)
	defer tape.Close()
	for pass := range h.passes {
		q, k, v := nn.QKV(tape.Use(x), h.Q, h.K, h.V)
		var y tensor.Tensor
		if h.product {
			y = q.Mul(k).Mul(v)
		} else {
			q, k, v = q.Reshape(batch, time, h.q*head), k.Reshape(batch, time, h.kv*head), v.Reshape(batch, time, h.kv*head)
			y = ops.CrossAttention(q, k, v, head, ops.AttentionOptions{Causal: true})
		}
		tape.Keep(y)
		var more []tensor.BackwardOption
		if pass+1 < h.passes {
			more = append(more, tensor.More())
		}
		tape.Backward(y.Mul(y).Sum(), more...)
		all = append(all, tensor.Floats(y))
		tape.Reset()
	}
	for _, p := range append(params, x) {
		if !p.Frozen() {
			all = append(all, tensor.Floats(p.Grad))
		}
	}
	return all
}

// Queries, keys and values are one product if their layers are alike, and so are the gradients of their weights if those of the results lie
// in one memory. Otherwise there are as many as there are layers, with the same results.
func TestLinears(t *testing.T) {
	dev := device(t)
	host := cpu.New(1)
	defer host.Close()
	freezeQ := func(h *qkvLayers) { h.Q.W.Freeze() }
	freezeAll := func(h *qkvLayers) {
		for _, p := range []*tensor.Param{h.Q.W, h.K.W, h.V.W, h.Q.B, h.K.B, h.V.B} {
			p.Freeze()
		}
	}
	for i, c := range []struct {
		qkvLayers
		linears, gradW, plain int // launches of OpLinears, of OpLinearGradW and of OpMatMul, in each pass
	}{
		{qkvLayers{q: 2, kv: 2, bias: true, passes: 1}, 1, 1, 3},
		{qkvLayers{q: 2, kv: 2, passes: 1}, 1, 0, 1 + 3},
		{qkvLayers{q: 2, kv: 2, bias: true, passes: 2}, 1, 1, 3}, // and the second pass adds
		{qkvLayers{q: 2, kv: 2, bias: true, passes: 1, product: true}, 1, 3, 3},
		{qkvLayers{q: 2, kv: 2, bias: true, passes: 1, freeze: freezeQ}, 1, 2, 3},
		{qkvLayers{q: 2, kv: 2, bias: true, passes: 1, freeze: freezeAll}, 1, 0, 3},
		{qkvLayers{q: 4, kv: 2, bias: true, passes: 1}, 1, 3, 1 + 3},
		{qkvLayers{q: 2, kv: 2, bias: true, passes: 1, apart: true}, 0, 3, 3 + 3},
	} {
		for k, d := range []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float64} {
			if k != i%2 && i > 0 && !long(t) { // in the short form, two types take turns
				continue
			}
			t.Run(fmt.Sprint(d, " ", c.qkvLayers), func(t *testing.T) {
				one, three := newCounted(dev), newCounted(dev, tensor.OpLinears)
				got, want, tol := c.values(t, one, d), c.values(t, three, d), map[tensor.DType]float64{tensor.Float64: 1e-12, tensor.Float32: 1e-5,
					tensor.BFloat16: 1e-1}[d]
				allNear(t, want, got, tol)
				if d != tensor.BFloat16 {
					allNear(t, c.values(t, host, d), got, 10*tol)
				}
				require.Zero(t, three.launches[tensor.OpLinears])
				require.Equal(t, c.linears*c.passes, one.launches[tensor.OpLinears])
				if d == tensor.Float64 || c.passes > 1 { // sums of columns are apart, or added
					return
				}
				require.Equal(t, [2]int{c.gradW, c.plain}, [2]int{one.launches[tensor.OpLinearGradW], one.launches[tensor.OpMatMul]})
			})
		}
	}
}

func TestLongLinears(t *testing.T) { reliability.AsLong(t, TestLinears) }

func allNear(t *testing.T, want, got [][]float64, tol float64) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		require.InDeltaSlice(t, want[i], got[i], tol, "tensor %d", i)
	}
}

// Gate and Up of a GatedMLP are one product.
func TestGateAndUp(t *testing.T) {
	dev := device(t)
	run := func(dev *counted, act nn.Layer) (all [][]float64) {
		m := nn.NewGatedMLP(9, 24)
		m.Act = act
		params := nn.Init(m, dev, tensor.Float32, 4)
		tape := tensor.NewTape(dev)
		defer tape.Close()
		x := tape.Leaf(tensor.New(dev, tensor.Float32, 7, 9))
		y := tape.Keep(m.ForwardAdd(x.Affine(1, 0.5), x))
		tape.Backward(y.Mul(y).Sum())
		all = append(all, tensor.Floats(y))
		for _, p := range params {
			all = append(all, tensor.Floats(p.Grad))
		}
		return all
	}
	for want, act := range []nn.Layer{nn.GELUTanh, nn.SiLU} { // GELU is part of a product
		one, three := newCounted(dev), newCounted(dev, tensor.OpLinears)
		allNear(t, run(three, act), run(one, act), 1e-5)
		require.Equal(t, want, one.launches[tensor.OpLinears])
	}
}
