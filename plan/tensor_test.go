package plan_test

import (
	"fmt"
	"strings"
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
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/plan"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
	"github.com/ringo-ml/ringo/tp"
)

// divided is a GPT-2 whose layers are divided over ranks, and its training.
type divided struct {
	plan.Transformer
	plan.Config
}

// attach divides the model. It returns this rank's positions, the loss, and the groups that count bytes, by axis.
func (c divided) attach(r *dist.Rank, m *gpt.Model, mesh *dist.Mesh) (params nn.Params, part func(x nn.T) nn.T, loss func(y, ids nn.T) nn.T,
	groups map[string]*dist.Group, err error) {
	part, loss = func(x nn.T) nn.T { return x }, func(y, ids nn.T) nn.T { return nn.CrossEntropy(y, ids) }
	groups = map[string]*dist.Group{"tp": mesh.Group("tp"), "ring": mesh.Group("ring"), "cp": mesh.Group("cp")}
	if c.Layout.TP > 1 {
		l, err := parallel.Divide(m, tp.Config{Group: groups["tp"], Sequence: c.Sequence}, nil)
		if err != nil {
			return nil, nil, nil, nil, err
		}
		loss = func(y, ids nn.T) nn.T { return l.Loss(y, ids) }
	}
	more := ""
	if c.Layout.Ring > 1 {
		more = "×ring"
	}
	if c.Layout.CP > 1 {
		more += "×cp"
	}
	if more != "" {
		f := cp.Unified(groups["ring"], groups["cp"], c.Dim/c.Heads)
		part = f.Part
		for _, b := range m.Blocks {
			b.Attn.Mix = f
		}
	}
	if c.Layout.FSDP == 0 {
		g := mesh.Group("dp", "ring", "cp").With(dist.Name("ddp"))
		groups["dp"+more] = g
		params, err = ddp.Attach(g, m, ddp.Config{DType: c.Params, Seed: 1})
		return params, part, loss, groups, err
	}
	cfg := fsdp.Config{Shard: mesh.Group("fsdp", "ring", "cp"), Stage: c.Stage, Compute: c.Params, Seed: 1}
	if c.Layout.DP > 1 {
		cfg.Replicate = mesh.Group("dp")
	}
	s := fsdp.New(cfg)
	s.Keep(m.Tok, m.Pos, m.Norm, m.Head)
	for _, b := range m.Blocks {
		s.Unit(b)
	}
	params, err = s.Attach(m)
	for i, g := range s.Groups() {
		groups[[]string{"fsdp" + more, "fsdp" + more + " reduce", "dp"}[i]] = g
	}
	return params, part, loss, groups, err
}

// train does some steps. It returns what rank 0 has, and what all ranks send in a step, by operation and axis.
func (c divided) train() (m measured, err error) {
	err = disttest.OnRanks(c.Layout.Ranks(), func(r *dist.Rank) error {
		model := disttest.Must(gpt.New(gpt.Config{Kind: gpt.GPT2, Vocab: c.Vocab, Positions: c.Seq, Width: c.Dim, Layers: c.Layers,
			Heads: c.Heads, Tied: true}))
		l := c.Layout
		mesh := disttest.Must(r.Mesh(fmt.Sprintf("dp=%d,fsdp=%d,ring=%d,cp=%d,tp=%d", max(l.DP, 1), max(l.FSDP, 1), max(l.Ring, 1), max(l.CP, 1),
			max(l.TP, 1))))
		data := mesh.Group("dp", "fsdp")
		params, part, loss, groups, err := c.attach(r, model, mesh)
		if err != nil {
			return err
		}
		n := c.Batch / data.Size()
		ids := part(tensor.New(r.Device, tensor.Int64, n, c.Seq).WithRows(data.Rows(data.Rank()*n, c.Batch)))
		mine, err := steady(r, params, groups, func(tape *tensor.Tape) nn.T { return loss(model.Forward(tape.Input(ids)), ids) })
		if r.World.Rank() == 0 {
			m = mine
		}
		return err
	})
	return m, err
}

// steady does steps until ranks compare nothing. It returns what this rank has, and what all ranks sent in the last one, by operation and
// axis.
func steady(r *dist.Rank, params nn.Params, groups map[string]*dist.Group, loss func(tape *tensor.Tape) nn.T) (m measured, err error) {
	opt := optim.NewAdamW(params, optim.AdamWConfig{Clip: 1, Norm: r.World})
	tape := tensor.NewTape(r.Device)
	defer tape.Close()
	sent := map[string]int{}
	for step := range 7 {
		if step == 6 {
			count(sent, groups, -1)
		}
		tape.Backward(loss(tape))
		if err := opt.Step(); err != nil {
			return m, err
		}
		tape.Reset()
	}
	count(sent, groups, 1)
	all, err := dist.AllGatherObject(r.World, sent)
	m = measured{r.Device.Memory().ByName(), map[string]int{}}
	for _, one := range all {
		for op, n := range one {
			m.sent[op] += n
		}
	}
	return m, err
}

// count adds the bytes that a rank has sent, or subtracts them.
func count(sent map[string]int, groups map[string]*dist.Group, sign int) {
	for axis, g := range groups {
		axis, _, _ = strings.Cut(axis, " ")
		for op, n := range g.Stats().Wire {
			if op = strings.TrimSuffix(op, "v"); op == "rec" { // engines that read the memory of a sender
				op = "send"
			}
			sent[op+" over "+axis] += sign * int(n)
		}
	}
}

// Bytes sent, and parameters and gradients of divided layers, are planned to the byte; activations within five percent (all-reduces of at
// most 256 bytes send more). The short form has one of the four cases of two layouts.
func TestDividedReality(t *testing.T) {
	for i, layout := range []struct {
		plan.Layout
		stage int
	}{{plan.Layout{TP: 2}, 0}, {plan.Layout{TP: 3}, 0}, {plan.Layout{DP: 2, TP: 2}, 0}, {plan.Layout{FSDP: 2, TP: 2}, 1},
		{plan.Layout{FSDP: 2, TP: 2}, 2}, {plan.Layout{FSDP: 2, TP: 3}, 3}, {plan.Layout{DP: 2, FSDP: 2, TP: 2}, 3}} {
		for j, seq := range []bool{false, true} {
			for k, size := range []plan.Transformer{
				{Layers: 2, Dim: 72, Heads: 6, Vocab: 96, Batch: 8, Seq: 24}, {Layers: 3, Dim: 66, Heads: 6, Vocab: 600, Batch: 8, Seq: 24},
			} {
				if ((i+2*j+k)%4 > 0 || i != 3 && i != 5) && !reliability.Long(t) {
					continue
				}
				c := divided{size, plan.Config{Layout: layout.Layout, Stage: layout.stage, Sequence: seq, Params: tensor.Float32}}
				got, err := c.train()
				require.NoError(t, err, "%+v", c)
				got.requirePlanned(t, c.Transformer, c.Config)
			}
		}
	}
}

func TestLongDividedReality(t *testing.T) { reliability.AsLong(t, TestDividedReality) }

// So are bytes of ranks with other positions, alone and beside others.
func TestPositionsReality(t *testing.T) {
	sizes := [2]plan.Transformer{
		{Layers: 2, Dim: 36, Heads: 6, Vocab: 600, Batch: 8, Seq: 24}, {Layers: 3, Dim: 24, Heads: 6, Vocab: 48, Batch: 8, Seq: 24}}
	for i, layout := range []struct {
		plan.Layout
		stage int
	}{{plan.Layout{Ring: 2}, 0}, {plan.Layout{CP: 2}, 0}, {plan.Layout{Ring: 2, CP: 2}, 0}, {plan.Layout{DP: 2, Ring: 3}, 0},
		{plan.Layout{FSDP: 2, CP: 2}, 1}, {plan.Layout{FSDP: 2, Ring: 2}, 2}, {plan.Layout{FSDP: 1, Ring: 2, CP: 2}, 3},
		{plan.Layout{DP: 2, FSDP: 2, CP: 2}, 3}, {plan.Layout{CP: 3, TP: 2}, 0}, {plan.Layout{Ring: 2, TP: 2}, 0}} {
		if (i == 2 || i == 5) == reliability.Long(t) {
			continue
		}
		c := divided{sizes[i%2], plan.Config{Layout: layout.Layout, Stage: layout.stage, Params: tensor.Float32}}
		got, err := c.train()
		require.NoError(t, err, "%+v", c)
		got.requirePlanned(t, c.Transformer, c.Config)
	}
}

func TestLongPositionsReality(t *testing.T) { reliability.AsLong(t, TestPositionsReality) }

// requirePlanned requires that the plan is to the byte, but for activations: within five percent.
func (m measured) requirePlanned(t *testing.T, of plan.Transformer, c plan.Config) {
	t.Helper()
	model, err := of.Model(c)
	require.NoError(t, err)
	p, err := plan.New(model, c)
	require.NoError(t, err)
	for _, traffic := range p.Traffic {
		what := traffic.Op + " over " + traffic.Axis
		require.Equal(t, p.SentBy(traffic.Op, traffic.Axis), m.sent[what], "%+v: %s = %s", c, what, traffic.Formula)
	}
	for _, traffic := range p.Traffic {
		delete(m.sent, traffic.Op+" over "+traffic.Axis)
	}
	delete(m.sent, "allreduce over fsdp") // votes
	for what := range m.sent {
		if strings.HasPrefix(what, "allreduce over fsdp×") {
			delete(m.sent, what)
		}
	}
	for what, n := range m.sent {
		require.Zero(t, n, "%+v: %s is not in the plan", c, what)
	}
	for _, kind := range []memory.Use{memory.Parameters, memory.Gradients, memory.Gathered} {
		require.Equal(t, p.Of(kind), m.memory[kind.String()].Peak, "%+v: %v", c, kind)
	}
	require.InEpsilon(t, m.memory[memory.Activations.String()].Peak, p.Of(memory.Activations), 0.05, "%+v", c)
}

// Impossible layouts are refused.
func TestDividedNeeds(t *testing.T) {
	_, err := plan.Transformer{Layers: 1, Dim: 8, Heads: 2, Vocab: 8, Batch: 2, Seq: 4}.Model(plan.Config{Sequence: true})
	require.ErrorContains(t, err, "sequence parallelism needs a tp axis in the layout, such as tp=2")
}
