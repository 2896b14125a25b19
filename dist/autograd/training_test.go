package autograd_test

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// samples are n rows of the data set from row first on, and their place in the global batch.
type samples struct {
	dev      tensor.Device
	first, n int
	rows     tensor.Rows
}

// model is what a training trains.
type model interface {
	cut(m *dist.Mesh)                     // keeps only this rank's part; not called on one rank
	units(s *fsdp.Sharding, m *dist.Mesh) // makes the units of the rest
	loss(t *tensor.Tape, s samples) nn.T
}

// layout says how ranks share the work. The zero layout is one rank with the whole model.
type layout struct {
	dp   int    // copies of the model
	fsdp int    // ranks over which a copy is sharded; 0: ddp sums the gradients
	cut  string // axes along which the model is divided, such as "tp=2"
}

func (l layout) mesh() string {
	if l.cut == "" {
		return "one rank"
	}
	return fmt.Sprintf("dp=%d,fsdp=%d,%s", l.dp, max(l.fsdp, 1), l.cut)
}

func (l layout) ranks() int {
	n := 1
	for _, axis := range strings.Split(l.mesh(), ",") {
		if _, size, ok := strings.Cut(axis, "="); ok {
			k, _ := strconv.Atoi(size)
			n *= k
		}
	}
	return n
}

// axes are those along which ranks have different rows. Experts are cut over some of them.
func (l layout) axes() []string {
	if strings.HasPrefix(l.cut, "ep=") {
		return []string{"dp", "fsdp", "ep"}
	}
	return []string{"dp", "fsdp"}
}

const trainedSteps, savedStep = 10, 5

// training is ten steps of two microbatches, with dropout, weight decay and clipping, in float64.
type training struct {
	layout
	model  func() model
	change func(n model, m *dist.Mesh, all *dist.Group)             // makes the program wrong, before Attach
	over   func(n model, m *dist.Mesh, all *dist.Group) *dist.Group // replaces the ranks over which ddp sums; none if it returns nil
	saved  string                                                   // where to save a checkpoint of step 5
	from   string                                                   // such a checkpoint, from which to continue
}

// result is what rank 0 has seen. It has no losses and norms of steps before the checkpoint from which it continued.
type result struct {
	first, half, last []float64 // elements of all parameters, as wholes
	losses, norms     []float64
}

func (c training) run() (res result, err error) {
	err = dist.Run(context.Background(), dist.Config{Ranks: c.ranks(), Threads: 1, Timeout: 20 * time.Second, Log: io.Discard}, func(ctx context.Context, r *dist.Rank) error {
		mine, err := c.rank(ctx, r)
		if r.World.Rank() == 0 {
			res = mine
		}
		return err
	})
	return res, err
}

// attach divides the model. It returns the ranks that have different rows.
func (c training) attach(r *dist.Rank, n model) (params nn.Params, data *dist.Group, err error) {
	seed := uint64(3)
	if c.from != "" {
		seed = 4 // all values come from the checkpoint
	}
	if c.cut == "" {
		return nn.Init(n, r.Device, tensor.Float64, seed), r.World, nil
	}
	m, err := r.Mesh(c.mesh())
	if err != nil {
		return nil, nil, err
	}
	n.cut(m)
	if c.change != nil {
		c.change(n, m, r.World)
	}
	data = m.Group(c.axes()...)
	if c.fsdp > 0 {
		shard := m.Group(c.axes()[1:]...)
		s := fsdp.New(fsdp.Config{Shard: shard, Replicate: m.Group("dp"), DType: tensor.Float64, Seed: seed})
		n.units(s, m)
		params, err = s.Attach(n)
		return params, data, err
	}
	over := data
	if c.over != nil {
		over = c.over(n, m, r.World)
	}
	if over == nil {
		return nn.Init(n, r.Device, tensor.Float64, seed), data, nil
	}
	params, err = ddp.Attach(over, n, ddp.Config{DType: tensor.Float64, Seed: seed, BucketBytes: 500, Over: func(p *tensor.Param) *dist.Group {
		if len(p.Shard.Boxes) > 0 && len(c.axes()) == 3 { // experts
			return m.Group("dp", "fsdp")
		}
		return nil
	}})
	return params, data, err
}

func (c training) rank(ctx context.Context, r *dist.Rank) (res result, err error) {
	n := c.model()
	params, data, err := c.attach(r, n)
	if err != nil {
		return res, err
	}
	opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 0.01, WeightDecay: 0.1, Clip: 0.4, Norm: r.World})
	tape := tensor.NewTape(r.Device, tensor.Seed(9))
	defer tape.Close()
	st := ckpt.State{Params: params, Optimizer: opt, Tape: tape}
	if c.from != "" {
		if _, err := ckpt.Load(ctx, r.World, c.from, &st, ckpt.LoadConfig{}); err != nil {
			return res, err
		}
	}
	if res.first, err = disttest.Whole(r.World, params...); err != nil {
		return res, err
	}
	for ; st.Step < trainedSteps; st.Step++ {
		if st.Step == savedStep && c.from == "" {
			if res.half, err = c.save(ctx, r, st); err != nil {
				return res, err
			}
		}
		res.losses = append(res.losses, backward(r, data, n, tape, st.Step))
		if err := opt.Step(); err != nil {
			return res, err
		}
		res.norms = append(res.norms, opt.GradNorm())
	}
	if err := data.SumFloats(res.losses); err != nil {
		return res, err
	}
	res.last, err = disttest.Whole(r.World, params...)
	return res, err
}

// backward computes the gradients of a step, and returns this rank's part of its loss.
func backward(r *dist.Rank, data *dist.Group, n model, tape *tensor.Tape, step int) (sum float64) {
	const rows = 12
	for micro := range 2 {
		first, k := disttest.Part(rows, data.Rank(), data.Size())
		loss := n.loss(tape, samples{r.Device, (2*step+micro)*rows + first, k, data.Rows(rows*micro+first, 2*rows)})
		sum += loss.Item()
		if micro == 0 {
			tape.Backward(loss, tensor.More())
		} else {
			tape.Backward(loss)
		}
		tape.Reset()
	}
	return sum
}

// save writes a checkpoint, and returns the parameters in it.
func (c training) save(ctx context.Context, r *dist.Rank, st ckpt.State) ([]float64, error) {
	values, err := disttest.Whole(r.World, st.Params...)
	if err != nil || c.saved == "" {
		return values, err
	}
	s := ckpt.NewSaver(r.World, c.saved, ckpt.Config{})
	if err := s.Save(ctx, st); err != nil {
		return nil, err
	}
	return values, s.Close()
}

// requireOneRank requires that a model trains on each layout as on one rank, from initial values with the same bits. Then each layout
// continues from a checkpoint of the layout before it, in a circle that includes one rank, from the bits that were saved.
func requireOneRank(t *testing.T, make func() model, layouts ...layout) {
	t.Helper()
	t.Parallel() // to flush checkpoints takes time, but no CPU
	one := training{model: make, saved: t.TempDir()}
	want, err := one.run()
	require.NoError(t, err)
	require.Less(t, want.losses[trainedSteps-1], 0.95*want.losses[0], "it learns")
	require.Greater(t, want.norms[0], 0.4, "clipping does something")
	before, from := want, one
	for _, l := range append(layouts, layout{}) {
		c := training{layout: l, model: make, saved: t.TempDir()}
		got, err := c.run()
		require.NoError(t, err, l.mesh())
		require.Equal(t, want.first, got.first, "%s: initial values", l.mesh())
		requireClose(t, want, got, l.mesh())

		what := from.mesh() + " → " + l.mesh()
		c.from = filepath.Join(from.saved, fmt.Sprintf("step-%08d", savedStep))
		loaded, err := c.run()
		require.NoError(t, err, what)
		require.Equal(t, before.half, loaded.first, "%s: loaded values", what)
		requireClose(t, result{losses: want.losses[savedStep:], norms: want.norms[savedStep:], last: want.last}, loaded, what)
		before, from = got, c
	}
}

func requireClose(t *testing.T, want, got result, what string) {
	t.Helper()
	for name, c := range map[string][2][]float64{"loss": {want.losses, got.losses}, "norm": {want.norms, got.norms}, "parameters": {want.last, got.last}} {
		require.Len(t, c[1], len(c[0]), what)
		for i := range c[0] {
			require.InDelta(t, c[0][i], c[1][i], 1e-10, "%s: %s %d", what, name, i)
		}
	}
}

// share returns which of total elements a rank has; the first ranks have one more.
func share(total int, g *dist.Group) (lo, hi int) {
	counts := autograd.Shares(total, g.Size())
	for _, n := range counts[:g.Rank()] {
		lo += n
	}
	return lo, lo + counts[g.Rank()]
}

// cutAlong keeps only this rank's share of a dimension of p. The dimension has so many parts one after another (such as queries, keys and
// values), and units of some size (such as heads) stay together.
func cutAlong(g *dist.Group, p *tensor.Param, dim, parts, unit int) {
	whole := p.Global()[dim] / parts
	lo, hi := share(whole/unit, g)
	dims, boxes := append([]int(nil), p.Global()...), make([]tensor.Box, parts)
	dims[dim] = parts * (hi - lo) * unit
	for i := range boxes {
		b := tensor.Box{Lo: make([]int, len(dims)), Hi: append([]int(nil), p.Global()...)}
		b.Lo[dim], b.Hi[dim] = i*whole+lo*unit, i*whole+hi*unit
		boxes[i] = b
	}
	p.Cut(dims, boxes...)
	p.Lay(g.Axes(), tensor.Cut)
}

// leaveWhole marks all parameters that were not cut as whole on each rank of g.
func leaveWhole(g *dist.Group, params nn.Params) {
	for _, p := range params {
		if len(p.Shard.Boxes) == 0 {
			p.NarrowCounts(g.Rank() == 0)
		}
	}
}

// requireRefused requires that a wrong program fails before a step is trained, with an error that contains want.
func requireRefused(t *testing.T, want string, c training) {
	t.Helper()
	res, err := c.run()
	require.Error(t, err)
	text, _, _ := strings.Cut(err.Error(), "\ngoroutine")
	require.Contains(t, text, want)
	require.Empty(t, res.norms, "steps were trained")
}

// bare returns a parameter like p, cut along axes, that uses no Function.
func bare(p *tensor.Param, axes tensor.Axes) *tensor.Param {
	q := tensor.NewParam(tensor.Constant(1), p.Global()...)
	if len(p.Shard.Boxes) > 0 {
		q.Cut(p.Dims(), p.Shard.Boxes...)
		q.Lay(axes, tensor.Cut)
	}
	return q
}
