package ddp_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// Losses whose gradients would be silently wrong on two ranks are refused, by the words that a user sees; their right
// forms beside them pass.
func TestWrongLossesAreRefused(t *testing.T) {
	mean := func(x nn.T) nn.T { return x.Square().Mean() }
	global := func(x nn.T) nn.T { return tensor.GlobalMean(x.Square()) }
	for name, c := range map[string]struct {
		loss func(x nn.T) nn.T
		bare bool // the batch does not say its rows
		want string
	}{
		"mean over this rank's rows": {loss: mean, want: "GlobalMean"},
		"global mean":                {loss: global},
		"sum":                        {loss: func(x nn.T) nn.T { return x.Sum() }},
		"batch without rows":         {loss: global, bare: true, want: "Does the input lack its Rows?"},
		"norm of a sum over rows":    {loss: func(x nn.T) nn.T { return x.Sum().Square() }, want: "autograd.Sum"},
		"parts joined with a whole": {loss: func(x nn.T) nn.T {
			return tensor.Concat(0, x.Sum().Reshape(1), x.Tape().Input(tensor.FromSlice([]float32{1}, 1))).Sum()
		}, want: "once for each rank"},
	} {
		t.Run(name, func(t *testing.T) {
			err := disttest.OnRanks(2, func(r *dist.Rank) error {
				model := nn.NewLinear(3, 2)
				disttest.Must(ddp.Attach(r.World, model, ddp.Config{}))
				x := tensor.New(r.Device, tensor.Float32, 2, 3)
				if !c.bare {
					x = x.WithRows(r.World.Rows(2*r.World.Rank(), 4))
				}
				tape := tensor.NewTape(r.Device)
				return tensor.Try(func() { tape.Backward(c.loss(model.Forward(tape.Input(x)))) })
			})
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "axis world")
		})
	}
}

// A group that is a part of an axis does not sum over all ranks with other rows: it is refused, for all parameters and for one.
func TestPartOfAnAxis(t *testing.T) {
	for name, over := range map[string]func(world, half *dist.Group, p *tensor.Param) *dist.Group{
		"a model": func(_, half *dist.Group, _ *tensor.Param) *dist.Group { return half },
		"a parameter": func(_, half *dist.Group, p *tensor.Param) *dist.Group {
			return map[string]*dist.Group{"bias": half}[p.Name()]
		},
		"": func(world, _ *dist.Group, _ *tensor.Param) *dist.Group { return world },
	} {
		err := disttest.OnRanks(4, func(r *dist.Rank) error {
			half := disttest.Must(r.World.Split(r.World.Rank()/2, 0))
			model := nn.NewLinear(3, 2)
			cfg := ddp.Config{Over: func(p *tensor.Param) *dist.Group { return over(r.World, half, p) }}
			disttest.Must(ddp.Attach(r.World, model, cfg))
			tape, x := tensor.NewTape(r.Device), tensor.New(r.Device, tensor.Float32, 2, 3).WithRows(r.World.Rows(2*r.World.Rank(), 8))
			return tensor.Try(func() { tape.Backward(tensor.GlobalMean(model.Forward(tape.Input(x)))) })
		})
		if name == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "attach the parameter with ddp or fsdp over this axis", name)
		}
	}
}

// A gain that two ranks of tp use on their parts of the features, under ddp, in two microbatches: its gradient is that of
// one rank. Summed over tp by Through it is right; without, it is refused; ddp over tp does not replace it.
func TestSharedGain(t *testing.T) {
	for name, c := range map[string]struct {
		through bool
		over    string // the axis that ddp sums over
		want    string
	}{
		"through":        {true, "dp", ""},
		"nothing":        {false, "dp", "autograd.Copy"},
		"ddp and Copy":   {true, "tp", "axis tp"},
		"ddp in a hurry": {false, "tp", "axis dp"},
	} {
		t.Run(name, func(t *testing.T) {
			err := disttest.OnRanks(4, func(r *dist.Rank) error {
				mesh := disttest.Must(r.Mesh("dp=2,tp=2"))
				dp, tp := mesh.Group("dp"), mesh.Group("tp")
				model := &struct{ Gain, Wide *tensor.Param }{tensor.NewParam(tensor.Constant(1), 1), tensor.NewParam(tensor.Constant(1), 4)}
				model.Wide.Place(tp.Axis(), layout.Division{})
				if c.through {
					model.Gain.Through(&autograd.Copy{Group: tp})
				}
				disttest.Must(ddp.Attach(r.World, model, ddp.Config{Over: func(p *tensor.Param) *dist.Group {
					if p == model.Gain {
						return mesh.Group(c.over)
					}
					return dp
				}}))
				tape := tensor.NewTape(r.Device)
				backward := func(opts ...tensor.BackwardOption) error {
					defer tape.Reset()
					return tensor.Try(func() {
						x := tape.Input(tensor.FromSlice([]float32{1}, 1, 1).WithRows(dp.Rows(dp.Rank(), 2)))
						tape.Backward(tape.Use(model.Wide).Mul(x).Mul(tape.Use(model.Gain)).Sum(), opts...)
					})
				}
				disttest.OK(backward(tensor.More()))
				disttest.OK(backward())
				if got := model.Gain.Grad.Item(); got != 2*2*4 { // microbatches, rows, features
					return fmt.Errorf("gradient %v", got)
				}
				return nil
			})
			if c.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.want)
			}
		})
	}
}

// mixture is a dense vector and four stacked experts. Token i goes to expert i mod 4.
type mixture struct {
	Dense   *tensor.Param
	Experts *tensor.Param // [4, 3]

	first  int         // expert
	dp, ep tensor.Axes // tokens differ along the first; along the second, they are at their experts
}

func newMixture() *mixture {
	return &mixture{Dense: tensor.NewParam(tensor.UniformInit(-1, 1), 3), Experts: tensor.NewParam(tensor.UniformInit(-1, 1), 4, 3)}
}

// loss is the sum over this rank's experts, of which each has as many tokens as a batch has rows.
func (m *mixture) loss(b disttest.Batch) nn.T {
	var sum nn.T
	t := b.Tape
	experts := t.Use(m.Experts)
	for e := range m.Experts.Dims()[0] {
		x := tensor.New(m.Dense.Value.Device(), tensor.Float64, b.N, 3)
		for i := range b.N {
			tensor.UniformInit(-1, 1).Fill(x.Range(3*i, 3*i+3), 8, uint64(3*(4*(b.First+i)+m.first+e)))
		}
		x = x.WithTypes(x.Types().With(m.dp, tensor.Varying).With(m.ep, tensor.Cut))
		y := t.Input(x).Mul(experts.Slice(0, e, e+1)).Tanh().Mul(t.Use(m.Dense)).Tanh().Sum()
		if sum.IsZero() {
			sum = y
		} else {
			sum = sum.Add(y)
		}
	}
	return sum
}

// experts trains a mixture on a mesh. before is called before each step.
func experts(attach attacher, mesh string, every int, before func(m *mixture, s *disttest.State)) training {
	return training{Batch: 8, Mesh: mesh, Attach: func(r *dist.Rank, mesh *dist.Mesh) (disttest.Attached, error) {
		m := newMixture()
		k := 4 / mesh.Size("ep")
		m.first = k * mesh.Coord("ep")
		m.Experts.Place(mesh.Group("ep").Axis(), layout.Division{})
		m.dp, m.ep = mesh.Group("dp").Axes(), mesh.Group("ep").Axes()
		over := func(p *tensor.Param) *dist.Group {
			if p == m.Experts {
				return mesh.Group("dp")
			}
			return nil
		}
		params, err := attach(r.World, m, ddp.Config{DType: tensor.Float64, Seed: 5, BucketBytes: 64, CheckEvery: every, Over: over})
		return disttest.Attached{Params: params, Norm: r.World, Data: mesh.Group("dp"), Sum: r.World, Loss: m.loss,
			Before: func(s *disttest.State) error {
				before(m, s)
				return nil
			}}, err
	}}
}

// Experts that are shared out over ep are summed over those that hold the same ones, all else over all ranks: parameters,
// gradients and their norm are those of one rank.
func TestOverSmallerGroups(t *testing.T) {
	one := training{Batch: 8, Attach: func(r *dist.Rank, _ *dist.Mesh) (disttest.Attached, error) {
		m := newMixture()
		return disttest.Attached{Params: nn.Init(m, r.Device, tensor.Float64, 5), Loss: m.loss}, nil
	}}
	want := one.Run(t)
	require.Greater(t, want.Norms[len(want.Norms)-1], 1.0, "clipping does something")
	for _, mode := range []struct {
		attach attacher
		mesh   string
	}{{ddp.Attach, "dp=4,ep=1"}, {ddp.Attach, "dp=2,ep=2"}, {ddp.Attach, "dp=1,ep=4"}, {ddp.Naive, "dp=2,ep=2"}} {
		c := experts(mode.attach, mode.mesh, 0, func(*mixture, *disttest.State) {})
		disttest.RequireEqual(t, want, c.Run(t), 1e-12)
	}
}

// penalties depend on the weights alone, or on sums over the rows too. All ranks add them to their part of the loss.
var penalties = map[string]func(r *rows, loss nn.T) nn.T{
	"L2": func(r *rows, loss nn.T) nn.T {
		return loss.Add(r.use(r.C.W).Square().Sum().Scale(0.05))
	},
	"L1, in front": func(r *rows, loss nn.T) nn.T {
		return r.use(r.A.W).Abs().Sum().Scale(0.01).Add(r.use(r.C.W).Abs().Sum().Scale(0.01)).Add(loss)
	},
	"orthogonal": func(r *rows, loss nn.T) nn.T {
		c := r.use(r.Code)
		eye := r.tape.Input(tensor.FromSlice([]float64{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}, 4, 4))
		return loss.Add(tensor.MatMul(c, c, false, true).Sub(eye).Square().Mean())
	},
	"KL of a posterior over weights": func(r *rows, loss nn.T) nn.T {
		mu, logvar := r.use(r.Gain), r.use(r.Bias)
		return loss.Sub(logvar.Affine(1, 1).Sub(mu.Square()).Sub(logvar.Exp()).Sum().Scale(0.05))
	},
	"Kendall's uncertainties": func(r *rows, loss nn.T) nn.T {
		s := r.use(r.Bias).Slice(0, 0, 2)
		one, two := s.Slice(0, 0, 1).Reshape(), s.Slice(0, 1, 2).Reshape()
		other := nn.MSE(r.D.Forward(r.hidden()), r.w)
		return loss.Mul(one.Neg().Exp()).Add(one.Scale(0.5)).Add(other.Mul(two.Neg().Exp())).Add(two.Scale(0.5))
	},
	"elastic, minus a bonus": func(r *rows, loss nn.T) nn.T {
		w := r.use(r.D.W)
		return loss.Add(w.Square().Sum().Scale(0.1).Add(w.Abs().Sum().Scale(0.2))).Sub(r.use(r.Gain).Log().Sum().Scale(0.1))
	},
	"a sum over rows and a prior": func(r *rows, loss nn.T) nn.T {
		counts := r.hidden().Sum(0).Scale(1 / float64(r.total)).Add(r.use(r.Gain)) // [8]
		return loss.Add(counts.Mul(r.use(r.Bias)).Sum()).Add(r.use(r.Bias).Affine(1, -1).Square().Sum())
	},
	"a penalty of a frozen value": func(r *rows, loss nn.T) nn.T {
		return loss.Add(r.use(r.C.W).Detach().Square().Sum().Mul(r.use(r.Gain).Sum()))
	},
	"reshaped rows": func(r *rows, loss nn.T) nn.T {
		far := r.text().Reshape(-1, 8).Square().Reshape(-1, words*8).Sum().Scale(0.01)
		return far.Add(r.use(r.Words.W).Square().Sum()).Add(loss)
	},
	"sums of reshaped rows and a prior": func(r *rows, loss nn.T) nn.T {
		h := r.text().Reshape(-1, 8)
		back := h.Reshape(r.n, words, 8).Permute(1, 0, 2).Reshape(-1, 8).Reshape(words, r.n, 8)
		sums := back.Sum(1).Scale(0.001).Add(r.use(r.Gain)) // [words, 8]
		turned := back.Permute(0, 2, 1).Reshape(words*8, r.n)
		cov := tensor.MatMul(turned, turned, false, true).Reshape(-1, 8).Scale(0.001).Add(r.use(r.Bias))
		return loss.Add(sums.Mul(r.use(r.Gain)).Sum().Add(cov.Mul(r.use(r.Bias)).Sum()).Scale(0.01))
	},
	"a constant": func(r *rows, loss nn.T) nn.T {
		return r.use(r.Gain).Log().Sum().Sub(loss.Affine(-1, 0.5*math.Log(2*math.Pi)))
	},
	"products of rows": func(r *rows, loss nn.T) nn.T {
		h := r.hidden()
		cov := tensor.MatMul(h, h, true, false).Scale(1 / float64(r.total))
		return loss.Add(cov.Mul(r.use(r.Code).Slice(0, 0, 1)).Sum()).Add(r.use(r.Code).Square().Sum())
	},
}

func (r *rows) use(p *tensor.Param) nn.T { return r.tape.Use(p) }

// What is the same on all ranks, added to a part of a sum, counts once: on one rank, on some, and on ranks without rows; also in each
// microbatch, and along two axes.
func TestPenaltiesCountOnce(t *testing.T) {
	for i, name := range slices.Sorted(maps.Keys(penalties)) {
		penalty := penalties[name]
		t.Run(name, func(t *testing.T) {
			want, wantLoss := trainPenalty(t, 1, "dp=1", penalty)
			for ranks, mesh := range map[int]string{2: "dp=2", 3: "dp=3", 4: "dp=2,fsdp=2"} {
				if (ranks == 2+i%3) == reliability.Long(t) {
					continue
				}
				got, loss := trainPenalty(t, ranks, mesh, penalty)
				require.InDeltaSlice(t, want, got, 1e-9, mesh)
				require.InDeltaSlice(t, wantLoss, loss, 1e-9, mesh)
			}
		})
	}
}

func TestLongPenaltiesCountOnce(t *testing.T) { reliability.AsLong(t, TestPenaltiesCountOnce) }

// trainPenalty returns the parameters and the losses of some steps of two microbatches each. The last ones have fewer rows than ranks.
func trainPenalty(t *testing.T, ranks int, mesh string, penalty func(r *rows, loss nn.T) nn.T) (out, losses []float64) {
	require.NoError(t, disttest.OnRanks(ranks, func(r *dist.Rank) error {
		disttest.Must(r.Mesh(mesh))
		model := newParts()
		params := disttest.Must(ddp.Attach(r.World, model, ddp.Config{DType: tensor.Float64, AllowUnused: true}))
		opt, tape := optim.NewSGD(params, optim.SGDConfig{LR: 0.05}), tensor.NewTape(r.Device)
		for step, total := range []int{7, 3, 2, 1} {
			for micro := range 2 {
				tape.SetStep(step, micro)
				b := model.split(tape, r.World, total, step+micro)
				loss := penalty(b, ce(model.C.Forward(b.hidden()), b.y))
				if micro == 0 {
					tape.Backward(loss, tensor.More())
				} else {
					tape.Backward(loss)
				}
				sum := tensor.FromSlice(tensor.Floats(loss), 1)
				disttest.OK(r.World.AllReduce(sum, dist.Sum).Wait())
				if r.World.Rank() == 0 {
					losses = append(losses, tensor.Floats(sum)...)
				}
				tape.Reset()
			}
			disttest.OK(opt.Step())
		}
		if r.World.Rank() == 0 {
			for _, p := range params {
				out = append(out, tensor.Floats(p.Value)...)
			}
		}
		return nil
	}))
	return out, losses
}
