package fsdp_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// adapted is a frozen layer with a small trained one beside it, as in LoRA.
type adapted struct {
	Base     *nn.Linear
	Down, Up *nn.Linear
}

func (a *adapted) Forward(x nn.T) nn.T {
	return a.Base.Forward(x).Add(a.Up.Forward(a.Down.Forward(x))).Tanh()
}

// adapter is a frozen stem and adapted layers, each a unit.
type adapter struct {
	Stem   *nn.Linear
	Layers []*adapted
}

const (
	baseLen    = width*width + width
	adapterLen = width*3 + 3 + 3*width + width
	adapteds   = 3
)

func newAdapter() model {
	a := &adapter{Stem: nn.NewLinear(width, width)}
	freeze(a.Stem)
	for range adapteds {
		l := &adapted{nn.NewLinear(width, width), nn.NewLinear(width, 3), nn.NewLinear(3, width)}
		freeze(l.Base)
		a.Layers = append(a.Layers, l)
	}
	return a
}

func freeze(l *nn.Linear) {
	l.W.Freeze()
	l.B.Freeze()
}

func (a *adapter) Forward(x nn.T) nn.T {
	x = a.Stem.Forward(x)
	for _, l := range a.Layers {
		x = l.Forward(x)
	}
	return x
}

func (a *adapter) units(s *fsdp.Sharding) {
	s.Keep(a.Stem)
	for _, l := range a.Layers {
		s.Unit(l)
	}
}

func TestMostlyFrozen(t *testing.T) {
	j := job{cfg: fsdp.Config{DType: tensor.Float64}, model: newAdapter}
	want := onOne(j).run(t)
	want.Learns(t, 1)
	for stage := 1; stage <= 3; stage++ {
		for ranks := 1; ranks <= 4; ranks++ {
			if j.Ranks, j.cfg.Stage, j.offload = ranks, stage, ranks == 3; (ranks == stage+1) != reliability.Long(t) {
				disttest.RequireEqual(t, want, j.run(t), 1e-10)
			}
		}
	}
}

func TestLongMostlyFrozen(t *testing.T) { reliability.AsLong(t, TestMostlyFrozen) }

// What was frozen at Attach has no room for a gradient.
func TestUnfrozenAfterAttachIsRefused(t *testing.T) {
	for stage := 1; stage <= 3; stage++ {
		attached(t, 2, fsdp.Config{DType: tensor.Float64, Stage: stage}, newAdapter, func(r *dist.Rank, m model, _ *fsdp.Sharding, _ nn.Params) {
			m.(*adapter).Layers[0].Base.W.Unfreeze()
			tape := tensor.NewTape(r.Device)
			x, _ := batch(r, tensor.Float64, 3*r.World.Rank(), 3)
			loss := nn.GlobalMean(m.Forward(tape.Input(x.WithRows(r.World.Rows(3*r.World.Rank(), 6)))))
			assert.ErrorContains(t, tensor.Try(func() { tape.Backward(loss) }), "frozen at Attach, and unfrozen since", "stage %d", stage)
		})
	}
}

// share is the larger part of n elements, or the smaller one on the last of the ranks where n does not divide.
func share(n, rank, ranks int) int {
	k := n / ranks
	if rank < n%ranks {
		k++
	}
	return k
}

// Each rank has its share of what is trained, and of what is frozen: of the optimizer's state, too.
func TestFrozenIsCutApart(t *testing.T) {
	for _, ranks := range []int{1, 2, 3, 5} {
		for stage := 1; stage <= 3; stage++ {
			j := job{training: training{Ranks: ranks, Steps: 3, Micro: 1, Batch: 10}, cfg: fsdp.Config{Stage: stage, Compute: tensor.BFloat16},
				model: newAdapter}
			j.end = func(p place) error {
				rank := p.Rank.World.Rank()
				trained, frozen := adapteds*share(adapterLen, rank, ranks), (adapteds+1)*share(baseLen, rank, ranks)
				values, grads := 4*(trained+frozen), 4*trained
				if stage < 3 {
					values += 2 * ((adapteds+1)*baseLen + adapteds*adapterLen)
				}
				if stage == 1 {
					grads = 4 * adapteds * adapterLen
				}
				moments := 0
				for _, st := range p.Optimizer.State().Tensors {
					moments += st.Tensor.Len() * st.Tensor.DType().Size()
				}
				require.Equal(t, 8*trained, moments, "stage %d, rank %d of %d", stage, rank, ranks)
				m := p.Rank.Device.Memory()
				for kind, n := range map[memory.Use]int{memory.Parameters: values, memory.Gradients: grads} {
					if got := m.Of(kind).Live; got != n {
						return fmt.Errorf("stage %d, rank %d of %d: %d bytes of %v, want %d", stage, rank, ranks, got, kind, n)
					}
				}
				return nil
			}
			j.run(t)
		}
	}
}

// A unit with both takes two gathers, and as many bytes as one.
func TestFrozenTraffic(t *testing.T) {
	const steps, ranks = 2, 3
	all := adapteds * (baseLen + adapterLen)
	got := count(t, job{training: training{Ranks: ranks, Steps: 4, Micro: 1, Batch: 12}, model: newAdapter}, steps)
	last := baseLen + adapterLen // is still there in Backward
	require.Equal(t, traffic{
		gathers:  steps * 2 * (2*adapteds - 1),
		gathered: steps * uint64(4*(ranks-1)*(2*all-last)),
		reduces:  steps * adapteds,
		reduced:  steps * uint64(4*(ranks-1)*adapteds*adapterLen),
	}, got, "the frozen stem stays")
	// Where units stay, the optimizer changes trained elements only.
	got = count(t, job{training: training{Ranks: ranks, Steps: 4, Micro: 1, Batch: 12}, model: newAdapter, cfg: fsdp.Config{Stage: 2}}, steps)
	trained := steps * uint64(4*(ranks-1)*adapteds*adapterLen)
	require.Equal(t, traffic{gathers: steps * adapteds, gathered: trained, reduces: steps * adapteds, reduced: trained}, got)
}

func newLoRA() model {
	m := newAdapter()
	nn.LoRA(m, nn.LoRAConfig{Rank: 3, Alpha: 6, Targets: []string{"stem", "layers.*.base"}})
	return m
}

func TestLoRA(t *testing.T) {
	j := job{cfg: fsdp.Config{DType: tensor.Float64}, model: newLoRA}
	want := onOne(j).run(t)
	want.Learns(t, 1)
	for ranks := 2; ranks <= 3; ranks++ {
		j.Ranks, j.cfg.Stage = ranks, 3
		disttest.RequireEqual(t, want, j.run(t), 1e-10)
	}
}
