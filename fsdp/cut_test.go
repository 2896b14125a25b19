package fsdp_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// cutModel is a model that cuts parameters over a mesh, and what is left of them into units.
type cutModel interface {
	nn.Layer
	cut(m *dist.Mesh)
	units(s *fsdp.Sharding, m *dist.Mesh)
	sharding(m *dist.Mesh) (shard, replicate *dist.Group)
	rows(m *dist.Mesh) *dist.Group // whose ranks have different rows
}

// cutJob is a training in float64 on a mesh; without one, on one rank.
type cutJob struct {
	training
	cfg      fsdp.Config
	model    func() cutModel
	with     func(m *dist.Mesh, n cutModel, c fsdp.Config) (nn.Params, error) // in place of one Sharding
	look     func(s *fsdp.Sharding, params nn.Params)
	deferred bool // weight gradients are put off
}

// evenly gives ranks the same number of rows.
func evenly(rows, rank, ranks int) (first, n int) { return rows / ranks * rank, rows / ranks }

func (j cutJob) run(t *testing.T) disttest.Result {
	t.Helper()
	j.Name = fmt.Sprintf("%+v", j.cfg)
	j.Attach = func(r *dist.Rank, m *dist.Mesh) (disttest.Attached, error) {
		n := j.model()
		a, err := j.attach(r, m, n)
		a.Norm, a.Loss = r.World, func(b disttest.Batch) nn.T {
			x, y := b.Samples(disttest.Dataset{DType: tensor.Float64, Features: width})
			return nn.CrossEntropy(n.Forward(x), y)
		}
		if j.deferred {
			a.Step = deferring(2, a.Loss)
		}
		return a, err
	}
	return j.training.Run(t)
}

// attach cuts the model, and cuts what each rank has of it.
func (j cutJob) attach(r *dist.Rank, m *dist.Mesh, n cutModel) (a disttest.Attached, err error) {
	c := j.cfg
	c.DType, c.Seed = tensor.Float64, 7
	if m == nil {
		a.Params = nn.Init(n, r.Device, c.DType, c.Seed)
		return a, nil
	}
	n.cut(m)
	a.Data = n.rows(m)
	c.Shard, c.Replicate = n.sharding(m)
	if j.with != nil {
		a.Params, err = j.with(m, n, c)
		return a, err
	}
	s := fsdp.New(c)
	n.units(s, m)
	a.Params, err = s.Attach(n)
	a.End = func(*disttest.State) error {
		if j.look != nil {
			j.look(s, a.Params)
		}
		return nil
	}
	return a, err
}

const heads, perHead = 4, 3

// mixer has a fused matrix of queries, keys and values that is cut by heads, a matrix that is cut by rows of its input, and a
// gain that all heads share.
type mixer struct {
	In    *nn.Linear
	QKV   *tensor.Param
	Gain  *tensor.Param
	Out   *tensor.Param
	Norm  *nn.LayerNorm
	tp    *dist.Group
	again bool // run the block again in Backward
}

func newMixer() cutModel {
	wide := heads * perHead
	return &mixer{In: nn.NewLinear(width, width), QKV: tensor.NewParam(tensor.KaimingUniform(width), 3*wide, width),
		Gain: tensor.NewParam(tensor.UniformInit(0.5, 1), perHead), Out: tensor.NewParam(tensor.KaimingUniform(wide), width, wide),
		Norm: nn.NewLayerNorm(width)}
}

func newMixerAgain() cutModel {
	n := newMixer().(*mixer)
	n.again = true
	return n
}

func (n *mixer) cut(m *dist.Mesh) {
	n.tp = m.Group("tp")
	wide := heads * perHead
	n.QKV.Place(n.tp.Axis(), layout.Division{Parts: []int{wide, wide, wide}, Unit: perHead})
	n.Out.Place(n.tp.Axis(), layout.Division{Dim: 1, Unit: perHead})
	n.Gain.Through(&autograd.Copy{Group: n.tp})
}

func (n *mixer) sharding(m *dist.Mesh) (shard, replicate *dist.Group) {
	return m.Group("fsdp"), m.Group("dp")
}

func (n *mixer) rows(m *dist.Mesh) *dist.Group { return m.Group("dp", "fsdp") }

func (n *mixer) units(s *fsdp.Sharding, _ *dist.Mesh) {
	s.Keep(n.In, n.Norm)
	s.Unit(n.QKV, n.Gain, n.Out)
}

func (n *mixer) Forward(x nn.T) nn.T {
	x = n.In.Forward(x)
	if n.again {
		return n.Norm.Forward(x.Tape().Checkpoint(func(in ...nn.T) nn.T { return n.block(in[0]) }, x))
	}
	return n.Norm.Forward(n.block(x))
}

func (n *mixer) block(x nn.T) nn.T {
	t, h := x.Tape(), x.Tanh()
	if n.tp != nil {
		h = t.Apply(&autograd.Copy{Group: n.tp}, h)
	}
	k := n.QKV.Dims()[0] / 3
	y := tensor.Linear(h, t.Use(n.QKV), nn.T{})
	a := y.Slice(1, 0, k).Mul(y.Slice(1, k, 2*k)).Tanh().Mul(y.Slice(1, 2*k, 3*k))
	a = a.Reshape(x.Dim(0)*k/perHead, perHead).Mul(t.Use(n.Gain)).Reshape(x.Dim(0), k)
	y = tensor.Linear(a, t.Use(n.Out), nn.T{})
	if n.tp != nil {
		y = t.Apply(&autograd.Sum{Group: n.tp}, y)
	}
	return y.Add(x)
}

// Column and row parallel layers, cut once more, with copies, microbatches and recomputation. In the short form the model has one of the
// meshes in a stage, and with recomputation it has stage 3.
func TestCutByHeads(t *testing.T) {
	for k, model := range []func() cutModel{newMixer, newMixerAgain} {
		j := cutJob{model: model}
		want := j.run(t)
		want.Learns(t, 0.9)
		require.Greater(t, want.Norms[0], 0.5, "clipping does something")
		for stage := 1; stage <= 3; stage++ {
			j.cfg.Stage = stage
			for i, mesh := range []string{"dp=1,fsdp=2,tp=2", "dp=1,fsdp=3,tp=1", "dp=2,fsdp=2,tp=2", "dp=2,fsdp=1,tp=4"} {
				if j.Mesh, j.cfg.OncePerStep = mesh, i > 1; (i+k+stage)%4 == 2 && stage >= 3*k || reliability.Long(t) {
					disttest.RequireEqual(t, want, j.run(t), 1e-10)
				}
			}
		}
	}
}

func TestLongCutByHeads(t *testing.T) { reliability.AsLong(t, TestCutByHeads) }

const expertsOfModel = 4

// experts is a layer of stacked experts, all of which see all tokens, between two others.
type experts struct {
	In, Head *nn.Linear
	Experts  *tensor.Param // [experts, width, width]
	ep       *dist.Group
}

func newExperts() cutModel {
	return &experts{In: nn.NewLinear(width, width), Head: nn.NewLinear(width, width),
		Experts: tensor.NewParam(tensor.KaimingUniform(width), expertsOfModel, width, width)}
}

func (n *experts) cut(m *dist.Mesh) {
	n.ep = m.Group("ep")
	n.Experts.Place(n.ep.Axis(), layout.Division{})
}

func (n *experts) sharding(m *dist.Mesh) (shard, replicate *dist.Group) {
	return m.Group("edp", "ep"), nil
}

func (n *experts) rows(m *dist.Mesh) *dist.Group { return m.Group("edp", "ep") }

func (n *experts) units(s *fsdp.Sharding, m *dist.Mesh) {
	s.Unit(n.In)
	s.Unit(n.Experts).Over(m.Group("edp"), nil)
	s.Unit(n.Head)
}

func (n *experts) Forward(x nn.T) nn.T {
	t, h := x.Tape(), n.In.Forward(x)
	y := h
	if n.ep != nil {
		y = t.Apply(&autograd.AllGather{Group: n.ep}, y)
	}
	k, rows := n.Experts.Dims()[0], y.Dim(0)
	all, counts := make([]nn.T, k), make([]int64, k)
	for i := range k {
		all[i], counts[i] = y, int64(rows)
	}
	y = ops.GroupedLinear(tensor.Concat(0, all...), t.Use(n.Experts), t.Input(tensor.FromSlice(counts, k))).Tanh()
	sum := y.Slice(0, 0, rows)
	for i := 1; i < k; i++ {
		sum = sum.Add(y.Slice(0, i*rows, (i+1)*rows))
	}
	if n.ep != nil {
		sum = t.Apply(&autograd.ReduceScatter{Group: n.ep}, sum)
	}
	return n.Head.Forward(sum.Add(h))
}

// Experts are cut over the ranks that hold the same ones, everything else over all ranks.
func TestUnitOverItsOwnRanks(t *testing.T) {
	j := cutJob{training: training{Batch: 24, Part: evenly}, model: newExperts}
	want := j.run(t)
	want.Learns(t, 0.9)
	j.look = func(s *fsdp.Sharding, params nn.Params) { requireFull(t, s, params) }
	for stage := 1; stage <= 3; stage++ {
		j.cfg.Stage = stage
		for j.Mesh, j.cfg.OncePerStep = range map[string]bool{"edp=2,ep=2": false, "edp=3,ep=2": true, "edp=1,ep=4": false, "edp=2,ep=1": false} {
			if (stage == 3 && j.Mesh == "edp=2,ep=2" || stage == 2 && j.cfg.OncePerStep) != reliability.Long(t) {
				disttest.RequireEqual(t, want, j.run(t), 1e-10)
			}
		}
	}
}

func TestLongUnitOverItsOwnRanks(t *testing.T) { reliability.AsLong(t, TestUnitOverItsOwnRanks) }

// requireFull compares Full and StateDict with what the shards say.
func requireFull(t *testing.T, s *fsdp.Sharding, params nn.Params) {
	dict, err := s.StateDict()
	require.NoError(t, err)
	for _, p := range params {
		wholes, err := disttest.Wholes(s.Groups()[0], nn.Params{p})
		require.NoError(t, err)
		want := wholes[p.Name()]
		full, err := s.Full(p)
		require.NoError(t, err)
		require.Equal(t, p.Global(), full.Shape().Dims, p.Name())
		require.Equal(t, want, tensor.Floats(full), p.Name())
		if dict != nil {
			require.Equal(t, want, tensor.Floats(dict[p.Name()]), p.Name())
		}
	}
}

// What tensor parallelism has elsewhere, Full says that it does not have.
func TestFullOfPartsElsewhere(t *testing.T) {
	j := cutJob{training: training{Mesh: "dp=1,fsdp=2,tp=2"}, model: newMixer}
	j.look = func(s *fsdp.Sharding, params nn.Params) {
		_, err := s.Full(params.ByName("qkv"))
		require.EqualError(t, err,
			"fsdp: qkv: the ranks of Config.Shard hold 126 of the 252 elements of [36 7]; for the others, save a checkpoint")
		_, err = s.StateDict()
		require.ErrorContains(t, err, "fsdp: qkv:")
	}
	j.run(t)
}

// Two Shardings of one model: what one of them ignores it does not make, and what the first one has the second one leaves alone.
func TestTwoAttaches(t *testing.T) {
	j := cutJob{training: training{Batch: 24, Part: evenly}, model: newExperts}
	want := j.run(t)
	names := nn.ParamsOf(newExperts()).Names()
	j.Mesh = "edp=2,ep=2"
	j.with = func(m *dist.Mesh, model cutModel, c fsdp.Config) (nn.Params, error) {
		n := model.(*experts)
		dense := fsdp.New(c)
		dense.Unit(n.In)
		dense.Keep(n.Head)
		dense.Ignore(n.Experts)
		if _, err := dense.Attach(n); err != nil {
			return nil, err
		}
		require.True(t, n.Experts.Value.IsZero(), "it is not this one's")
		again := fsdp.New(c)
		again.Unit(n)
		_, err := again.Attach(n)
		require.ErrorContains(t, err, "fsdp: in.weight is attached already: its gradient belongs to fsdp")
		c.Shard = m.Group("edp")
		s := fsdp.New(c)
		s.Unit(n.Experts)
		params, err := s.Attach(n)
		require.NoError(t, err)
		require.Equal(t, names, params.Names())
		_, err = s.Full(n.In.W)
		require.ErrorContains(t, err, "in.weight belongs to fsdp")
		return params, nil
	}
	disttest.RequireEqual(t, want, j.run(t), 1e-10)
}

// A unit's ranks are ranks of the Config, and hold the same elements.
func TestUnitOverErrors(t *testing.T) {
	for want, groups := range map[string]func(m *dist.Mesh) (all, unit *dist.Group){
		"begin with rank 1 where rank 0 has Config.Shard and Config.Replicate that " +
			"begin with rank 0": func(m *dist.Mesh) (all, unit *dist.Group) {
			return m.Group("edp"), m.Group("edp", "ep")
		},
		"fsdp: ranks differ: rank 1 has unit 1 (experts) keep=false float64 float64: " +
			"experts[2 7 7] of boxes [{[2 0 0] [4 7 7]}] where rank 0 has": func(m *dist.Mesh) (all, unit *dist.Group) {
			return m.Group("edp", "ep"), nil
		},
	} {
		err := disttest.OnRanks(4, func(r *dist.Rank) error {
			m := disttest.Must(r.Mesh("edp=2,ep=2"))
			n := newExperts().(*experts)
			n.cut(m)
			all, unit := groups(m)
			s := fsdp.New(fsdp.Config{Shard: all, DType: tensor.Float64})
			s.Unit(n.In)
			if u := s.Unit(n.Experts); unit != nil {
				u.Over(unit, nil)
			}
			s.Unit(n.Head)
			_, err := s.Attach(n)
			return err
		})
		require.ErrorContains(t, err, want)
	}
	failure := tensor.Try(func() { fsdp.New(fsdp.Config{}).Unit(nn.NewLinear(1, 1)).Over(nil, nil) })
	require.ErrorContains(t, failure, "fsdp: Unit.Over: the group of the ranks that share the unit is nil")
}
