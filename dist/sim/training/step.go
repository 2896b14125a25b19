package training

import (
	"fmt"

	"github.com/ringo-ml/ringo/dist/sim"
)

// Step is a training step of a transformer, divided as Megatron-LM does it: layers over TP ranks of a host, stages over PP, rows over DP.
type Step struct {
	Layers, Hidden, Seq, Vocab int
	Batch, Micro               int     // sequences of the step, and of a microbatch
	TP, PP, DP                 int     // DP counts the ranks of EP: dp=2,ep=4 is DP 8, EP 4
	Experts, Top, EP           int     // 0, or experts of a layer in place of its MLP, those of a token, and ranks of DP that share them
	Chunks                     int     // stages of a rank; above 1 the schedule is interleaved
	ParamBytes, GradBytes      int     // of a parameter or activation that is sent, and of a gradient
	FLOPS                      float64 // of a rank that only computes, per second
	Recompute                  bool    // backward computes forward again
	Again                      bool    // parameters are gathered again for backward (ZeRO 3)
	Overlap                    bool    // gradients and parameters travel while ranks compute, in up to half of that time
}

// StepTime is where the time of a step goes.
type StepTime struct {
	Compute sim.Time // of a rank
	Tensor  sim.Time // all-reduces of tensor parallelism
	Experts sim.Time // all-to-alls, to the experts of tokens and back
	Bubble  sim.Time // waiting in the pipeline
	Stages  sim.Time // messages between stages that nothing hides
	Data    sim.Time // gradients and parameters that nothing hides
}

// Total returns the time of the step.
func (t *StepTime) Total() sim.Time {
	return t.Compute + t.Tensor + t.Experts + t.Bubble + t.Stages + t.Data
}

// Work returns the operations of a step on all ranks: 72·B·s·l·h²·(1 + s/6h + V/12lh), and a third more with recomputation (Narayanan et
// al. 2021). An MLP is two thirds of a layer, and a token has Top of them.
func (s *Step) Work() float64 {
	b, q, l, h, v := float64(s.Batch), float64(s.Seq), float64(s.Layers), float64(s.Hidden), float64(s.Vocab)
	mlps, router := 1., 0.
	if s.Experts > 0 {
		mlps, router = float64(s.Top), 6*b*q*l*h*float64(s.Experts)
	}
	block := 72*b*q*l*h*h*((1+2*mlps)/3+q/(6*h)) + router
	if s.Recompute {
		block *= 4. / 3
	}
	return block + 6*b*q*h*v
}

// RankLayers returns the layers of the rank that has most: others wait for it.
func (s *Step) RankLayers() int {
	stages := s.PP * s.Chunks
	return s.Chunks * ((s.Layers + stages - 1) / stages)
}

// On simulates the collectives of the step on the network of a library, in which every group has links of its own, and adds up what they
// take. With m microbatches and c chunks, ranks wait for (p−1)/c of them. All-reduces are two times an all-gather around the ring: GPUs
// add while they receive.
func (s Step) On(l *sim.Library) (*StepTime, error) {
	if min(s.Layers, s.Hidden, s.Seq, s.Batch, s.Micro, s.TP, s.PP, s.DP, s.Chunks, s.ParamBytes, s.GradBytes) < 1 || s.FLOPS <= 0 {
		return nil, fmt.Errorf("sim: a step has at least one of all sizes: %+v", s)
	}
	if s.Batch%(s.DP*s.Micro) != 0 || s.TP > l.Host {
		return nil, fmt.Errorf("sim: %d sequences do not divide over %d ranks in microbatches of %d, or %d ranks are more than a host has",
			s.Batch, s.DP, s.Micro, s.TP)
	}
	s.EP = max(1, s.EP)
	if s.Experts < 0 || s.Experts > 0 && (s.Top < 1 || s.Top > s.Experts) || s.EP > 1 && s.Experts == 0 || s.Experts%s.EP != 0 ||
		s.DP%s.EP != 0 {
		return nil, fmt.Errorf("sim: %d experts, of which a token has %d, do not divide over %d of %d ranks", s.Experts, s.Top, s.EP, s.DP)
	}
	micros := sim.Time(s.Batch / s.DP / s.Micro)
	layers := s.RankLayers()
	uneven := float64(layers*s.PP) / float64(s.Layers)
	out := &StepTime{Compute: sim.Time(s.Work() * uneven / float64(s.TP*s.PP*s.DP) / s.FLOPS * 1e12)}
	activations := s.Micro * s.Seq * s.Hidden * s.ParamBytes
	each, err := l.AllReduce(1, s.TP, activations)
	if err != nil {
		return nil, err
	}
	times := sim.Time(4)
	if s.Recompute {
		times = 6
	}
	out.Tensor = times * each * sim.Time(layers) * micros
	if out.Experts, err = l.AllToAll(s.TP, s.EP, activations*s.Top); err != nil {
		return nil, err
	}
	out.Experts *= times * sim.Time(layers) * micros
	out.Bubble = (out.Compute + out.Tensor + out.Experts) * sim.Time(s.PP-1) / (micros * sim.Time(s.Chunks))
	if s.PP > 1 { // ranks of a stage send a part each, and the next stage gathers them
		hop, err := l.AllGather(s.TP*s.DP, 2, 2*activations/s.TP)
		if err != nil {
			return nil, err
		}
		out.Stages = 2 * hop * sim.Time(s.PP-1)
	}
	grads, err := s.gather(l)
	if err != nil {
		return nil, err
	}
	values := grads * sim.Time(s.ParamBytes) / sim.Time(s.GradBytes)
	if out.Data = grads + values; s.Again {
		out.Data += values
	}
	if s.Overlap {
		out.Data = max(out.Data-(out.Compute+out.Tensor)/2, 0)
	}
	return out, nil
}

// gather returns the time of a gather of all gradients: those of experts go over the ranks that have the same ones.
func (s *Step) gather(l *sim.Library) (sim.Time, error) {
	mlps := 8 * s.Hidden * s.Hidden * max(1, s.Experts)
	shared, own := s.Layers*(4*s.Hidden*s.Hidden+mlps)+s.Vocab*s.Hidden, 0
	if s.Experts > 0 {
		own = s.Layers * mlps
		shared += s.Layers*s.Hidden*s.Experts - own
	}
	all, err := l.AllGather(s.TP, s.DP, s.GradBytes*(shared/(s.TP*s.PP)))
	if err != nil || own == 0 {
		return all, err
	}
	of, err := l.AllGather(s.TP*s.EP, s.DP/s.EP, s.GradBytes*(own/(s.TP*s.PP*s.EP)))
	return all + of, err
}
