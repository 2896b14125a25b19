package autograd_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// model is what a job trains.
type model interface {
	cut(m *ranks)                     // keeps only this rank's part; not called without a mesh
	units(s *fsdp.Sharding, m *ranks) // makes the units of the rest
	loss(b disttest.Batch) nn.T
}

// ranks are those of a mesh. On axes dp, fsdp and ep they have different rows, on cp other parts of the same sequences.
type ranks struct {
	*dist.Mesh
	axes string
	sum  *dist.Group                       // over these, ddp sums gradients, or fsdp cuts the rest of the model; nil: neither
	over func(p *tensor.Param) *dist.Group // the same for experts; nil for other parameters
}

// newRanks returns the ranks of a right program.
func newRanks(m *dist.Mesh, axes string) *ranks {
	g := &ranks{Mesh: m, axes: "," + axes}
	copies := "dp"
	if g.has("fsdp") {
		copies = "fsdp"
	}
	g.sum = g.Group(copies, "ep", "cp")
	g.over = func(p *tensor.Param) *dist.Group {
		if g.has("ep") && p.IsCut() {
			return g.Group(copies)
		}
		return nil
	}
	return g
}

func (g *ranks) has(axis string) bool { return strings.Contains(g.axes, ","+axis+"=") }

// Group ignores axes that the mesh does not have.
func (g *ranks) Group(axes ...string) *dist.Group {
	return g.Mesh.Group(slices.DeleteFunc(axes, func(a string) bool { return !g.has(a) })...)
}

// attach sums gradients with fsdp if there is such an axis, otherwise with ddp.
func (g *ranks) attach(n model, dev tensor.Device, seed uint64) (nn.Params, error) {
	switch {
	case g.has("fsdp"):
		s := fsdp.New(fsdp.Config{Shard: g.sum, Replicate: g.Group("dp"), DType: tensor.Float64, Seed: seed})
		n.units(s, g)
		return s.Attach(n)
	case g.sum == nil:
		return nn.Init(n, dev, tensor.Float64, seed), nil
	}
	return ddp.Attach(g.sum, n, ddp.Config{DType: tensor.Float64, Seed: seed, BucketBytes: 300, Over: g.over})
}

type training = disttest.Training

// job is a training of a model that Mesh divides. Without a mesh, one rank has the whole model.
type job struct {
	training
	model         func() model
	change        func(n model, g *ranks) // before Attach
	seed          uint64                  // of the parameters
	start, before func(s *disttest.State) error
	end           func(n model, s *disttest.State) error
}

func (c job) run(t *testing.T) disttest.Result {
	t.Helper()
	return c.whole().Run(t)
}

func (c job) whole() training {
	c.Attach = func(r *dist.Rank, m *dist.Mesh) (a disttest.Attached, err error) {
		n, g := c.model(), &ranks{}
		a = disttest.Attached{Norm: r.World, Loss: n.loss, Start: c.start, Before: c.before}
		if m != nil {
			g = newRanks(m, c.Mesh)
			n.cut(g)
			a.Data, a.Sum = g.Group("dp", "fsdp", "ep"), g.Group("dp", "fsdp", "ep", "cp", "pp")
		}
		if c.change != nil {
			c.change(n, g)
		}
		if p, ok := n.(*pipeline); ok && m != nil {
			a.Step = p.step
		}
		if c.end != nil {
			a.End = func(s *disttest.State) error { return c.end(n, s) }
		}
		a.Params, err = g.attach(n, r.Device, c.seed)
		return a, err
	}
	return c.training
}

var savedStep = disttest.Steps / 2

// state is what is saved and loaded.
func state(s *disttest.State) ckpt.State {
	return ckpt.State{Step: s.Step, Params: s.Params, Optimizer: s.Optimizer, Tape: s.Tape}
}

// saving returns a job that saves savedStep, and the values that it saves.
func (c job) saving(dir string) (job, *disttest.Values) {
	var saved disttest.Values
	c.before = func(s *disttest.State) error {
		if s.Step != savedStep {
			return nil
		}
		values, err := disttest.Wholes(s.Rank.World, s.Params)
		if s.Rank.World.Rank() == 0 {
			saved = values
		}
		w := ckpt.NewSaver(s.Rank.World, dir, ckpt.Config{})
		return errors.Join(err, w.Save(context.Background(), state(s)), w.Close())
	}
	return c, &saved
}

// loading returns a job that continues from savedStep.
func (c job) loading(dir string) job {
	c.seed = 4 // all values come from the checkpoint
	c.start = func(s *disttest.State) error {
		st := state(s)
		var cfg ckpt.LoadConfig
		if strings.Contains(c.Mesh, "pp=") {
			cfg.Strategy = ckpt.Owned
		}
		_, err := ckpt.Load(context.Background(), s.Rank.World, filepath.Join(dir, fmt.Sprintf("step-%08d", savedStep)), &st, cfg)
		s.Step = st.Step
		return err
	}
	return c
}

// requireOneRank requires that a model trains on each mesh as on one rank, from initial values with the same bits. Then each mesh continues
// from a checkpoint of the mesh before it, in a circle that includes one rank, from the bits that were saved.
func requireOneRank(t *testing.T, c job, meshes ...string) {
	t.Helper()
	t.Parallel() // to flush checkpoints takes time, but no CPU
	dir := t.TempDir()
	one, saved := c.saving(dir)
	want := one.run(t)
	want.Learns(t, 0.95)
	require.Greater(t, want.Norms[0], 0.4, "clipping does something")
	for _, c.Mesh = range append(meshes, c.Mesh) {
		disttest.RequireEqual(t, want.Since(savedStep, *saved), c.loading(dir).run(t), 1e-10)
		if c.Mesh == "" {
			break // want is of one rank
		}
		dir = t.TempDir()
		var whole job
		whole, saved = c.saving(dir)
		disttest.RequireEqual(t, want, whole.run(t), 1e-10)
	}
}

// turns are the meshes of a parity test: one of them, by its number, and in the long form all.
func turns(t *testing.T, which int, meshes ...string) []string {
	if reliability.Long(t) {
		return meshes
	}
	which %= len(meshes)
	return meshes[which : which+1]
}

// wrong changes one thing in a right program. The error that it makes contains want.
type wrong[M model] struct {
	change func(m M, g *ranks)
	want   string
}

// requireRefused requires that wrong programs fail before a step is trained.
func requireRefused[M model](t *testing.T, c job, programs map[string]wrong[M]) {
	t.Helper()
	for name, w := range programs {
		t.Run(name, func(t *testing.T) {
			c := c
			c.change = func(n model, g *ranks) { w.change(n.(M), g) }
			res, err := c.whole().Try()
			require.Error(t, err)
			text, _, _ := strings.Cut(err.Error(), "\ngoroutine")
			require.Contains(t, text, w.want)
			require.Empty(t, res.Norms, "steps were trained")
		})
	}
}

// requireDiffers requires that a wrong program, which types do not notice, trains otherwise than one rank.
func requireDiffers(t *testing.T, want disttest.Result, c job) {
	t.Helper()
	require.ErrorContains(t, c.run(t).Differs(want, 1e-4), "loss step ")
}

// share returns which of total elements a rank has.
func share(total int, g *dist.Group) (lo, hi int) { return layout.Share(total, g.Rank(), g.Size()) }

// cutAlong keeps only this rank's share of a dimension of p. The dimension has so many parts one after another (such as queries, keys and
// values), and units of some size (such as heads) stay together.
func cutAlong(g *dist.Group, p *tensor.Param, dim, parts, unit int) {
	p.Place(g.Axis(), layout.Division{Dim: dim, Parts: slices.Repeat([]int{p.Global()[dim] / parts}, parts), Unit: unit})
}

// bare returns a parameter that is cut as p is, over g, and uses no Function.
func bare(p *tensor.Param, g *dist.Group) *tensor.Param {
	q := tensor.NewParam(tensor.Constant(1), p.Global()...)
	for _, c := range p.Placement().Divisions() {
		q.Place(g.Axis(), c)
	}
	return q
}
