package tensor_test

import (
	"fmt"
	"math"

	. "github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// The models of the tests, written without package nn.

// params makes named parameters when a model asks for them.
type params struct {
	dev   Device
	dtype DType
	list  []*Param
}

func (ps *params) add(name string, init Initializer, dims ...int) *Param {
	p := NewParam(init, dims...)
	p.SetName(name)
	p.Make(ps.dev, ps.dtype, 1)
	ps.list = append(ps.list, p)
	return p
}

// consume marks all gradients as used, as an optimizer's step does.
func (ps *params) consume() {
	for _, p := range ps.list {
		p.Consume()
	}
}

// grads returns a copy of all gradients, in order; nil for a parameter without.
func (ps *params) grads() (out [][]float64) {
	for _, p := range ps.list {
		if p.HasGrad() {
			out = append(out, Floats(p.Grad))
		} else {
			out = append(out, nil)
		}
	}
	return out
}

// mlp is linear layers with ReLU between them and residuals where the sizes allow.
type mlp struct {
	w, b     []*Param
	residual []bool
}

func newMLP(ps *params, dims ...int) *mlp {
	m := &mlp{}
	for i := range len(dims) - 1 {
		m.w = append(m.w, ps.add(fmt.Sprintf("%d.weight", i), KaimingUniform(dims[i]), dims[i+1], dims[i]))
		m.residual = append(m.residual, dims[i] == dims[i+1])
		m.b = append(m.b, ps.add(fmt.Sprintf("%d.bias", i), UniformInit(-0.1, 0.1), dims[i+1]))
	}
	return m
}

func (m *mlp) forward(x Tensor) Tensor {
	t := x.Tape()
	for i := range m.w {
		h := Linear(x, t.Use(m.w[i]), t.Use(m.b[i]))
		if i < len(m.w)-1 {
			h = h.ReLU()
		}
		if m.residual[i] {
			h = x.Add(h)
		}
		x = h
	}
	return x
}

// gpt is a transformer with causal attention and tied embeddings.
type gpt struct {
	heads      int
	tok, pos   *Param
	head       *Param // tok itself when the embedding is tied
	blocks     []*gptBlock
	normW      *Param
	checkpoint bool
	scope      bool
	drop       float64
}

type gptBlock struct {
	m                          *gpt
	name                       string
	n1w, n1b, qkv, out, n2w    *Param
	up, upB, down, downB, outB *Param
	fn                         func(...Tensor) Tensor // made once: a method value allocates
}

func newGPT(ps *params, vocab, length, width, heads, blocks int) *gpt {
	m := &gpt{heads: heads}
	small, one, zero := NormalInit(0, 0.1), Constant(1), Constant(0)
	m.tok = ps.add("tok", small, vocab, width)
	m.pos = ps.add("pos", small, length, width)
	for i := range blocks {
		n := fmt.Sprintf("blocks.%d.", i)
		b := &gptBlock{m: m, name: n}
		b.n1w, b.n1b, b.n2w = ps.add(n+"n1.weight", one, width), ps.add(n+"n1.bias", zero, width), ps.add(n+"n2.weight", one, width)
		b.qkv, b.out, b.outB = ps.add(n+"qkv", small, 3*width, width), ps.add(n+"out.weight", small, width, width),
			ps.add(n+"out.bias", zero, width)
		b.up, b.upB = ps.add(n+"up.weight", small, 2*width, width), ps.add(n+"up.bias", small, 2*width)
		b.down, b.downB = ps.add(n+"down.weight", small, width, 2*width), ps.add(n+"down.bias", small, width)
		b.fn = b.forward
		m.blocks = append(m.blocks, b)
	}
	m.normW = ps.add("norm.weight", one, width)
	m.head = m.tok
	return m
}

// forward returns logits [batch·length, vocab] for ids [batch, length].
func (m *gpt) forward(t *Tape, ids Tensor) Tensor {
	x := ops.Embedding(t.Use(m.tok), ids).Add(t.Use(m.pos))
	for _, b := range m.blocks {
		switch {
		case m.checkpoint:
			x = t.Checkpoint(b.fn, x)
		case m.scope:
			x = t.Scope(b.fn, x)
		default:
			x = b.forward(x)
		}
	}
	return Linear(ops.RMSNorm(x, t.Use(m.normW), 1e-6), t.Use(m.head), Tensor{}).Reshape(-1, m.tok.Dims()[0])
}

func (b *gptBlock) forward(in ...Tensor) Tensor {
	x := in[0]
	t := x.Tape()
	x = x.Add(b.attention(ops.LayerNorm(x, t.Use(b.n1w), t.Use(b.n1b), 1e-5)))
	h := Linear(ops.LayerNorm(x, t.Use(b.n2w), Tensor{}, 1e-5), t.Use(b.up), t.Use(b.upB)).GELU()
	return x.Add(ops.Dropout(Linear(h, t.Use(b.down), t.Use(b.downB)), b.m.drop, HashName(b.name)))
}

func (b *gptBlock) attention(x Tensor) Tensor {
	t, n, length, width := x.Tape(), x.Dim(0), x.Dim(1), x.Dim(2)
	hd := width / b.m.heads
	qkv := Linear(x, t.Use(b.qkv), Tensor{}).Reshape(n*length, 3*width)
	head := func(i int) Tensor {
		return qkv.Slice(1, i*width, (i+1)*width).Reshape(n, length, b.m.heads, hd).Permute(0, 2, 1, 3)
	}
	q, k, v := head(0), head(1), head(2)
	p := ops.SoftmaxCausal(MatMul(q, k, false, true).Scale(1 / math.Sqrt(float64(hd))))
	y := MatMul(p, v, false, false).Permute(0, 2, 1, 3).Reshape(n, length, width)
	return Linear(y, t.Use(b.out), t.Use(b.outB))
}

// gptBatch returns ids and the labels of the next positions, as views of one tensor on the tape.
func gptBatch(t *Tape, tokens Tensor) (ids, labels Tensor) {
	x := t.Input(tokens)
	n := tokens.Dim(1)
	return x.Slice(1, 0, n-1), x.Slice(1, 1, n)
}

func randomTokens(dev Device, vocab int, dims ...int) Tensor {
	x := New(dev, Int64, dims...)
	for i := range Data[int64](x) {
		Data[int64](x)[i] = int64(RandomBits(99, uint64(i)) % uint64(vocab))
	}
	return x
}
