package autograd_test

import (
	"testing"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

const features, positions, queryHeads, kvHeads = 7, 3, 6, 2

// grouped is attention in which three heads of queries share a head of keys and values (Ainslie et al. 2023, "GQA"). Along kv, ranks have
// different heads of keys and values. Along rep, ranks have the same ones, for different queries.
type grouped struct {
	Norm *nn.LayerNorm
	Q    *nn.Linear
	KV   *nn.Linear // keys on top of values
	Out  *nn.Linear
	Head *nn.Linear

	query, last int // first and last head of queries of this rank
	key         int // its first head of keys and values
}

func newGrouped() model {
	return &grouped{Norm: nn.NewLayerNorm(features), Q: nn.NewLinear(features, queryHeads*headDim),
		KV: nn.NewLinear(features, 2*kvHeads*headDim), Out: nn.NewLinear(queryHeads*headDim, features), Head: nn.NewLinear(positions*features, 5),
		last: queryHeads}
}

func (m *grouped) cut(g *ranks) {
	tp, kv, rep := g.Group("kv", "rep"), g.Group("kv"), g.Group("rep")
	first, end := share(kvHeads, kv)
	lo, hi := share((end-first)*queryHeads/kvHeads, rep)
	before := first * queryHeads / kvHeads
	m.key, m.query, m.last = first, before+lo, before+hi

	for _, along := range []struct {
		g    *dist.Group
		unit int
	}{{kv, queryHeads / kvHeads * headDim}, {rep, headDim}} {
		m.Q.W.Place(along.g.Axis(), layout.Division{Unit: along.unit})
		m.Q.B.Place(along.g.Axis(), layout.Division{Unit: along.unit})
		m.Out.W.Place(along.g.Axis(), layout.Division{Dim: 1, Unit: along.unit})
	}
	for _, p := range []*tensor.Param{m.KV.W, m.KV.B} {
		cutAlong(kv, p, 0, 2, headDim)
		p.Through(&autograd.Copy{Group: rep}) // each rank has the gradient of its own queries
	}
	m.Q.Pre, m.KV.Pre, m.Out.Post = &autograd.Copy{Group: tp}, &autograd.Copy{Group: tp}, &autograd.Sum{Group: tp}
}

func (m *grouped) units(s *fsdp.Sharding, _ *ranks) {
	s.Unit(m.Norm)
	s.Unit(m.Q, m.KV, m.Out)
	s.Unit(m.Head)
}

func (m *grouped) loss(b disttest.Batch) nn.T {
	x, y := b.Samples(disttest.Dataset{DType: tensor.Float64, Features: positions * features})
	h := x.Reshape(b.N, positions, features)
	h = m.Out.Forward(m.attend(m.Norm.Forward(h))).Add(h)
	return nn.CrossEntropy(m.Head.Forward(h.Reshape(b.N, positions*features)), y)
}

// attend gives each head of queries its keys and values.
func (m *grouped) attend(x nn.T) nn.T {
	kv := m.KV.Forward(x)
	width := kv.Dim(2) / 2
	var keys, values []nn.T
	for h := m.query; h < m.last; h++ {
		at := (h/(queryHeads/kvHeads) - m.key) * headDim
		keys = append(keys, kv.Slice(2, at, at+headDim))
		values = append(values, kv.Slice(2, width+at, width+at+headDim))
	}
	qkv := tensor.Concat(2, m.Q.Forward(x), tensor.Concat(2, keys...), tensor.Concat(2, values...))
	return tensor.Attention(qkv, headDim, tensor.AttentionOptions{Causal: true, Drop: 0.2, Layer: tensor.HashName("grouped"),
		At: tensor.Region{Cols: tensor.Span{First: m.query, Total: queryHeads}}})
}

// If there are fewer heads of keys and values than ranks, training is as on one rank, whether they are replicated or shared.
func TestGroupedQueriesEqualOneRank(t *testing.T) {
	requireOneRank(t, job{model: newGrouped}, "dp=2,kv=2,rep=2", "fsdp=3,kv=1,rep=2", "kv=1,rep=4", "dp=2,fsdp=2,kv=2,rep=1")
}

// Each program has one communication for replicated keys and values too few or too many.
func TestWrongGroupedQueriesAreRefused(t *testing.T) {
	keys := func(m *grouped, g *ranks, axes ...string) {
		m.KV.W = bare(m.KV.W, g.Group("kv"))
		m.KV.W.Through(&autograd.Copy{Group: g.Group(axes...)})
	}
	requireRefused(t, job{model: newGrouped, training: training{Mesh: "dp=2,kv=2,rep=2"}}, map[string]wrong[*grouped]{
		"keys without Copy":             {func(m *grouped, g *ranks) { m.KV.W = bare(m.KV.W, g.Group("kv")) }, "axis rep"},
		"their bias without Copy":       {func(m *grouped, g *ranks) { m.KV.B = bare(m.KV.B, g.Group("kv")) }, "axis rep"},
		"keys through Copy over all":    {func(m *grouped, g *ranks) { keys(m, g, "kv", "rep") }, "axis kv"},
		"keys through Copy over kv":     {func(m *grouped, g *ranks) { keys(m, g, "kv") }, "axis kv"},
		"queries through Copy, too":     {func(m *grouped, g *ranks) { m.Q.W.Through(&autograd.Copy{Group: g.Group("rep")}) }, "autograd.Copy"},
		"no Copy before the keys":       {func(m *grouped, _ *ranks) { m.KV.Pre = nil }, "autograd.Copy"},
		"Copy over kv before the keys":  {func(m *grouped, g *ranks) { m.KV.Pre = &autograd.Copy{Group: g.Group("kv")} }, "axis rep"},
		"Copy over rep before the keys": {func(m *grouped, g *ranks) { m.KV.Pre = &autograd.Copy{Group: g.Group("rep")} }, "axis kv"},
		"Copy over kv before queries":   {func(m *grouped, g *ranks) { m.Q.Pre = &autograd.Copy{Group: g.Group("kv")} }, "axis rep"},
		"Sum over kv behind the heads":  {func(m *grouped, g *ranks) { m.Out.Post = &autograd.Sum{Group: g.Group("kv")} }, "axis rep"},
		"Sum over rep behind the heads": {func(m *grouped, g *ranks) { m.Out.Post = &autograd.Sum{Group: g.Group("rep")} }, "axis kv"},
	})
}
