package plan_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/cp"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/models/gpt/parallel"
	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/moe/router"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/plan"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tp"
)

// mixture is a GPT-2 with experts that ranks share, and its training. Tokens use the experts in turn, so that all are chosen equally
// often.
type mixture struct {
	plan.Transformer
	plan.Config
}

// attach divides the experts and, by f, sequences, and returns the groups that count bytes, by axis.
func (c mixture) attach(m *gpt.Model, mesh *dist.Mesh, f *cp.Ring) (params nn.Params, loss func(y, ids nn.T) nn.T,
	groups map[string]*dist.Group, err error) {
	groups = map[string]*dist.Group{"ep": mesh.Group("ep"), "ring": mesh.Group("ring"), "cp": mesh.Group("cp")}
	more := map[bool]string{true: "×ring"}[c.Layout.Ring > 1] + map[bool]string{true: "×cp"}[c.Layout.CP > 1]
	ranks := moe.Ranks{Tokens: mesh.Group("dp", "fsdp", "ep", "ring", "cp"), Experts: groups["ep"]}
	var layers []*moe.Layer
	for _, b := range m.Blocks {
		l := moe.NewLayer(moe.Config{Features: c.Dim, Hidden: 4 * c.Dim, Experts: c.Experts, Router: router.Config{Top: c.Top, Forced: true},
			GELU: true})
		if b.MLP, layers = l, append(layers, l); more != "" {
			b.Attn.Mix = f
		}
	}
	loss = func(y, ids nn.T) nn.T { return nn.CrossEntropy(y, ids) }
	if ranks.Hidden = mesh.Group("tp"); c.Layout.TP > 1 {
		groups["tp"] = ranks.Hidden
		l, failed := parallel.Divide(m, tp.Config{Group: ranks.Hidden}, func(*tp.Parallel) { err = moe.Parallelize(ranks, layers...) })
		loss, err = func(y, ids nn.T) nn.T { return l.Loss(y, ids) }, errors.Join(err, failed)
	} else {
		ranks.Hidden = nil
		err = moe.Parallelize(ranks, layers...)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	rest := map[bool]string{true: "×ep" + more, false: more + " of the rest"}[c.Layout.EP > 1]
	if c.Layout.FSDP == 0 {
		all, copies := mesh.Group("dp", "ep", "ring", "cp"), mesh.Group("dp", "ring", "cp").With(dist.Name("copies"))
		groups["dp"+rest], groups["dp"+more] = all, copies
		params, err = ddp.Attach(all, m, ddp.Config{DType: c.Params, Seed: 1, Over: moe.Over(copies, layers...)})
		return params, loss, groups, err
	}
	cfg := fsdp.Config{Shard: mesh.Group("fsdp", "ep", "ring", "cp"), Stage: c.Stage, Compute: c.Params, Seed: 1}
	of := []string{"fsdp" + rest, "fsdp" + rest + " reduce", "fsdp" + more, "fsdp" + more + " reduce"}
	var copies *dist.Group
	if c.Layout.DP > 1 {
		cfg.Replicate, copies = mesh.Group("dp"), mesh.Group("dp").With(dist.Name("copies"))
		of = []string{of[0], of[1], "dp", of[2], of[3], "dp of experts"}
	}
	s, experts := fsdp.New(cfg), mesh.Group("fsdp", "ring", "cp").With(dist.Name("experts"))
	s.Keep(m.Tok, m.Pos, m.Norm, m.Head)
	for i, b := range m.Blocks {
		s.Unit(b.Norm1, b.Attn, b.Norm2, layers[i].Router)
		s.Unit(layers[i].Experts).Over(experts, copies)
	}
	params, err = s.Attach(m)
	for i, g := range s.Groups() {
		groups[of[i]] = g
	}
	return params, loss, groups, err
}

// train does some steps. It returns what rank 0 has, and what all ranks send in a step, by operation and axis.
func (c mixture) train() (m measured, err error) {
	err = disttest.OnRanks(c.Layout.Ranks(), func(r *dist.Rank) error {
		model := disttest.Must(gpt.New(gpt.Config{Kind: gpt.GPT2, Vocab: c.Vocab, Positions: c.Seq, Width: c.Dim, Layers: c.Layers,
			Heads: c.Heads, Tied: true}))
		l := c.Layout
		mesh := disttest.Must(r.Mesh(fmt.Sprintf("dp=%d,fsdp=%d,ep=%d,ring=%d,cp=%d,tp=%d", max(l.DP, 1), max(l.FSDP, 1), max(l.EP, 1),
			max(l.Ring, 1), max(l.CP, 1), max(l.TP, 1))))
		f, rows := cp.Unified(mesh.Group("ring"), mesh.Group("cp"), c.Dim/c.Heads), mesh.Group("dp", "fsdp", "ep")
		params, loss, groups, err := c.attach(model, mesh, f)
		if err != nil {
			return err
		}
		n := c.Batch / rows.Size()
		ids := f.Part(tensor.New(r.Device, tensor.Int64, n, c.Seq).WithRows(rows.Rows(n*rows.Rank(), c.Batch)))
		mine, err := steady(r, params, groups, func(tape *tensor.Tape) nn.T { return loss(model.Forward(tape.Input(ids)), ids) })
		if r.World.Rank() == 0 {
			m = mine
		}
		return err
	})
	return m, err
}

// Bytes sent, parameters and gradients of models with experts are planned to the byte, activations within five percent. The short form has
// three layouts, with one of the sizes each.
func TestExpertsReality(t *testing.T) {
	for i, layout := range []struct {
		plan.Layout
		stage int
	}{{plan.Layout{}, 0}, {plan.Layout{DP: 2}, 0}, {plan.Layout{EP: 2}, 0}, {plan.Layout{DP: 2, EP: 4}, 0}, {plan.Layout{FSDP: 2}, 3},
		{plan.Layout{FSDP: 2, EP: 2}, 1}, {plan.Layout{FSDP: 2, EP: 2}, 2}, {plan.Layout{FSDP: 2, EP: 2}, 3},
		{plan.Layout{DP: 2, FSDP: 2, EP: 2}, 3}, {plan.Layout{Ring: 2}, 0}, {plan.Layout{DP: 2, EP: 2, CP: 2}, 0},
		{plan.Layout{FSDP: 2, EP: 2, Ring: 2}, 2}, {plan.Layout{FSDP: 2, EP: 2, CP: 2}, 3}, {plan.Layout{TP: 2}, 0},
		{plan.Layout{DP: 2, EP: 2, TP: 2}, 0}, {plan.Layout{FSDP: 2, EP: 2, TP: 2}, 3}, {plan.Layout{Ring: 2, TP: 3}, 0}} {
		for k, size := range []plan.Transformer{{Layers: 2, Dim: 36, Heads: 6, Vocab: 48, Batch: 8, Seq: 24, Experts: 8, Top: 2},
			{Layers: 3, Dim: 42, Heads: 6, Vocab: 300, Batch: 8, Seq: 24, Experts: 4, Top: 1}} {
			if ((i+k)%2 > 0 || i != 7 && i != 11 && i != 13) && !reliability.Long(t) {
				continue
			}
			c := mixture{size, plan.Config{Layout: layout.Layout, Stage: layout.stage, Params: tensor.Float32}}
			got, err := c.train()
			require.NoError(t, err, "%+v", c)
			got.requirePlanned(t, c.Transformer, c.Config)
		}
	}
}

func TestLongExpertsReality(t *testing.T) { reliability.AsLong(t, TestExpertsReality) }

// Impossible layouts are refused.
func TestExpertsNeed(t *testing.T) {
	size := plan.Transformer{Layers: 1, Dim: 8, Heads: 2, Vocab: 8, Batch: 4, Seq: 4}
	for want, c := range map[string]struct {
		experts, top int
		plan.Layout
	}{
		"ep=2: the model has no experts that ranks could share":          {0, 0, plan.Layout{EP: 2}},
		"4 experts, of which a token has 0: at least 1, and at most all": {4, 0, plan.Layout{}},
		"4 experts, of which a token has 5: at least 1, and at most all": {4, 5, plan.Layout{}},
		"4 experts do not divide over ep=3 ranks":                        {4, 1, plan.Layout{EP: 3}},
	} {
		size.Experts, size.Top = c.experts, c.top
		_, err := size.Model(plan.Config{Layout: c.Layout})
		require.EqualError(t, err, want)
	}
}
