package moe_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/moe/router"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// job is a training of a model. Ranks of dp and ep have different rows; those of ep share the experts, and those of tp each expert's
// hidden features.
type job struct {
	moe.Config
	mesh   string // axes, of which some may lack
	fsdp   bool
	idle   bool // the first rank has no rows
	half   bool
	again  bool                                                              // the layer is computed again in backward
	rate   float64                                                           // of biases
	change func(m *model, mesh *dist.Mesh)                                   // of the program, before Attach
	before func(s *disttest.State, m *model, mesh *dist.Mesh) error          // of each step
	over   func(m *model, mesh *dist.Mesh) func(p *tensor.Param) *dist.Group // in place of moe.Over
	// Axes of the ranks with other tokens, with other rows, and over which dense parameters are summed; "": dp and ep.
	tokens, rows, dense string
	hidden              string // axes of the ranks that divide experts, also if there is one; "": tp, if there are more. Others have the same
	stepRows            bool   // a capacity is of the tokens of a step, in all microbatches
}

// seen is what rank 0 saw beside the result.
type seen struct {
	loads         []moe.Load
	sent, planned uint64 // bytes of slots, and of what plans their ways
}

// layer is the Config of most tests.
func layer(r router.Config) moe.Config {
	return moe.Config{Features: 5, Hidden: 6, Experts: 8, Router: r, Shared: 6, Balance: 0.1, Z: 0.1}
}

func (j job) run(t testing.TB) (disttest.Result, seen) {
	t.Helper()
	var saw seen
	res := j.training(&saw).Run(t)
	return res, saw
}

// training is by default over ten steps of two microbatches of 11 sequences.
func (j job) training(saw *seen) disttest.Training {
	c := disttest.Training{Mesh: whole(j.mesh), Rule: trainable, Name: fmt.Sprintf("%+v", j)}
	if j.idle {
		c.Part = func(rows, rank, ranks int) (first, n int) {
			if rank == 0 {
				return 0, 0
			}
			return disttest.Part(rows, rank-1, ranks-1)
		}
	}
	c.Attach = func(r *dist.Rank, mesh *dist.Mesh) (a disttest.Attached, err error) {
		m := newModel(j.Config)
		if a.Params, err = j.attach(m, mesh); err != nil {
			return a, err
		}
		balancer, rank := moe.NewBalancer(j.rate, m.MoE), r.World.Rank()
		a.Norm, a.Data = r.World, along(mesh, j.rows)
		a.Loss = func(b disttest.Batch) nn.T {
			if j.Capacity > 0 && !j.stepRows { // which is of the tokens of a batch: each microbatch is one
				b.Rows.First, b.Rows.Total = b.Rows.First%11, 11
			}
			return m.loss(b.Tape.Input(sequences(b.First, b.N).WithRows(b.Rows)), j.again)
		}
		a.Before = func(s *disttest.State) error {
			if j.before == nil {
				return nil
			}
			return j.before(s, m, mesh)
		}
		a.After = func(*disttest.State) error {
			loads, err := balancer.Step()
			if rank == 0 {
				saw.loads = append(saw.loads, loads...)
			}
			return err
		}
		a.End = func(*disttest.State) error {
			if rank == 0 {
				saw.count(mesh, j.Capacity > 0)
			}
			return nil
		}
		return a, nil
	}
	return c
}

// whole adds the axes that a mesh lacks.
func whole(mesh string) string {
	for _, axis := range []string{"dp", "ep", "tp", "same"} {
		if !strings.Contains(mesh, axis+"=") {
			mesh += "," + axis + "=1"
		}
	}
	return strings.TrimPrefix(mesh, ",")
}

// along returns the group of axes.
func along(mesh *dist.Mesh, axes string) *dist.Group {
	return mesh.Group(strings.Split(cmp.Or(axes, "dp,ep"), ",")...)
}

// trainable leaves out biases.
func trainable(p nn.Params, n optim.Norm) *optim.Optimizer {
	return optim.NewAdamW(p.Trainable(), optim.AdamWConfig{LR: 0.01, Clip: 0.4, Norm: n})
}

// sequences returns n of 240 sequences of three tokens.
func sequences(first, n int) tensor.Tensor {
	return tensor.FromSlice(values(240, 3, 3)[first*9:][:n*9], n, 3, 3)
}

func (saw *seen) count(mesh *dist.Mesh, limited bool) {
	wire := mesh.Group("ep").Stats().Wire
	saw.sent, saw.planned = wire["alltoallv"], wire["alltoall"]
	if limited {
		saw.sent, saw.planned = saw.sent+wire["alltoall"], mesh.Group("dp", "ep").Stats().Wire["allgather"]
	}
}

func (j job) attach(m *model, mesh *dist.Mesh) (nn.Params, error) {
	r := moe.Ranks{Tokens: along(mesh, j.tokens), Experts: mesh.Group("ep"), Half: j.half}
	if j.tokens == "dp" {
		r.Experts = nil
	}
	if j.hidden != "" || mesh.Size("tp") > 1 {
		r.Hidden = along(mesh, cmp.Or(j.hidden, "tp"))
	}
	nn.ParamsOf(m)
	if err := moe.Parallelize(r, m.MoE); err != nil {
		return nil, err
	}
	if j.change != nil {
		j.change(m, mesh)
	}
	dense, over := along(mesh, j.dense), moe.Over(mesh.Group("dp"), m.MoE)
	if j.over != nil {
		over = j.over(m, mesh)
	}
	if !j.fsdp {
		return ddp.Attach(dense, m, ddp.Config{DType: tensor.Float64, Seed: 3, BucketBytes: 300, Over: over})
	}
	s := fsdp.New(fsdp.Config{Shard: dense, DType: tensor.Float64, Seed: 3})
	s.Keep(m.In, m.Out)
	s.Unit(m.MoE.Experts).Over(over(m.MoE.Experts.Up), nil)
	s.Unit(m.MoE.Router)
	if m.MoE.Shared != nil {
		s.Unit(m.MoE.Shared)
	}
	return s.Attach(m)
}

// on is j on other ranks, which compute as l says.
func (j job) on(l job) job {
	l.Config, l.rate, l.stepRows = j.Config, j.rate, j.stepRows
	return l
}

// layouts are ranks that share tokens, experts, and the hidden features of experts.
var layouts = []job{
	{mesh: "dp=2"}, {mesh: "ep=2"}, {mesh: "ep=4"}, {mesh: "dp=2,ep=2"}, {mesh: "dp=3", idle: true}, {mesh: "ep=4", idle: true},
	{mesh: "ep=2", again: true}, {mesh: "ep=4", idle: true, again: true}, {mesh: "ep=2", fsdp: true}, {mesh: "dp=2,ep=2", fsdp: true},
	{mesh: "tp=2"}, {mesh: "ep=2,tp=2"}, {mesh: "ep=2,tp=3", fsdp: true, again: true},
	// Axes of one rank, and experts that are divided over other ranks than those with the same tokens.
	{mesh: "dp=1", hidden: "tp"}, {mesh: "dp=2", hidden: "tp", fsdp: true}, {mesh: "dp=1", fsdp: true},
	{mesh: "ep=2", hidden: "tp", fsdp: true}, {mesh: "tp=2", fsdp: true}, {mesh: "dp=2,tp=2", hidden: "same"},
	{mesh: "ep=2,tp=2,same=2"}, {mesh: "dp=2,tp=2", hidden: "same", fsdp: true},
}

// However ranks share tokens and experts, they train as one rank does. In the short form each router has every third layout, and each
// layout some of the routers.
func TestRanksEqualOne(t *testing.T) {
	for turn, name := range slices.Sorted(maps.Keys(routers)) {
		for k, capacity := range []float64{0, 0.9} {
			j := named(name, capacity)
			if name == "qwen" {
				j.GELU, j.Sequence = true, 3
			}
			want, saw := j.run(t)
			dropped := slices.ContainsFunc(saw.loads, func(l moe.Load) bool { return l.Dropped > 0 })
			require.Equal(t, capacity > 0, dropped)
			for i, l := range layouts {
				if (i+turn+k)%3 > 0 && !reliability.Long(t) {
					continue
				}
				how := fmt.Sprintf("hidden %s fsdp %v idle %v again %v", l.hidden, l.fsdp, l.idle, l.again)
				t.Run(fmt.Sprintf("%s %g %s %s", name, capacity, l.mesh, how), func(t *testing.T) {
					got, saws := j.on(l).run(t)
					disttest.RequireEqual(t, want, got, 1e-10)
					require.Equal(t, saw.loads, saws.loads)
				})
			}
		}
	}
}

func TestLongRanksEqualOne(t *testing.T) {
	reliability.SkipUnlessLong(t)
	TestRanksEqualOne(t)
}

// named has one of the routers, whose bias moves.
func named(router string, capacity float64) job {
	j := job{Config: layer(routers[router])}
	if j.Capacity = capacity; j.Router.Bias {
		j.rate = 0.01
	}
	return j
}

// A rank without tokens has as many places as the others, also where a capacity is of the tokens of all microbatches of a step.
func TestCapacityOfMicrobatches(t *testing.T) {
	j := named("mixtral", 0.4)
	j.stepRows = true
	want, saw := j.run(t)
	require.NotZero(t, saw.loads[0].Dropped)
	for _, l := range []job{{mesh: "ep=2", idle: true}, {mesh: "ep=4", idle: true, again: true}, {mesh: "dp=2,ep=2", idle: true, fsdp: true}} {
		got, _ := j.on(l).run(t)
		disttest.RequireEqual(t, want, got, 1e-10)
	}
}

// Slots that travel in 16 bits are a quarter of the bytes of float64, and near to what they were.
func TestHalfSlots(t *testing.T) {
	for _, capacity := range []float64{0, 0.9} {
		j := named("mixtral", capacity)
		j.mesh = "ep=2"
		want, saw := j.run(t)
		j.half = true
		got, half := j.run(t)
		require.InDeltaSlice(t, want.Losses, got.Losses, 0.02)
		require.NotEqual(t, want.Losses, got.Losses)
		require.Equal(t, saw.sent, 4*half.sent)
	}
}

// A layer that is computed again keeps its routing: it plans, and says what it sends, once.
func TestRoutingIsKept(t *testing.T) {
	for _, capacity := range []float64{0, 1.25} {
		j := named("mixtral", capacity)
		j.mesh = "ep=2"
		want, saw := j.run(t)
		j.again = true
		got, again := j.run(t)
		disttest.RequireEqual(t, want, got, 1e-10)
		require.NotZero(t, saw.planned)
		require.Equal(t, saw.planned, again.planned, "capacity %g", capacity)
	}
}

// Forced experts are as many times chosen, on every layout, and the loads say that nobody chose.
func TestForced(t *testing.T) {
	j := job{Config: moe.Config{Features: 5, Hidden: 6, Experts: 6, Router: router.Config{Top: 2, Forced: true}}}
	want, saw := j.run(t)
	require.Equal(t, moe.Load{Chosen: []int64{22, 22, 22, 22, 22, 22}, Forced: true}, saw.loads[0])
	for _, l := range []job{{mesh: "ep=2"}, {mesh: "ep=3"}, {mesh: "dp=2,tp=2"}, {mesh: "ep=3", idle: true, again: true}} {
		got, saws := j.on(l).run(t)
		disttest.RequireEqual(t, want, got, 1e-10)
		require.Equal(t, saw.loads, saws.loads)
	}
	err := tensor.Try(func() {
		moe.NewBalancer(0.1,
			moe.NewLayer(moe.Config{Features: 5, Hidden: 6, Experts: 6, Router: router.Config{Top: 2, Bias: true, Forced: true}}))
	})
	require.ErrorContains(t, err, "layer 0 does not choose its experts (router.Config.Forced): no bias changes that")
}
