package ddp_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

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
	for name, penalty := range penalties {
		t.Run(name, func(t *testing.T) {
			want, wantLoss := trainPenalty(t, 1, "dp=1", penalty)
			for ranks, mesh := range map[int]string{2: "dp=2", 3: "dp=3", 4: "dp=2,fsdp=2"} {
				got, loss := trainPenalty(t, ranks, mesh, penalty)
				require.InDeltaSlice(t, want, got, 1e-9, mesh)
				require.InDeltaSlice(t, wantLoss, loss, 1e-9, mesh)
			}
		})
	}
}

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
