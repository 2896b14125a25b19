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
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/moe/router"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// job is a training of a model. Ranks of dp and ep have different rows, and those of cp different positions; those of ep share the experts,
// and those of tp each expert's hidden features.
type job struct {
	moe.Config
	mesh   string // axes, of which some may lack
	fsdp   bool
	idle   bool // the first rank has no rows
	half   bool
	again  bool                                                              // the layer is computed again in backward
	sp     bool                                                              // between layers each rank of tp has a part of the tokens
	rate   float64                                                           // of biases
	change func(m *model, mesh *dist.Mesh)                                   // of the program, before Attach
	before func(s *disttest.State, m *model, mesh *dist.Mesh) error          // of each step
	over   func(m *model, mesh *dist.Mesh) func(p *tensor.Param) *dist.Group // in place of moe.Over
	// Axes of the ranks with other tokens, with other rows, and over which dense parameters are summed; "": dp, ep and cp, or dp and ep.
	tokens, rows, dense string
	hidden              string // axes of the ranks that divide experts, also if there is one; "": tp, if there are more. Others have the same
	stepRows            bool   // a capacity is of the tokens of a step, in all microbatches
	alone               bool   // no Parallelize: one rank
	lora                bool   // of the shared expert
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
		if j.lora {
			nn.LoRA(m, nn.LoRAConfig{Rank: 2, Alpha: 60, Targets: []string{"moe.shared_experts.*"}})
		}
		a.Params = disttest.Must(j.attach(m, mesh))
		balancer, rank := moe.NewBalancer(j.rate, m.MoE), r.World.Rank()
		a.Norm, a.Data, a.Sum = r.World, along(mesh, cmp.Or(j.rows, "dp,ep")), along(mesh, cmp.Or(j.rows, "dp,ep")+",cp")
		a.Loss = func(b disttest.Batch) nn.T {
			if j.Capacity > 0 && !j.stepRows { // which is of the tokens of a batch: each microbatch is one
				b.Rows.First, b.Rows.Total = b.Rows.First%11, 11
			}
			return m.loss(b.Tape.Input(positions(sequences(b.First, b.N), mesh.Group("cp"), b.Rows)), j.again)
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
	for _, axis := range []string{"dp", "ep", "cp", "tp", "same"} {
		if !strings.Contains(mesh, axis+"=") {
			mesh += "," + axis + "=1"
		}
	}
	return strings.TrimPrefix(mesh, ",")
}

// along returns the group of axes.
func along(mesh *dist.Mesh, axes string) *dist.Group {
	return mesh.Group(strings.Split(cmp.Or(axes, "dp,ep,cp"), ",")...)
}

// trainable leaves out biases.
func trainable(p nn.Params, n optim.Norm) *optim.Optimizer {
	return optim.NewAdamW(p.Trainable(), optim.AdamWConfig{LR: 0.01, Clip: 0.4, Norm: n})
}

// sequences returns n of 240 sequences of three tokens.
func sequences(first, n int) tensor.Tensor {
	return tensor.FromSlice(values(240, 3, 3)[first*9:][:n*9], n, 3, 3)
}

// positions leaves a rank of g its positions of x [rows, 3, features].
func positions(x tensor.Tensor, g *dist.Group, r tensor.Rows) tensor.Tensor {
	if g.Size() > 1 {
		lo, hi := layout.Share(3, g.Rank(), g.Size())
		y := tensor.New(x.Device(), x.DType(), x.Dim(0), hi-lo, x.Dim(2))
		tensor.Copy(y, x.Slice(1, lo, hi))
		x, r.Seq, r.Over, r.SeqOver = y, tensor.Spans{First: lo, Total: 3}, r.Over|g.Axes(), g.Axes()
	}
	return x.WithRows(r)
}

func (saw *seen) count(mesh *dist.Mesh, limited bool) {
	wire := mesh.Group("ep").Stats().Wire
	saw.sent, saw.planned = wire["alltoallv"], wire["alltoall"]
	if limited {
		saw.sent, saw.planned = saw.sent+wire["alltoall"], along(mesh, "").Stats().Wire["allgather"]
	}
}

func (j job) attach(m *model, mesh *dist.Mesh) (nn.Params, error) {
	r := moe.Ranks{Tokens: along(mesh, j.tokens), Positions: mesh.Group("cp"), Experts: mesh.Group("ep"), Half: j.half}
	if j.tokens == "dp" {
		r.Experts = nil
	}
	if j.hidden != "" || mesh.Size("tp") > 1 {
		r.Hidden = along(mesh, cmp.Or(j.hidden, "tp"))
	}
	if j.sp {
		r.Gather, r.Scatter = m.sequence(r.Hidden)
	}
	nn.ParamsOf(m)
	if !j.alone {
		disttest.OK(moe.Parallelize(r, m.MoE))
	}
	if j.change != nil {
		j.change(m, mesh)
	}
	dense, over := along(mesh, j.dense), moe.Over(mesh.Group("dp", "cp"), m.MoE)
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

// sequence leaves ranks of g a part each of the tokens that the layer of experts gets.
func (m *model) sequence(g *dist.Group) (gather, scatter tensor.Function) {
	split, join := &autograd.Split{Group: g}, &autograd.Gather{Group: g}
	in := &autograd.TokenGather{AllGather: autograd.AllGather{Group: g}}
	out := &autograd.TokenScatter{ReduceScatter: autograd.ReduceScatter{Group: g}}
	m.forward = func(x nn.T) nn.T {
		t, counts := x.Tape(), layout.Shares(make([]int, g.Size()), x.Dim(0))
		split.Counts, join.Counts, in.Counts, out.Counts = counts, counts, counts, counts
		return t.Apply(join, m.MoE.Forward(t.Apply(split, x)))
	}
	return in, out
}

// on is j on other ranks, which compute as l says.
func (j job) on(l job) job {
	l.Config, l.rate, l.stepRows, l.lora = j.Config, j.rate, j.stepRows, j.lora
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

// However ranks share tokens and experts, they train as one rank does. In the short form each router has every 14th layout, with
// a capacity or without.
func TestRanksEqualOne(t *testing.T) {
	for turn, name := range slices.Sorted(maps.Keys(routers)) {
		for k, capacity := range []float64{0, 0.9} {
			if k != turn%2 && !reliability.Long(t) {
				continue
			}
			j := named(name, capacity)
			if name == "qwen" {
				j.GELU, j.Sequence = true, 3
			}
			want, saw := j.run(t)
			dropped := slices.ContainsFunc(saw.loads, func(l moe.Load) bool { return l.Dropped > 0 })
			require.Equal(t, capacity > 0, dropped)
			for i, l := range layouts {
				if (i+3*turn)%14 > 0 && !reliability.Long(t) {
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

func TestLongRanksEqualOne(t *testing.T) { reliability.AsLong(t, TestRanksEqualOne) }

// parts are ranks that have parts of sequences: of their positions, and of the tokens of their rows.
var parts = []job{
	{mesh: "cp=2"}, {mesh: "dp=2,cp=2"}, {mesh: "cp=2,ep=2"}, {mesh: "cp=3", again: true}, {mesh: "dp=3,cp=2", idle: true},
	{mesh: "ep=4,cp=2", idle: true, again: true}, {mesh: "dp=2,cp=3", fsdp: true}, {mesh: "ep=2,cp=2", fsdp: true, again: true},
	{mesh: "tp=2", sp: true}, {mesh: "tp=3,cp=2", sp: true}, {mesh: "ep=2,cp=2,tp=2", sp: true, again: true},
	{mesh: "dp=2,tp=6", sp: true, idle: true}, {mesh: "cp=2,tp=2"}, {mesh: "cp=2,dp=2,tp=3", sp: true, fsdp: true},
}

// The balance loss of a sequence counts the slots of all its parts, and a capacity keeps the first slots of the batch, whoever has them.
// The short form has one layout of each router.
func TestSequencesInPartsEqualWholeOnes(t *testing.T) {
	for i, name := range []string{"switch", "deepseek", "mixtral", "all of them"} {
		j := named(name, float64(i%2)*0.4+float64(i/2)*0.5)
		j.Sequence, j.stepRows = 3, i == 2
		want, saw := j.run(t)
		dropped := slices.ContainsFunc(saw.loads, func(l moe.Load) bool { return l.Dropped > 0 })
		require.Equal(t, i > 0, dropped)
		for k, l := range parts {
			if k != []int{4, 7, 8, 12}[i] && !reliability.Long(t) {
				continue
			}
			t.Run(fmt.Sprintf("%s %s sp %v fsdp %v idle %v again %v", name, l.mesh, l.sp, l.fsdp, l.idle, l.again), func(t *testing.T) {
				got, saws := j.on(l).run(t)
				disttest.RequireEqual(t, want, got, 1e-10)
				require.Equal(t, saw.loads, saws.loads)
			})
		}
	}
}

func TestLongSequencesInPartsEqualWholeOnes(t *testing.T) {
	reliability.AsLong(t, TestSequencesInPartsEqualWholeOnes)
}

// Adapters of the shared expert are divided with its hidden features, over one rank, too.
func TestAdaptersOfTheSharedExpert(t *testing.T) {
	j := named("mixtral", 0)
	j.lora = true
	want, _ := j.run(t)
	require.NotEqual(t, want.Losses[0], want.Losses[len(want.Losses)-1])
	for _, l := range []job{{mesh: "dp=1", hidden: "tp"}, {mesh: "tp=2"}, {mesh: "ep=2,tp=3", sp: true}, {mesh: "dp=2,tp=2", fsdp: true}} {
		got, _ := j.on(l).run(t)
		disttest.RequireEqual(t, want, got, 1e-10)
	}
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
	layouts := []job{{mesh: "ep=4", idle: true, again: true}, {mesh: "ep=2", idle: true}, {mesh: "dp=2,ep=2", idle: true, fsdp: true}}
	if !reliability.Long(t) {
		layouts = layouts[:1]
	}
	for _, l := range layouts {
		got, _ := j.on(l).run(t)
		disttest.RequireEqual(t, want, got, 1e-10)
	}
}

func TestLongCapacityOfMicrobatches(t *testing.T) { reliability.AsLong(t, TestCapacityOfMicrobatches) }

// One rank needs no Parallelize, also with microbatches, of which each has its own balance loss.
func TestOneRankAlone(t *testing.T) {
	for _, capacity := range []float64{0, 0.4, 1.25} {
		j := named("mixtral", capacity)
		j.stepRows = true
		want, _ := j.run(t)
		j.alone = true
		got, _ := j.run(t)
		disttest.RequireEqual(t, want, got, 0)
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
	layouts := []job{{mesh: "ep=2"}, {mesh: "ep=3"}, {mesh: "dp=2,tp=2"}, {mesh: "ep=3", idle: true, again: true}}
	if !reliability.Long(t) {
		layouts = layouts[3:]
	}
	for _, l := range layouts {
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

func TestLongForced(t *testing.T) { reliability.AsLong(t, TestForced) }
