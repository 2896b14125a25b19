package gradnorm

import (
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/train/internal/values"
	"github.com/ringo-ml/ringo/train/internal/zero"
	"github.com/ringo-ml/ringo/train/metrics"
)

// env names the environment variable with the file. Rank 0's counts, so that all ranks agree.
const env = "RINGO_GRADS"

// probe has each step of an optimizer append the norms of all gradients of the job to a file.
type probe struct {
	g      *dist.Group
	file   string
	values *values.Table
	flush  func() error
	all    []metrics.GradNorm    // of the job, in the order of ranks and of their models
	mine   map[*tensor.Param]int // where they are in all; -1: another rank counts it
	sums   []float64             // of squares
}

// share is what a rank holds of a parameter.
type share struct {
	Name   string
	Shape  []int // of the model's tensor
	Boxes  []layout.Box
	Lo, Hi int // elements of these
}

// Probe has each step of opt, which trains params, write a line if RINGO_GRADS asks for it. A line has the step's "loss" in t, which flush
// makes known. It is collective over g. opt.Probe(nil) ends it.
func Probe(g *dist.Group, opt *optim.Optimizer, params nn.Params, t *values.Table, flush func() error) error {
	file, err := zero.Do(g, func() (string, error) {
		file := os.Getenv(env)
		if file == "" {
			return "", nil
		}
		if err := metrics.AppendGrads(file); err != nil {
			return "", fmt.Errorf("%s: %w", env, err)
		}
		return file, nil
	})
	if err != nil || file == "" {
		return err
	}
	if opt == nil {
		return fmt.Errorf("%s=%s: this training gives train.Start no Optimizer, so that nobody knows its gradients", env, file)
	}
	p := &probe{g: g, file: file, values: t, flush: flush, mine: map[*tensor.Param]int{}}
	if err := p.share(params); err != nil {
		return err
	}
	opt.Probe(p.step)
	return nil
}

// share finds out which parameters the ranks have together, and which of them each rank counts (layout.Counted).
func (p *probe) share(params nn.Params) error {
	var mine []share
	for _, x := range params {
		lo, hi := x.Placement().Range()
		mine = append(mine, share{x.Name(), x.Global(), x.Placement().Boxes(), lo, hi})
	}
	ranks, err := dist.AllGatherObject(p.g, mine)
	if err != nil {
		return err
	}
	var held []layout.Held[string]
	for _, list := range ranks {
		for _, s := range list {
			held = append(held, layout.Held[string]{Of: fmt.Sprint(s.Name, s.Boxes), Lo: s.Lo, Hi: s.Hi})
		}
	}
	at, sizes, counted := map[string]int{}, []int(nil), layout.Counted(held)
	for rank, list := range ranks {
		for k, s := range list {
			i, known := at[s.Name]
			if !known {
				i = len(p.all)
				at[s.Name] = i
				p.all, sizes = append(p.all, metrics.GradNorm{Name: s.Name, Shape: s.Shape}), append(sizes, 0)
			}
			if counted[k] {
				sizes[i] += s.Hi - s.Lo
			}
			if rank == p.g.Rank() {
				p.mine[params[k]] = -1
				if counted[k] {
					p.mine[params[k]] = i
				}
			}
		}
		counted = counted[len(list):]
	}
	p.sums = make([]float64, len(p.all))
	return p.countedOnce(sizes)
}

// countedOnce returns an error unless the ranks hold each element: norms would be wrong.
func (p *probe) countedOnce(counted []int) error {
	for i, x := range p.all {
		n := 1
		for _, d := range x.Shape {
			n *= d
		}
		if counted[i] != n {
			return fmt.Errorf("%s: the ranks count %d elements of %s, which has %d", env, counted[i], x.Name, n)
		}
	}
	return nil
}

// step writes a step's norms. It is collective.
func (p *probe) step(sums []optim.GradSum) error {
	clear(p.sums)
	for _, s := range sums {
		i, ok := p.mine[s.Param]
		if !ok {
			return fmt.Errorf("%s: the optimizer trains %v, which is not among the trainable Params that train.Start was given", env, s.Param)
		}
		if i >= 0 {
			p.sums[i] = s.Squares
		}
	}
	if err := p.g.SumFloats(p.sums); err != nil {
		return err
	}
	if err := p.flush(); err != nil || p.g.Rank() > 0 {
		return err
	}
	line := metrics.GradStep{Step: p.values.Done + 1, Grads: slices.Clone(p.all)}
	if loss, ok := p.values.Current("loss"); ok {
		n := metrics.Number(loss)
		line.Loss = &n
	}
	for i := range line.Grads {
		line.Grads[i].Norm = metrics.Number(math.Sqrt(p.sums[i]))
	}
	return metrics.AppendGrads(p.file, line)
}
