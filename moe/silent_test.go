package moe_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/moe/router"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// identity communicates nothing, and says that it is another Function.
type identity struct{ tensor.Function }

func (identity) Forward(_ *tensor.Ctx, in []tensor.Tensor) tensor.Tensor { return in[0] }

func (identity) Backward(_ *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) { grads[0] = g }

// forgetful is a Copy whose Backward keeps each rank's part of the gradient.
type forgetful struct{ autograd.Copy }

func (*forgetful) Backward(_ *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) { grads[0] = g }

// wrong is a training with one thing wrong in it.
func wrong(change func(j *job)) job {
	j := job{Config: layer(routers["mixtral"]), mesh: "dp=2,ep=2,tp=2"}
	change(&j)
	return j
}

func experts(m *model, p *tensor.Param) bool {
	e := m.MoE.Experts
	return p == e.Gate || p == e.Up || p == e.Down
}

// summed says over which axes experts are summed, and what is not.
func summed(axes ...string) func(m *model, mesh *dist.Mesh) func(p *tensor.Param) *dist.Group {
	return func(m *model, mesh *dist.Mesh) func(p *tensor.Param) *dist.Group {
		return func(p *tensor.Param) *dist.Group {
			if experts(m, p) {
				return mesh.Group(axes...)
			}
			return nil
		}
	}
}

// Programs whose gradients would be wrong, some of which were published as silent ones, are refused before a step is trained.
func TestWrongProgramsAreRefused(t *testing.T) {
	const tokens = "these are not the ranks with other rows or positions (Rows.Over of the batch)"
	const same = "axis ep: parameter "
	for name, c := range map[string]struct {
		want string
		job
	}{
		"experts summed over ranks that have others": {"has of moe.experts.", wrong(func(j *job) { j.over = summed("dp", "ep") })},
		"experts not summed over dp":                 {"axis dp: parameter moe.experts.", wrong(func(j *job) { j.over = summed() })},
		"dense parameters summed over dp alone":      {same + "in.weight[5 3] is the same on all ranks", wrong(func(j *job) { j.dense = "dp" })},
		"router summed over dp alone": {same + "moe.gate.weight[8 5] is the same on all ranks", wrong(func(j *job) {
			j.over = func(m *model, mesh *dist.Mesh) func(p *tensor.Param) *dist.Group {
				return func(p *tensor.Param) *dist.Group {
					if experts(m, p) || p == m.MoE.Router.W {
						return mesh.Group("dp")
					}
					return nil
				}
			}
		})},
		"counts of the balance loss are this rank's": {"WithAux float64[]: axis dp: the loss is made of this rank's",
			wrong(func(j *job) {
				j.change = func(m *model, _ *dist.Mesh) {
					m.MoE.SetRanks(func(sum, _, _ *tensor.Function) { *sum = identity{*sum} })
				}
			})},
		"experts cut over ranks with others, by fsdp": {"fsdp: ranks differ: ", wrong(func(j *job) {
			j.fsdp, j.over = true, summed("dp", "ep")
		})},
		"experts cut over no ranks, by fsdp": {"axis dp: parameter moe.experts.", wrong(func(j *job) {
			j.fsdp, j.over = true, summed()
		})},
		"no gradient over tp for what experts read": {"see autograd.Copy", wrong(func(j *job) {
			j.change = func(m *model, _ *dist.Mesh) {
				m.MoE.SetRanks(func(_, in, _ *tensor.Function) { *in = nil })
			}
		})},
		"no sum over tp of what experts give": {"axis tp: ", wrong(func(j *job) {
			j.change = func(m *model, _ *dist.Mesh) {
				m.MoE.SetRanks(func(_, _, out *tensor.Function) { *out = nil })
			}
		})},
		// The balance loss, the slots of a capacity and the moves of biases would be others than on one rank.
		"balance without dp":         {tokens, wrong(func(j *job) { j.tokens = "ep" })},
		"slots without dp":           {tokens, wrong(func(j *job) { j.tokens, j.Balance, j.Capacity = "ep", 0, 1 })},
		"biases without dp":          {tokens, wrong(func(j *job) { j.tokens, j.Config, j.rate = "ep", layer(routers["sigmoid"]), 0.01 })},
		"without ep":                 {tokens, wrong(func(j *job) { j.tokens = "dp" })},
		"ranks with the same tokens": {tokens, wrong(func(j *job) { j.rows = "dp" })},
	} {
		t.Run(name, func(t *testing.T) {
			c.training(new(seen)).Refused(t, c.want)
		})
	}
}

// What types cannot see, because a Function lies or a count is another one, is seen beside one rank.
func TestWrongNumbersDifferFromOneRank(t *testing.T) {
	right := wrong(func(j *job) { j.Capacity = 0.9 })
	one := right
	one.mesh = ""
	want, saw := one.run(t)
	got, saws := right.run(t)
	disttest.RequireEqual(t, want, got, 1e-10)
	require.Equal(t, saw.loads, saws.loads)
	for name, change := range map[string]func(m *model, mesh *dist.Mesh){
		"places are this rank's": func(m *model, mesh *dist.Mesh) { m.MoE.ForgetPlaces(mesh.Group()) },
		"no gradient over tp for what experts read": func(m *model, _ *dist.Mesh) {
			m.MoE.SetRanks(func(_, in, _ *tensor.Function) { *in = &forgetful{*(*in).(*autograd.Copy)} })
		},
	} {
		j := right
		j.change = change
		c := j.training(new(seen))
		c.Steps = 3
		got, _ := c.Try() // ranks may find that they differ, after the last step
		worst := 0.0
		for i, norm := range got.Norms {
			worst = max(worst, math.Abs(norm-want.Norms[i]))
		}
		require.Greater(t, worst, 1e-5, name)
	}
}

func TestWrongRanks(t *testing.T) {
	for want, change := range map[string]func(r *moe.Ranks, mesh *dist.Mesh){
		"moe: Ranks.Tokens is nil": func(r *moe.Ranks, _ *dist.Mesh) { r.Tokens = nil },
		"moe.Parallelize: 8 experts do not divide over 3 ranks: the number of ranks has to divide 8": func(r *moe.Ranks, mesh *dist.Mesh) {
			r.Experts = mesh.Group("b")
		},
		"6 hidden features do not divide over 4 ranks": func(r *moe.Ranks, mesh *dist.Mesh) {
			r.Tokens, r.Hidden = mesh.Group("a", "b"), mesh.Group("c", "d")
		},
		"moe: Ranks.Gather and Ranks.Scatter must both be set": func(r *moe.Ranks, mesh *dist.Mesh) {
			r.Gather = &autograd.Copy{Group: mesh.Group("c")}
		},
		"moe: ranks of Experts (c) are not among those of Tokens (a,b)": func(r *moe.Ranks, mesh *dist.Mesh) { r.Experts = mesh.Group("c") },
		"moe: ranks of Positions (c) are not among those of Tokens (a,b)": func(r *moe.Ranks, mesh *dist.Mesh) {
			r.Positions = mesh.Group("c")
		},
		"moe: ranks of Hidden (a) are among those of Tokens (a,b)": func(r *moe.Ranks, mesh *dist.Mesh) { r.Hidden = mesh.Group("a") },
	} {
		disttest.EachFails(t, 24, want, func(r *dist.Rank) error {
			mesh, err := r.Mesh("a=2,b=3,c=2,d=2")
			require.NoError(t, err)
			ranks := moe.Ranks{Tokens: mesh.Group("a", "b")}
			change(&ranks, mesh)
			l := moe.NewLayer(moe.Config{Features: 5, Hidden: 6, Experts: 8, Router: router.Config{Top: 1}})
			nn.ParamsOf(l)
			return moe.Parallelize(ranks, l)
		})
	}
	l := moe.NewLayer(moe.Config{Features: 5, Hidden: 6, Experts: 8, Router: router.Config{Top: 1}})
	nn.ParamsOf(l)
	require.NoError(t, disttest.OnRanks(1, func(r *dist.Rank) error {
		require.NoError(t, moe.Parallelize(moe.Ranks{Tokens: r.World}, l))
		require.ErrorContains(t, moe.Parallelize(moe.Ranks{Tokens: r.World}, l), "moe.Parallelize: experts.up_proj is divided already")
		return nil
	}))
	require.ErrorContains(t, tensor.Try(func() { moe.NewBalancer(0.1, l) }), "layer 0 has no bias to move")
	other := moe.NewLayer(moe.Config{Features: 5, Hidden: 6, Experts: 8, Router: router.Config{Top: 1}})
	require.ErrorContains(t, tensor.Try(func() { moe.NewBalancer(0, l, other) }), "layers 0 and 1 have tokens of different ranks")
	require.ErrorContains(t, tensor.Try(func() {
		moe.NewLayer(moe.Config{Features: 1, Hidden: 1, Experts: 1, Router: router.Config{Top: 1}, Capacity: -1})
	}), "Capacity -1")
}

// A balance loss of sequences needs the ranks that have the other parts of them.
func TestSequencesNeedTheirRanks(t *testing.T) {
	for _, c := range []struct {
		axis   string // of Positions; "": none
		length int
		seq    tensor.Spans
		want   string
	}{
		{"", 5, tensor.Spans{First: 3, Total: 5}, "need Ranks.Positions, the ranks with parts of the same sequences"},
		{"dp", 5, tensor.Spans{First: 3, Total: 5}, "need Ranks.Positions, the ranks with parts of the same sequences"},
		{"cp", 5, tensor.Spans{First: 2, Total: 5}, "there are 2, and this rank has 6 tokens, of positions from 2 on"},
		{"cp", 5, tensor.Spans{First: 1, Total: 5, Break: 1, Skip: 2}, "parts of the same sequences in their order (cp.Ulysses, not a ring)"},
		{"cp", 4, tensor.Spans{First: 3, Total: 5}, "a balance loss of sequences of 4 tokens: there are 6 tokens, or parts of sequences of 5"},
	} {
		require.NoError(t, disttest.OnRanks(4, func(r *dist.Rank) error {
			mesh, err := r.Mesh("dp=2,cp=2")
			require.NoError(t, err)
			l := moe.NewLayer(moe.Config{Features: 5, Hidden: 6, Experts: 8, Router: router.Config{Top: 1}, Balance: 1, Sequence: c.length})
			nn.ParamsOf(l)
			ranks := moe.Ranks{Tokens: r.World}
			if c.axis != "" {
				ranks.Positions = mesh.Group(c.axis)
			}
			require.NoError(t, moe.Parallelize(ranks, l))
			_, err = ddp.Attach(r.World, l, ddp.Config{DType: tensor.Float64})
			require.NoError(t, err)
			rows := tensor.Rows{First: 3 * mesh.Coord("dp"), Stride: 1, Total: 6, Seq: c.seq, Over: r.World.Axes(), SeqOver: mesh.Group("cp").Axes()}
			x := tensor.New(r.Device, tensor.Float64, 3, 2, 5).WithRows(rows)
			if mesh.Coord("cp") == 1 {
				require.ErrorContains(t, tensor.Try(func() { l.Forward(tensor.NewTape(r.Device).Input(x)) }), c.want, c.axis)
			}
			return nil
		}))
	}
}

// A router whose values are others on a rank of tp is found in the first step.
func TestRoutersThatDiverge(t *testing.T) {
	wrong(func(j *job) {
		j.before = func(_ *disttest.State, m *model, mesh *dist.Mesh) error {
			if mesh.Coord("tp") == 1 {
				tensor.Data[float64](m.MoE.Router.W.Value)[3]++
				m.MoE.Router.W.Changed()
			}
			return nil
		}
	}).training(new(seen)).Refused(t, "ranks that share hidden features chose different experts for the same tokens")
}

// A bias goes down where an expert has more slots than the mean, and up where it has less, by the rate.
func TestBalancer(t *testing.T) {
	c := moe.Config{Features: 5, Hidden: 6, Experts: 4, Router: router.Config{Top: 1, Bias: true}}
	for _, d := range []tensor.DType{tensor.Float64, tensor.Float32, tensor.BFloat16} {
		l := moe.NewLayer(c)
		dev := cpu.New(1)
		defer dev.Close()
		nn.Init(l, dev, d, 1)
		b, tape := moe.NewBalancer(0.25, l), tensor.NewTape(dev)
		defer tape.Close()
		loads, err := b.Step()
		if d.IsHalf() {
			require.ErrorContains(t, err, "router: the bias gate.e_score_correction_bias has 16 bits, which lose steps of 0.25")
			continue
		}
		require.NoError(t, err)
		require.Equal(t, []moe.Load{{Chosen: make([]int64, 4)}}, loads)
		x := tensor.FromSlice(values(9, 5), 9, 5)
		l.Forward(tape.Input(x).Cast(d))
		l.Forward(tape.Input(x).Cast(d))
		eval := tensor.NewTape(dev, tensor.Eval())
		defer eval.Close()
		l.Forward(eval.Input(x).Cast(d))
		loads, err = b.Step()
		require.NoError(t, err)
		total := int64(0)
		for e, n := range loads[0].Chosen {
			total += n
			want := 0.25
			if 2*n == 9 {
				want = 0
			} else if 2*n > 9 {
				want = -0.25
			}
			require.Equal(t, want, tensor.Floats(l.Router.Bias.Value)[e])
		}
		require.EqualValues(t, 18, total)
		loads, err = b.Step()
		require.NoError(t, err)
		require.Equal(t, []moe.Load{{Chosen: make([]int64, 4)}}, loads)
	}
	even := moe.Load{Chosen: []int64{3, 3, 3, 3}}
	require.Zero(t, even.CV())
	require.InDelta(t, math.Log(4), even.Entropy(), 1e-15)
	odd := moe.Load{Chosen: []int64{0, 4, 0, 4}}
	require.InDelta(t, 1, odd.CV(), 1e-15)
	require.InDelta(t, math.Log(2), odd.Entropy(), 1e-15)
}
