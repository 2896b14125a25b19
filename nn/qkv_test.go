package nn_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
	"github.com/ringo-ml/ringo/tensor/tensortest"
)

// qkvLayers are layers of queries, keys and values. Attention follows, or their product, whose gradients are not in one memory.
type qkvLayers struct {
	Q, K, V *nn.Linear
	q, kv   int // heads, of 8 features
	apart   bool
	product bool
	plain   bool               // without biases
	change  func(h *qkvLayers) // before the first pass
	passes  int
}

// values returns the outputs and all gradients for rows of 9 features.
func (h qkvLayers) values(dev tensor.Device, d tensor.DType) (all [][]float64) {
	const in, batch, time, head = 9, 2, 5, 8
	layer := func(heads int) *nn.Linear {
		l := nn.NewLinear(in, heads*head)
		if h.plain {
			l.B = nil
		}
		return l
	}
	h.Q, h.K, h.V = layer(h.q), layer(h.kv), layer(h.kv)
	if !h.apart {
		nn.Together(h.Q, h.K, h.V)
	}
	params := nn.Init(&h, dev, d, 4)
	if h.change != nil {
		h.change(&h)
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

func (h *qkvLayers) params() []*tensor.Param {
	return []*tensor.Param{h.Q.W, h.Q.B, h.K.W, h.K.B, h.V.W, h.V.B}
}

// flat puts the parameters of q, k, v, and their gradients, into flat memory: in the order of the model, as units of package fsdp have
// them, or in the other one, as buckets of package ddp.
func flat(values, grads bool) func(h *qkvLayers) {
	into := func(h *qkvLayers, backward bool, set func(*tensor.Param, tensor.Tensor)) {
		ps, n := h.params(), 0
		for _, p := range ps {
			n += p.Len()
		}
		if backward {
			slices.Reverse(ps)
		}
		flat, at := tensor.New(ps[0].Value.Device(), ps[0].Value.DType(), n), 0
		for _, p := range ps {
			set(p, flat.Range(at, at+p.Len()).View(p.Dims()...))
			at += p.Len()
		}
	}
	return func(h *qkvLayers) {
		into(h, values, func(p *tensor.Param, x tensor.Tensor) {
			tensor.Copy(x, p.Value)
			p.SetValue(x)
		})
		into(h, grads, func(p *tensor.Param, x tensor.Tensor) { p.Grad = x })
	}
}

// Queries, keys and values that one product makes have the bits of three products, and so have all gradients, wherever their memory is, and
// whatever of it is frozen. fewer is how many launches a pass of both directions saves.
func TestQKV(t *testing.T) {
	for _, c := range []struct {
		name           string
		linears, fewer int
		qkvLayers
	}{
		{"biases", 1, 4, qkvLayers{q: 2, kv: 2}},
		{"no biases", 1, 4, qkvLayers{q: 2, kv: 2, plain: true}},
		{"gradients apart", 1, 2, qkvLayers{q: 2, kv: 2, product: true}},
		{"fewer keys", 1, 1, qkvLayers{q: 4, kv: 2}},
		{"other memory", 0, 0, qkvLayers{q: 2, kv: 2, apart: true}},
		{"frozen queries", 1, 2, qkvLayers{q: 2, kv: 2, change: func(h *qkvLayers) { h.Q.W.Freeze() }}},
		{"frozen biases", 1, 2, qkvLayers{q: 2, kv: 2, change: func(h *qkvLayers) {
			for _, l := range []*nn.Linear{h.Q, h.K, h.V} {
				l.B.Freeze()
			}
		}}},
		{"frozen", 1, 2, qkvLayers{q: 2, kv: 2, change: func(h *qkvLayers) {
			for _, p := range h.params() {
				p.Freeze()
			}
		}}},
		{"new values of keys", 0, 0, qkvLayers{q: 2, kv: 2, change: func(h *qkvLayers) {
			x := tensor.New(h.K.W.Value.Device(), h.K.W.Value.DType(), h.K.W.Dims()...)
			tensor.Copy(x, h.K.W.Value)
			h.K.W.SetValue(x)
		}}},
		{"a unit", 1, 4, qkvLayers{q: 2, kv: 2, apart: true, change: flat(false, false)}},
		{"a bucket", 1, 4, qkvLayers{q: 2, kv: 2, change: flat(true, true)}},
		{"orders differ", 1, 2, qkvLayers{q: 2, kv: 2, change: flat(false, true)}},
		{"the other orders differ", 1, 2, qkvLayers{q: 2, kv: 2, change: flat(true, false)}},
	} {
		for _, d := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16} {
			t.Run(fmt.Sprint(c.name, " ", d), func(t *testing.T) {
				dev, without := tensortest.NewRemote(t, 1), tensortest.NewRemote(t, 2)
				without.Kernels()[tensor.OpLinears] = [tensor.NumDTypes]tensor.Kernel{}
				for c.passes = 1; c.passes < 3; c.passes++ {
					want := c.values(host, d)
					require.Equal(t, want, c.values(dev, d))
					require.Equal(t, want, c.values(without, d))
					n := dev.Counts()
					require.Equal(t, c.linears*c.passes, n.Linears)
					require.Equal(t, c.fewer*c.passes, without.Counts().Launches-n.Launches)
				}
			})
		}
	}
}
