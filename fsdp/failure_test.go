package fsdp_test

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

var errCable = errors.New("somebody cut the cable")

// saboteur is a layer that does something to its rank in the middle of a forward pass.
type saboteur struct{ do func() }

func (s *saboteur) Forward(x nn.T) nn.T {
	if s.do != nil {
		s.do()
	}
	return x
}

// sabotaged is a chain with a saboteur in its middle.
func sabotaged(do *func()) model {
	c := newChain().(*chain)
	layers := append(nn.Sequential{}, c.Layers[:3]...)
	return &withSaboteur{chain: *c, order: append(append(layers, &saboteur{func() {
		if *do != nil {
			(*do)()
		}
	}}), c.Layers[3:]...)}
}

type withSaboteur struct {
	chain
	order nn.Sequential `nn:"-"`
}

func (w *withSaboteur) Forward(x nn.T) nn.T { return w.order.Forward(x) }

// A rank fails while the next unit is being gathered, in a step after the first one: the others get its error at once, and
// nobody can use a value afterwards.
func TestFailureInTheMiddleOfAGather(t *testing.T) {
	for _, how := range []string{"abort", "panic", "error"} {
		start := time.Now()
		seen := make([]error, 3)
		err := disttest.OnRanks(3, func(r *dist.Rank) error {
			rank, step := r.World.Rank(), 0
			var do func()
			m, s := sabotaged(&do), fsdp.New(fsdp.Config{Shard: r.World})
			m.units(s)
			params := disttest.Must(s.Attach(m))
			do = func() {
				if step != 2 || rank != 1 {
					return
				}
				switch how {
				case "abort":
					s.Groups()[0].Abort(errCable)
				case "panic":
					panic(errCable)
				case "error":
					panic(&tensor.Failure{Op: "cable", Err: errCable})
				}
			}
			opt := optim.NewAdamW(params, optim.AdamWConfig{Clip: 1, Norm: s})
			tape := tensor.NewTape(r.Device)
			x, y := batch(r, tensor.Float32, rank, 4)
			seen[rank] = tensor.Try(func() {
				for ; step < 5; step++ {
					tape.Backward(nn.CrossEntropy(m.Forward(tape.Input(x)), y))
					if err := opt.Step(); err != nil {
						panic(&tensor.Failure{Op: "step", Err: err})
					}
					tape.Reset()
				}
			})
			if rank != 1 {
				tape.Reset()
				require.Error(t, tensor.Try(func() { m.Forward(tape.Input(x)) }), "values are from before the failure")
			}
			return seen[rank]
		})
		require.ErrorContains(t, err, errCable.Error(), how)
		for _, rank := range []int{0, 2} {
			require.ErrorContains(t, seen[rank], errCable.Error(), "%s: rank %d", how, rank)
		}
		require.Less(t, time.Since(start), 20*time.Second+reliability.Slack, "nobody waited for the timeout")
	}
}

// A peer that stops is an error within the timeout.
func TestStoppedPeer(t *testing.T) {
	release := make(chan struct{})
	var errs [2]error
	_ = disttest.OnRanks(2, func(r *dist.Rank) error {
		rank, stop := r.World.Rank(), false
		do := func() {
			if stop {
				<-release
			}
		}
		m := sabotaged(&do)
		s := fsdp.New(fsdp.Config{Shard: r.World.With(dist.Timeout(time.Second))})
		m.units(s)
		disttest.Must(s.Attach(m))
		tape := tensor.NewTape(r.Device)
		x, y := batch(r, tensor.Float32, rank, 4)
		step := func() error {
			return tensor.Try(func() { tape.Backward(nn.CrossEntropy(m.Forward(tape.Input(x)), y)) })
		}
		disttest.OK(step())
		for _, p := range nn.ParamsOf(m) {
			p.Consume()
		}
		tape.Reset()
		stop = rank == 1
		errs[rank] = step()
		if rank == 0 {
			close(release)
		}
		return errs[rank]
	})
	require.ErrorContains(t, errs[0], "fsdp: gather of unit")
	require.Regexp(t, "rank 1.* within 1s", errs[0].Error())
	require.Error(t, errs[1], "the other rank gave up")
}

// A step that all ranks skip, because its gradients are not finite, changes nothing; the next one goes on.
func TestSkippedStep(t *testing.T) {
	for stage := 1; stage <= 3; stage++ {
		c := job{training: training{Ranks: 2, Steps: 6, Micro: 1, Batch: 8}, cfg: fsdp.Config{Stage: stage, DType: tensor.Float32}}
		train := func(overflow bool) disttest.Result {
			c.step = func(p place) ([]float64, error) {
				x, y := p.Batch(p.Tape, 0).Samples(disttest.Dataset{DType: tensor.Float32, Features: width})
				loss, scale := nn.CrossEntropy(p.model.Forward(x), y), 1.0
				if overflow && p.Step%2 == 1 {
					scale = math.Inf(1)
				}
				losses := []float64{loss.Item()}
				p.Tape.Backward(loss, tensor.Scale(scale))
				p.Tape.Reset()
				if p.Step%2 == 0 {
					return losses, p.Optimizer.Step()
				}
				for _, p := range p.Params {
					p.Consume()
				}
				return losses, nil
			}
			return c.run(t)
		}
		disttest.RequireEqual(t, train(false), train(true), 0)
	}
}

// Float16 with dynamic loss scaling: the scale begins too large, all ranks skip the same steps, and then they learn.
func TestLossScaling(t *testing.T) {
	skipped := map[int]int{}
	for ranks := 1; ranks <= 3; ranks++ {
		done, scales := make([]int, ranks), make([]float64, ranks)
		losses := make([][]float64, ranks)
		require.NoError(t, disttest.OnRanks(ranks, func(r *dist.Rank) error {
			n, s := newToy(), fsdp.New(fsdp.Config{Shard: r.World, Compute: tensor.Float16, Reduce: tensor.Float16, Seed: 7})
			n.units(s)
			params := disttest.Must(s.Attach(n))
			scaler := &optim.Scaler{Scale: 1 << 24}
			opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 1e-2, Norm: s, Scaler: scaler})
			tape := tensor.NewTape(r.Device)
			x, y := batch(r, tensor.Float32, 0, 12)
			for range 40 {
				loss := nn.CrossEntropy(n.Forward(tape.Input(x).Cast(tensor.Float16)), y)
				losses[r.World.Rank()] = append(losses[r.World.Rank()], loss.Item()*float64(ranks))
				tape.Backward(loss, tensor.Scale(scaler.Scale))
				disttest.OK(opt.Step())
				tape.Reset()
			}
			done[r.World.Rank()], scales[r.World.Rank()] = opt.Steps(), scaler.Scale
			return nil
		}))
		for k := range ranks {
			require.Equal(t, []any{done[0], scales[0]}, []any{done[k], scales[k]})
		}
		require.Less(t, done[0], 40, "the first steps overflow")
		require.Greater(t, done[0], 20)
		require.Less(t, losses[0][39], 0.7*losses[0][0])
		skipped[ranks] = 40 - done[0]
	}
	require.InDelta(t, skipped[1], skipped[3], 2)
}

// Two optimizers with one Scaler whose Scale the first one changes: the gradients of the second are others.
func TestScalerOfTwoOptimizers(t *testing.T) {
	require.NoError(t, disttest.OnRanks(2, func(r *dist.Rank) error {
		n, s := newToy(), fsdp.New(fsdp.Config{Shard: r.World, Seed: 7})
		n.units(s)
		params := disttest.Must(s.Attach(n))
		scaler := optim.NewScaler()
		first := optim.NewAdamW(params[:1], optim.AdamWConfig{LR: 1e-2, Norm: s, Scaler: scaler})
		second := optim.NewAdamW(params[1:], optim.AdamWConfig{LR: 1e-2, Norm: s, Scaler: scaler})
		tape := tensor.NewTape(r.Device)
		x, y := batch(r, tensor.Float32, 0, 12)
		for _, by := range []float64{1, 1e38} { // the second is too large
			tape.Backward(nn.CrossEntropy(n.Forward(tape.Input(x)), y).Scale(by), tensor.Scale(scaler.Scale))
			disttest.OK(first.Step())
			err := tensor.Try(func() { disttest.OK(second.Step()) })
			if by == 1 {
				disttest.OK(err)
			} else {
				require.ErrorContains(t, err, "Scale was 65536 when its gradient was made, and is 32768 now")
			}
			tape.Reset()
		}
		return nil
	}))
}

// The initial values of a shard begin with its first element.
func TestFillOfAShard(t *testing.T) {
	require.NoError(t, disttest.OnRanks(2, func(r *dist.Rank) error {
		n, s := newToy(), fsdp.New(fsdp.Config{Shard: r.World, Seed: 7})
		n.units(s)
		for _, p := range disttest.Must(s.Attach(n)) {
			values := p.Local
			want := slices.Clone(values.Bytes())
			if lo, _ := p.Placement().Range(); lo > 0 && values.Len() > 0 {
				require.ErrorContains(t, tensor.Try(func() { p.Fill(values, 7, 0) }), "not with 0: write lo, _ := p.Placement().Range()")
			}
			lo, _ := p.Placement().Range()
			p.Fill(values, 7, lo)
			p.Changed()
			require.Equal(t, want, values.Bytes())
			if values.Len() > 1 {
				p.Fill(values.Range(1, values.Len()), 7, lo+1)
				require.ErrorContains(t, tensor.Try(func() { p.Fill(values.Range(1, values.Len()), 7, lo) }), "not with")
			}
		}
		return nil
	}))
}

// After a Backward that failed, and a Reset, training goes on as if it had not been; the check of the first step forgets its rows.
func TestStepAfterFailedBackward(t *testing.T) {
	for stage := 1; stage <= 3; stage++ {
		c := job{training: training{Ranks: 2, Steps: 5, Micro: 1, Batch: 8}, cfg: fsdp.Config{Stage: stage, DType: tensor.Float32}}
		want := c.run(t)
		c.before = func(p place) error {
			if p.Step%3 != 0 {
				return nil
			}
			n, tape := p.model.(*toy), p.Tape
			defer tape.SetState(tape.State())
			b := p.Batch(tape, 0)
			b.Rows = p.Rank.World.Rows(4*p.Rank.World.Rank(), 99)
			x, y := b.Samples(disttest.Dataset{DType: tensor.Float32, Features: width})
			tape.Backward(nn.CrossEntropy(n.Forward(x), y), tensor.More())
			tape.Reset()
			x, _ = b.Samples(disttest.Dataset{DType: tensor.Float32, Features: width})
			h := tape.Apply(breaking{}, n.In.Forward(x))
			for _, b := range n.Blocks {
				h = b.Forward(h)
			}
			err := tensor.Try(func() { tape.Backward(nn.CrossEntropy(n.Head.Forward(n.Wide.Forward(h)), y)) })
			require.ErrorContains(t, err, "broken")
			tape.Reset()
			for _, p := range p.Params {
				p.Consume()
			}
			return nil
		}
		disttest.RequireEqual(t, want, c.run(t), 0)
	}
}

// breaking is a Function that fails in Backward.
type breaking struct{}

func (breaking) Name() string                                   { return "breaking" }
func (breaking) Forward(c *tensor.Ctx, in []tensor.Tensor) nn.T { return in[0].Scale(1) }
func (breaking) Backward(*tensor.Ctx, nn.T, []nn.T) {
	panic(&tensor.Failure{Op: "breaking", Err: errors.New("broken")})
}

// What was being gathered when ranks failed is not used later. A unit that stays has memory, with values of before.
func TestKeptUnitAfterFailure(t *testing.T) {
	_ = disttest.OnRanks(2, func(r *dist.Rank) error {
		l := nn.NewLinear(width, width)
		s := fsdp.New(fsdp.Config{Shard: r.World})
		s.Keep(l)
		disttest.Must(s.Attach(l))
		tape := tensor.NewTape(r.Device, tensor.NoGrad())
		x, _ := batch(r, tensor.Float32, 0, 4)
		forward := func() { l.Forward(tape.Input(x)) }
		forward()
		l.W.Changed()
		s.Groups()[0].Abort(errCable)
		for range 2 {
			require.ErrorContains(t, tensor.Try(forward), errCable.Error())
		}
		return nil
	})
}
