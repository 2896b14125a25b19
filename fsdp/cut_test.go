package fsdp_test

import (
	"context"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
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
	mesh  string
	ranks int
	cfg   fsdp.Config
	micro int
	model func() cutModel
	even  bool                                                             // ranks have the same number of rows
	with  func(m *dist.Mesh, n cutModel, c fsdp.Config) (nn.Params, error) // in place of one Sharding
	look  func(s *fsdp.Sharding, params nn.Params)
}

type cutResult struct {
	result
	first []float64 // parameters before training
}

func (j cutJob) run(t *testing.T) (res cutResult) {
	t.Helper()
	var mu sync.Mutex
	err := dist.Run(context.Background(), dist.Config{Ranks: max(j.ranks, 1), Threads: 1, Timeout: 20 * time.Second, Log: io.Discard}, func(_ context.Context, r *dist.Rank) error {
		mine, err := j.rank(r)
		mu.Lock()
		defer mu.Unlock()
		if r.World.Rank() == 0 {
			res = mine
		}
		return err
	})
	require.NoError(t, err)
	return res
}

// attach cuts the model, and cuts what each rank has of it.
func (j cutJob) attach(r *dist.Rank, n cutModel) (nn.Params, *dist.Group, *fsdp.Sharding, error) {
	c := j.cfg
	c.DType, c.Seed = tensor.Float64, 7
	if j.mesh == "" {
		return nn.Init(n, r.Device, c.DType, c.Seed), r.World, nil, nil
	}
	m, err := r.Mesh(j.mesh)
	if err != nil {
		return nil, nil, nil, err
	}
	n.cut(m)
	c.Shard, c.Replicate = n.sharding(m)
	if j.with != nil {
		params, err := j.with(m, n, c)
		return params, n.rows(m), nil, err
	}
	s := fsdp.New(c)
	n.units(s, m)
	params, err := s.Attach(n)
	return params, n.rows(m), s, err
}

func (j cutJob) rank(r *dist.Rank) (res cutResult, err error) {
	const batch = 24
	n := j.model()
	params, rows, s, err := j.attach(r, n)
	if err != nil {
		return res, err
	}
	if res.first, err = disttest.Whole(r.World, params...); err != nil {
		return res, err
	}
	opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 1e-2, WeightDecay: 0.1, Clip: 0.5, Norm: r.World})
	tape := tensor.NewTape(r.Device)
	defer tape.Close()
	set := disttest.Dataset{DType: tensor.Float64, Features: width}
	micro := max(j.micro, 1)
	for step := range 10 {
		sum := 0.0
		for m := range micro {
			first, k := disttest.Part(batch/micro, rows.Rank(), rows.Size())
			if j.even {
				k = batch / micro / rows.Size()
				first = rows.Rank() * k
			}
			first += m * batch / micro
			x, y := set.Samples(r.Device, step*batch+first, k)
			loss := nn.CrossEntropy(n.Forward(tape.Input(x.WithRows(rows.Rows(first, batch)))), y)
			sum += loss.Item()
			if m < micro-1 {
				tape.Backward(loss, tensor.More())
			} else {
				tape.Backward(loss)
			}
			tape.Reset()
		}
		if err := opt.Step(); err != nil {
			return res, err
		}
		res.losses, res.norms = append(res.losses, sum), append(res.norms, opt.GradNorm())
	}
	if err := rows.SumFloats(res.losses); err != nil {
		return res, err
	}
	if j.look != nil && s != nil {
		j.look(s, params)
	}
	res.params, err = disttest.Whole(r.World, params...)
	return res, err
}

// equals compares a training with the one on one rank: to the bit at the beginning.
func (j cutJob) equals(t *testing.T, want cutResult) {
	t.Helper()
	got := j.run(t)
	require.Equal(t, want.first, got.first, "%s: initial values", j.mesh)
	requireClose(t, want.result, got.result, 1e-10, "%s, %+v", j.mesh, j.cfg)
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
	return &mixer{In: nn.NewLinear(width, width), QKV: tensor.NewParam(tensor.KaimingUniform(width), 3*wide, width), Gain: tensor.NewParam(tensor.UniformInit(0.5, 1), perHead),
		Out: tensor.NewParam(tensor.KaimingUniform(wide), width, wide), Norm: nn.NewLayerNorm(width)}
}

func newMixerAgain() cutModel {
	n := newMixer().(*mixer)
	n.again = true
	return n
}

func (n *mixer) cut(m *dist.Mesh) {
	n.tp = m.Group("tp")
	wide, k := heads*perHead, heads*perHead/n.tp.Size()
	lo := n.tp.Rank() * k
	var boxes []tensor.Box
	for i := range 3 {
		boxes = append(boxes, tensor.Box{Lo: []int{i*wide + lo, 0}, Hi: []int{i*wide + lo + k, width}})
	}
	n.QKV.Cut([]int{3 * k, width}, boxes...)
	n.Out.Cut([]int{width, k}, tensor.Box{Lo: []int{0, lo}, Hi: []int{width, lo + k}})
	for _, p := range []*tensor.Param{n.QKV, n.Out} {
		p.Lay(n.tp.Axes(), tensor.Cut)
	}
	n.Gain.Through(&autograd.Copy{Group: n.tp})
	for _, p := range append(nn.Within(n.In), append(nn.Within(n.Norm), n.Gain)...) { // whole on all ranks of tp
		p.NarrowCounts(n.tp.Rank() == 0)
	}
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

// Column and row parallel layers, cut once more, with copies, microbatches and recomputation.
func TestCutByHeads(t *testing.T) {
	for _, model := range []func() cutModel{newMixer, newMixerAgain} {
		j := cutJob{model: model, micro: 2}
		want := j.run(t)
		require.Less(t, want.losses[9], 0.9*want.losses[0])
		require.Greater(t, want.norms[0], 0.5, "clipping does something")
		for stage := 1; stage <= 3; stage++ {
			j.cfg.Stage = stage
			for mesh, ranks := range map[string]int{"dp=1,fsdp=2,tp=2": 4, "dp=1,fsdp=3,tp=1": 3, "dp=2,fsdp=1,tp=4": 8, "dp=2,fsdp=2,tp=2": 8} {
				j.mesh, j.ranks, j.cfg.HoldGrads = mesh, ranks, ranks == 8
				j.equals(t, want)
			}
		}
	}
}

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
	k := expertsOfModel / n.ep.Size()
	n.Experts.Cut([]int{k, width, width}, tensor.Box{Lo: []int{n.ep.Rank() * k, 0, 0}, Hi: []int{(n.ep.Rank() + 1) * k, width, width}})
	n.Experts.Lay(n.ep.Axes(), tensor.Cut)
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
	y = tensor.GroupedLinear(tensor.Concat(0, all...), t.Use(n.Experts), t.Input(tensor.FromSlice(counts, k))).Tanh()
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
	j := cutJob{model: newExperts, micro: 2, even: true}
	want := j.run(t)
	require.Less(t, want.losses[9], 0.9*want.losses[0])
	j.look = func(s *fsdp.Sharding, params nn.Params) { requireFull(t, s, params) }
	for stage := 1; stage <= 3; stage++ {
		j.cfg.Stage = stage
		for mesh, ranks := range map[string]int{"edp=2,ep=2": 4, "edp=3,ep=2": 6, "edp=1,ep=4": 4, "edp=2,ep=1": 2} {
			j.mesh, j.ranks, j.cfg.HoldGrads = mesh, ranks, ranks == 6
			j.equals(t, want)
		}
	}
}

// requireFull compares Full and StateDict with what the shards say.
func requireFull(t *testing.T, s *fsdp.Sharding, params nn.Params) {
	dict, err := s.StateDict()
	require.NoError(t, err)
	for _, p := range params {
		want, err := disttest.Whole(s.Groups()[0], p)
		require.NoError(t, err)
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
	j := cutJob{model: newMixer, mesh: "dp=1,fsdp=2,tp=2", ranks: 4}
	j.look = func(s *fsdp.Sharding, params nn.Params) {
		_, err := s.Full(params.ByName("qkv"))
		require.EqualError(t, err, "fsdp: qkv: the ranks of Config.Shard hold 126 of the 252 elements of [36 7]; for the others, save a checkpoint")
		_, err = s.StateDict()
		require.ErrorContains(t, err, "fsdp: qkv:")
	}
	j.run(t)
}

// Two Shardings of one model: what one of them ignores it does not make, and what the first one has the second one leaves alone.
func TestTwoAttaches(t *testing.T) {
	j := cutJob{model: newExperts, even: true}
	want := j.run(t)
	names := nn.ParamsOf(newExperts()).Names()
	j.mesh, j.ranks = "edp=2,ep=2", 4
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
	j.equals(t, want)
}

// A unit's ranks are ranks of the Config, and hold the same elements.
func TestUnitOverErrors(t *testing.T) {
	for want, groups := range map[string]func(m *dist.Mesh) (all, unit *dist.Group){
		"begin with rank 1 where rank 0 has Config.Shard and Config.Replicate that begin with rank 0": func(m *dist.Mesh) (all, unit *dist.Group) {
			return m.Group("edp"), m.Group("edp", "ep")
		},
		"fsdp: ranks differ: rank 1 has unit 1 (experts) keep=false float64 float64: experts[2 7 7] of boxes [{[2 0 0] [4 7 7]}] where rank 0 has": func(m *dist.Mesh) (all, unit *dist.Group) {
			return m.Group("edp", "ep"), nil
		},
	} {
		err := onRanks(4, func(r *dist.Rank) error {
			m, err := r.Mesh("edp=2,ep=2")
			if err != nil {
				return err
			}
			n := newExperts().(*experts)
			n.cut(m)
			all, unit := groups(m)
			s := fsdp.New(fsdp.Config{Shard: all, DType: tensor.Float64})
			s.Unit(n.In)
			if u := s.Unit(n.Experts); unit != nil {
				u.Over(unit, nil)
			}
			s.Unit(n.Head)
			_, err = s.Attach(n)
			return err
		})
		require.ErrorContains(t, err, want)
	}
	failure := tensor.Try(func() { fsdp.New(fsdp.Config{}).Unit(nn.NewLinear(1, 1)).Over(nil, nil) })
	require.ErrorContains(t, failure, "fsdp: Unit.Over: the group of the ranks that share the unit is nil")
}
