package moe_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/moe/router"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// training is ten steps of two microbatches, with clipping, in float64. Ranks of dp and ep have different rows; ep of them share the
// experts, and tp of them each expert's hidden features.
type training struct {
	moe.Config
	dp, ep, tp int
	fsdp       bool
	idle       bool // the first rank has no rows
	half       bool
	again      bool    // the layer is computed again in backward
	stepRows   bool    // rows have their places in the batch of a step, not in that of a microbatch
	rate       float64 // of biases
	change     func(m *model, mesh *dist.Mesh)
	attached   func(m *model, mesh *dist.Mesh)
	over       func(m *model, mesh *dist.Mesh) func(p *tensor.Param) *dist.Group // in place of moe.Over
	dense      string                                                            // axis over which dense parameters are summed; "": dp and ep
	from, to   int                                                               // steps; to 0: 10
	dir        string                                                            // checkpoints, if not ""
	launch     func(ranks int, fn rankFunc) error
}

type rankFunc = func(ctx context.Context, r *dist.Rank) error

type result struct {
	first, last, losses, norms []float64
	loads                      []moe.Load
	read                       []int64 // bytes of checkpoints, by rank
	sent, planned              uint64  // bytes of slots, and of what plans their ways
}

func (c training) mesh() string {
	return fmt.Sprintf("dp=%d,ep=%d,tp=%d", max(c.dp, 1), max(c.ep, 1), max(c.tp, 1))
}

func (c training) String() string {
	return fmt.Sprintf("%s fsdp %v idle %v again %v", c.mesh(), c.fsdp, c.idle, c.again)
}

func goroutines(ranks int, fn rankFunc) error {
	return dist.Run(context.Background(), dist.Config{Ranks: ranks, Threads: 1, Timeout: 20 * time.Second, Log: io.Discard}, fn)
}

func (c training) run() (res result, err error) {
	launch := c.launch
	if launch == nil {
		launch = goroutines
	}
	err = launch(max(c.dp, 1)*max(c.ep, 1)*max(c.tp, 1), func(_ context.Context, r *dist.Rank) error {
		mine, err := c.rank(r)
		if r.World.Rank() == 0 {
			res = mine
		}
		return err
	})
	return res, err
}

func (c training) attach(m *model, mesh *dist.Mesh) (nn.Params, error) {
	r := moe.Ranks{Tokens: mesh.Group("dp", "ep"), Experts: mesh.Group("ep"), Half: c.half}
	if c.tp > 1 {
		r.Hidden = mesh.Group("tp")
	}
	nn.ParamsOf(m)
	if err := moe.Parallelize(r, m.MoE); err != nil {
		return nil, err
	}
	if c.change != nil {
		c.change(m, mesh)
	}
	dense := mesh.Group("dp", "ep")
	if c.dense != "" {
		dense = mesh.Group(c.dense)
	}
	over := moe.Over(mesh.Group("dp"), m.MoE)
	if c.over != nil {
		over = c.over(m, mesh)
	}
	for _, p := range append(nn.Within(m.In), nn.Within(m.Out)...) {
		p.NarrowCounts(mesh.Group("tp").Rank() == 0)
	}
	if !c.fsdp {
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

func (c training) rank(r *dist.Rank) (res result, err error) {
	mesh, err := r.Mesh(c.mesh())
	if err != nil {
		return res, err
	}
	m := newModel(c.Config)
	params, err := c.attach(m, mesh)
	if err != nil {
		return res, err
	}
	if c.attached != nil {
		c.attached(m, mesh)
	} else if res.first, err = disttest.Whole(r.World, params...); err != nil {
		return res, err
	}
	data := mesh.Group("dp", "ep")
	opt := optim.NewAdamW(params.Trainable(), optim.AdamWConfig{LR: 0.01, Clip: 0.4, Norm: r.World})
	balancer := moe.NewBalancer(c.rate, m.MoE)
	tape := tensor.NewTape(r.Device)
	defer tape.Close()
	c.to = cmp.Or(c.to, 10)
	state := ckpt.State{Params: params, Optimizer: opt, Tape: tape}
	if c.from > 0 {
		if res.read, err = c.load(r, &state); err != nil {
			return res, err
		}
	}
	for step := c.from; step < c.to; step++ {
		for micro := range 2 {
			loss := c.loss(m, tape, data, 2*step+micro)
			res.losses = append(res.losses, loss.Item())
			if micro == 0 {
				tape.Backward(loss, tensor.More())
			} else {
				tape.Backward(loss)
			}
			tape.Reset()
		}
		if err := opt.Step(); err != nil {
			return res, err
		}
		res.norms = append(res.norms, opt.GradNorm())
		loads, err := balancer.Step()
		if err != nil {
			return res, err
		}
		res.loads = append(res.loads, loads...)
	}
	if err := data.SumFloats(res.losses); err != nil {
		return res, err
	}
	if c.dir != "" {
		state.Step = c.to
		if err := ckpt.NewSaver(r.World, c.dir, ckpt.Config{}).Save(context.Background(), state); err != nil {
			return res, err
		}
	}
	wire := mesh.Group("ep").Stats().Wire
	res.sent = wire["alltoallv"]
	res.planned = wire["alltoall"]
	if c.Capacity > 0 {
		res.sent, res.planned = res.sent+wire["alltoall"], data.Stats().Wire["allgather"]
	}
	res.last, err = disttest.Whole(r.World, params...)
	return res, err
}

// load reads the checkpoint before this run's steps.
func (c training) load(r *dist.Rank, state *ckpt.State) ([]int64, error) {
	report, err := ckpt.Load(context.Background(), r.World, filepath.Join(c.dir, fmt.Sprintf("step-%08d", c.from)), state, ckpt.LoadConfig{})
	if err != nil {
		return nil, err
	}
	return dist.AllGatherObject(r.World, report.BytesRead)
}

// loss is of 11 sequences over the ranks of data.
func (c training) loss(m *model, tape *tensor.Tape, data *dist.Group, batch int) nn.T {
	const total = 11
	first, n := disttest.Part(total, data.Rank(), data.Size())
	if c.idle {
		if first, n = disttest.Part(total, max(data.Rank()-1, 0), data.Size()-1); data.Rank() == 0 {
			n = 0
		}
	}
	all := values(20*total, 3, 3)
	at := data.Rows(first, total)
	if c.stepRows {
		at = data.Rows(batch%2*total+first, 2*total)
	}
	x := tape.Input(tensor.FromSlice(all[(batch*total+first)*9:][:n*9], n, 3, 3).WithRows(at))
	block := plainly
	if c.again {
		block = checkpointed
	}
	return nn.MSE(block(tape, m.Forward, x), x.Slice(2, 0, 2).Tanh())
}

func (res result) requireEqual(t *testing.T, want result) {
	t.Helper()
	require.Equal(t, want.first, res.first, "initial parameters")
	require.InDeltaSlice(t, want.losses, res.losses, 1e-10)
	require.InDeltaSlice(t, want.norms, res.norms, 1e-10)
	require.InDeltaSlice(t, want.last, res.last, 1e-10)
	require.Equal(t, want.loads, res.loads)
}

// layouts are ranks that share tokens, experts, and the hidden features of experts.
var layouts = []training{
	{dp: 2}, {ep: 2}, {ep: 4}, {dp: 2, ep: 2}, {dp: 3, idle: true}, {ep: 4, idle: true}, {ep: 2, again: true}, {ep: 4, idle: true, again: true},
	{ep: 2, fsdp: true}, {dp: 2, ep: 2, fsdp: true}, {tp: 2}, {ep: 2, tp: 2}, {ep: 2, tp: 3, fsdp: true, again: true},
}

// on returns c on other ranks.
func (c training) on(l training) training {
	l.Config, l.rate, l.launch, l.stepRows = c.Config, c.rate, c.launch, c.stepRows
	return l
}

// However ranks share tokens and experts, they train as one rank does. Without RINGO_LONG=1 each router has every third layout, and each
// layout some of the routers.
func TestRanksEqualOne(t *testing.T) {
	for turn, name := range slices.Sorted(maps.Keys(routers)) {
		router := routers[name]
		for k, capacity := range []float64{0, 0.9} {
			c := training{Config: moe.Config{Features: 5, Hidden: 6, Experts: 8, Router: router, Shared: 6, Balance: 0.1, Z: 0.1, Capacity: capacity}}
			if router.Bias {
				c.rate = 0.01
			}
			if name == "qwen" {
				c.GELU, c.Sequence = true, 3
			}
			want, err := c.run()
			require.NoError(t, err)
			dropped := slices.ContainsFunc(want.loads, func(l moe.Load) bool { return l.Dropped > 0 })
			require.Equal(t, capacity > 0, dropped)
			for i, l := range layouts {
				if (i+turn+k)%3 > 0 && os.Getenv("RINGO_LONG") != "1" {
					continue
				}
				t.Run(fmt.Sprintf("%s %g %v", name, capacity, l), func(t *testing.T) {
					got, err := c.on(l).run()
					require.NoError(t, err)
					got.requireEqual(t, want)
				})
			}
		}
	}
}

// A capacity is of the tokens of a step, in all microbatches. A rank without tokens has as many places as the others.
func TestCapacityOfMicrobatches(t *testing.T) {
	c := training{Config: moe.Config{Features: 5, Hidden: 6, Experts: 8, Router: routers["mixtral"], Capacity: 0.4}, stepRows: true, to: 3}
	want, err := c.run()
	require.NoError(t, err)
	require.NotZero(t, want.loads[0].Dropped)
	for _, l := range []training{{ep: 2, idle: true}, {ep: 4, idle: true, again: true}, {dp: 2, ep: 2, idle: true, fsdp: true}} {
		l.to = c.to
		got, err := c.on(l).run()
		require.NoError(t, err, "%v", l)
		got.requireEqual(t, want)
	}
}

// Slots that travel in 16 bits are a quarter of the bytes of float64, and near to what they were.
func TestHalfSlots(t *testing.T) {
	for _, capacity := range []float64{0, 0.9} {
		c := training{Config: moe.Config{Features: 5, Hidden: 6, Experts: 8, Router: routers["mixtral"], Shared: 6, Capacity: capacity}, ep: 2}
		want, err := c.run()
		require.NoError(t, err)
		c.half = true
		got, err := c.run()
		require.NoError(t, err)
		require.InDeltaSlice(t, want.losses, got.losses, 0.01)
		require.NotEqual(t, want.losses, got.losses)
		require.Equal(t, want.sent, 4*got.sent)
	}
}

// A layer that is computed again keeps its routing: it plans, and says what it sends, once.
func TestRoutingIsKept(t *testing.T) {
	for _, capacity := range []float64{0, 1.25} {
		c := training{Config: moe.Config{Features: 5, Hidden: 6, Experts: 8, Router: routers["mixtral"], Capacity: capacity}, ep: 2, to: 2}
		want, err := c.run()
		require.NoError(t, err)
		c.again = true
		got, err := c.run()
		require.NoError(t, err)
		got.requireEqual(t, want)
		require.NotZero(t, want.planned)
		require.Equal(t, want.planned, got.planned, "capacity %g", capacity)
	}
}

// Forced experts are as many times chosen, on every layout, and the loads say that nobody chose.
func TestForced(t *testing.T) {
	c := training{Config: moe.Config{Features: 5, Hidden: 6, Experts: 6, Router: router.Config{Top: 2, Forced: true}}, to: 2}
	want, err := c.run()
	require.NoError(t, err)
	require.Equal(t, moe.Load{Chosen: []int64{22, 22, 22, 22, 22, 22}, Forced: true}, want.loads[0])
	for _, l := range []training{{ep: 2}, {ep: 3}, {dp: 2, tp: 2}, {ep: 3, idle: true, again: true}} {
		l.to = 2
		got, err := c.on(l).run()
		require.NoError(t, err)
		got.requireEqual(t, want)
	}
	err = tensor.Try(func() {
		moe.NewBalancer(0.1, moe.NewLayer(moe.Config{Features: 5, Hidden: 6, Experts: 6, Router: router.Config{Top: 2, Bias: true, Forced: true}}))
	})
	require.ErrorContains(t, err, "layer 0 does not choose its experts (router.Config.Forced): no bias changes that")
}
