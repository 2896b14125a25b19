package train

import (
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/train/metrics"
)

// gradsEnv names the file that norms of gradients go to. Rank 0's counts, so that all ranks agree.
const gradsEnv = "RINGO_GRADS"

// gradNorms has each step of the optimizer append the norms of all gradients of the job to a file.
type gradNorms struct {
	l    *Loop
	file string
	all  []metrics.GradNorm    // of the job, in the order of ranks and of their models
	mine map[*tensor.Param]int // where they are in all; -1: another rank counts it
	sums []float64             // of squares
}

// share is what a rank holds of a parameter.
type share struct {
	Name   string
	Shape  []int // of the model's tensor
	Counts int   // elements that this rank counts
	Whole  bool  // every rank that has it has all of it, and nobody said who counts
}

// probeGrads has the optimizer's steps written, if RINGO_GRADS asks for it.
func (l *Loop) probeGrads() error {
	file, err := dist.BroadcastObject(l.g, os.Getenv(gradsEnv), 0)
	if err != nil || file == "" {
		return err
	}
	if l.state.Optimizer == nil {
		return fmt.Errorf("%s=%s: this training gives train.Start no Optimizer, so that nobody knows its gradients", gradsEnv, file)
	}
	if err := l.onZero(func() error {
		if err := metrics.AppendGrads(file); err != nil {
			return fmt.Errorf("%s: %w", gradsEnv, err)
		}
		return nil
	}); err != nil {
		return err
	}
	p := &gradNorms{l: l, file: file, mine: map[*tensor.Param]int{}}
	if err := p.share(l.state.Params.Trainable()); err != nil {
		return err
	}
	l.state.Optimizer.Probe(p.step)
	return nil
}

// share finds out which parameters the ranks have together, and which of them each rank counts.
func (p *gradNorms) share(params nn.Params) error {
	var held []share
	for _, x := range params {
		s := share{Name: x.Name(), Shape: x.Global(), Whole: x.Shard.Global == nil}
		if s.Whole || x.Shard.Counts {
			s.Counts = x.Local.Len()
		}
		held = append(held, s)
	}
	ranks, err := dist.AllGatherObject(p.l.g, held)
	if err != nil {
		return err
	}
	at, counted := map[string]int{}, []int(nil)
	for rank, list := range ranks {
		for k, s := range list {
			i, known := at[s.Name]
			if !known {
				i = len(p.all)
				at[s.Name] = i
				p.all, counted = append(p.all, metrics.GradNorm{Name: s.Name, Shape: s.Shape}), append(counted, 0)
			}
			if s.Whole && known { // the first rank's counts
				s.Counts = 0
			}
			counted[i] += s.Counts
			if rank != p.l.g.Rank() {
				continue
			}
			p.mine[params[k]] = i
			if s.Counts == 0 {
				p.mine[params[k]] = -1
			}
		}
	}
	p.sums = make([]float64, len(p.all))
	return p.countedOnce(counted)
}

// countedOnce returns an error unless each element is counted once: norms would be wrong.
func (p *gradNorms) countedOnce(counted []int) error {
	for i, x := range p.all {
		n := 1
		for _, d := range x.Shape {
			n *= d
		}
		if counted[i] != n {
			return fmt.Errorf("%s: the ranks count %d elements of %s, which has %d: of the ranks that hold the same, all but one must say so "+
				"(Param.NarrowCounts; ddp and fsdp do it for theirs)", gradsEnv, counted[i], x.Name, n)
		}
	}
	return nil
}

// step writes a step's norms. It is collective.
func (p *gradNorms) step(sums []optim.GradSum) error {
	clear(p.sums)
	for _, s := range sums {
		i, ok := p.mine[s.Param]
		if !ok {
			return fmt.Errorf("%s: the optimizer trains %v, which is not among the trainable Params that train.Start was given", gradsEnv, s.Param)
		}
		if i >= 0 {
			p.sums[i] = s.Squares
		}
	}
	if err := p.l.g.SumFloats(p.sums); err != nil {
		return err
	}
	if err := p.l.Flush(); err != nil { // so that the loss is that of all ranks
		return err
	}
	if p.l.g.Rank() > 0 {
		return nil
	}
	step := metrics.GradStep{Step: p.l.steps + 1, Grads: slices.Clone(p.all)}
	if loss, ok := p.l.rows[step.Step]["loss"]; ok {
		n := metrics.Number(loss)
		step.Loss = &n
	}
	for i := range step.Grads {
		step.Grads[i].Norm = metrics.Number(math.Sqrt(p.sums[i]))
	}
	return metrics.AppendGrads(p.file, step)
}
