package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/dist/sim"
	"github.com/ringo-ml/ringo/dist/sim/training"
	"github.com/ringo-ml/ringo/plan"
	"github.com/ringo-ml/ringo/tensor"
)

// timing is what `ringo plan -topo` adds.
type timing struct {
	Topology string        `json:"topology"`
	Layouts  []timedLayout `json:"layouts"` // the planned one, then others of as many ranks, the fastest first
	step     training.Step
}

// timedLayout is the time of a step in a layout, in seconds.
type timedLayout struct {
	Layout  string  `json:"layout"`
	Step    float64 `json:"step"`
	Compute float64 `json:"compute"`
	Tensor  float64 `json:"tensor"`
	Experts float64 `json:"experts"`
	Bubble  float64 `json:"bubble"`
	Stages  float64 `json:"stages"`
	Data    float64 `json:"data"`
	Exposed float64 `json:"exposed"` // part of the step in which a rank does not compute
}

// times predicts the step of the planned layout, and of others.
func (c *planCmd) times(l plan.Layout, p *plan.Plan) (*timing, error) {
	name, hosts, cut := c.Topo, math.MaxInt32, strings.LastIndex(c.Topo, "x")
	if n, err := strconv.Atoi(c.Topo[cut+1:]); err == nil && cut > 0 {
		name, hosts = c.Topo[:cut], n
	}
	top, err := sim.Open(name)
	if err != nil {
		return nil, fmt.Errorf("-topo: %w; with a number of hosts it is such as hgx-h100x32", err)
	}
	ranks := l.Ranks()
	switch {
	case l.Ring > 1 || l.CP > 1:
		return nil, fmt.Errorf("-topo: the time of ring and cp is not predicted")
	case c.Host > 0 || c.Int8 || c.Int4:
		return nil, fmt.Errorf("-topo: the time of -host, -int8 and -int4 is not predicted")
	case l.PP > 1 && or(c.Sched, "1f1b") != "1f1b":
		return nil, fmt.Errorf("-topo: the time of -schedule %s is not predicted, only that of 1f1b", *c.Sched)
	case (ranks+top.Host-1)/top.Host > hosts:
		return nil, fmt.Errorf("-topo %s: %d ranks do not fit on %d hosts of %d", c.Topo, ranks, hosts, top.Host)
	case !(c.TFLOPS >= 1e-3 && c.TFLOPS <= 1e6):
		return nil, fmt.Errorf("-tflops %v: what a rank computes is from 0.001 to 1e6", c.TFLOPS)
	}
	s := training.Step{Layers: c.Layers, Hidden: c.Dim, Seq: c.Seq, Vocab: c.Vocab, Batch: c.Batch, Chunks: 1,
		FLOPS: c.TFLOPS * 1e12, Overlap: true, ParamBytes: bytesOf(p.Params), GradBytes: bytesOf(p.Reduce),
		Experts: c.Experts, Top: or(c.TopK, 2), Again: l.FSDP > 1 && l.PP <= 1 && c.Stage != 1 && c.Stage != 2}
	t, net := &timing{Topology: c.Topo}, &sim.Library{Topology: top}
	t.step = divided(s, max(l.TP, 1), max(l.PP, 1), max(l.EP, 1), ranks, or(c.Micro, 8))
	mine, err := timed(net, l.String(), t.step)
	if err != nil {
		return nil, fmt.Errorf("-topo %s: %w", c.Topo, err)
	}
	for tp := 1; tp <= min(top.Host, ranks, c.Heads); tp *= 2 {
		for pp := 1; pp <= min(ranks/tp, c.Layers); pp *= 2 {
			for ep := 1; ep <= max(1, c.Experts); ep *= 2 {
				other := plan.Layout{TP: tp, PP: pp, DP: ranks / tp / pp / ep}
				if c.Experts > 0 {
					other.EP = ep
				}
				if ranks%(tp*pp*ep) != 0 || c.Heads%tp != 0 || c.Vocab%tp != 0 || c.Layers%pp != 0 {
					continue
				}
				if x, err := timed(net, other.String(), divided(s, tp, pp, ep, ranks, or(c.Micro, 8))); err == nil {
					t.Layouts = append(t.Layouts, x) // else its batch or its experts do not divide
				}
			}
		}
	}
	slices.SortStableFunc(t.Layouts, func(a, b timedLayout) int { return cmp.Compare(a.Step, b.Step) })
	t.Layouts = append([]timedLayout{mine}, t.Layouts[:min(5, len(t.Layouts))]...)
	return t, nil
}

// bytesOf returns the bytes of an element of a type that a plan names.
func bytesOf(dtype string) int {
	d, err := tensor.ParseDType(dtype)
	if err != nil {
		panic(err)
	}
	return d.Size()
}

// divided returns s in a layout. Without a pipeline there is one microbatch.
func divided(s training.Step, tp, pp, ep, ranks, micros int) training.Step {
	s.TP, s.PP, s.DP, s.EP = tp, pp, ranks/tp/pp, ep
	if pp == 1 {
		micros = 1
	}
	s.Micro = s.Batch / s.DP / micros
	return s
}

func timed(net *sim.Library, name string, s training.Step) (timedLayout, error) {
	p, err := s.On(net)
	if err != nil {
		return timedLayout{}, err
	}
	all := p.Total().Seconds()
	return timedLayout{name, all, p.Compute.Seconds(), p.Tensor.Seconds(), p.Experts.Seconds(), p.Bubble.Seconds(),
		p.Stages.Seconds(), p.Data.Seconds(), 1 - p.Compute.Seconds()/all}, nil
}

// String writes the times, with the arithmetic of the planned layout.
func (t *timing) String() string {
	var out strings.Builder
	x, s := t.Layouts[0], t.step
	fmt.Fprintf(&out, "time of a step on %s, predicted: %s, of which a rank does not compute %.1f%%\n", t.Topology,
		seconds(x.Step), 100*x.Exposed)
	line := func(name string, value float64, formula string, a ...any) {
		fmt.Fprintf(&out, "  %-9s %10s  %s\n", name, seconds(value), fmt.Sprintf(formula, a...))
	}
	micros := s.Batch / s.DP / s.Micro
	work := "72·B·s·l·h²·(1 + s/6h) + 6·B·s·h·V"
	if s.Experts > 0 {
		work = fmt.Sprintf("24·B·s·l·h²·(1 + 2·%d + s/2h) + 6·B·s·h·(V + %d·l)", s.Top, s.Experts)
	}
	line("compute", x.Compute, "%s = %.4g FLOP over %d ranks of %.4g TFLOP/s", work, s.Work(), s.TP*s.PP*s.DP, s.FLOPS/1e12)
	line("tp", x.Tensor, "4 all-reduces of %d·%d·%d·%d bytes in each of %d layers and %d microbatches", s.Micro,
		s.Seq, s.Hidden, s.ParamBytes, s.RankLayers(), micros)
	if s.Experts > 0 {
		line("experts", x.Experts, "4 all-to-alls of %d·%d·%d·%d·%d bytes over %d ranks, in each of these, if experts are chosen equally often",
			s.Micro, s.Seq, s.Top, s.Hidden, s.ParamBytes, s.EP)
	}
	line("bubble", x.Bubble, "(pp−1)/m = %d/%d of the above", s.PP-1, micros)
	line("stages", x.Stages, "2·(pp−1) messages that nothing hides")
	over := fmt.Sprintf("%d ranks", s.DP)
	if s.Experts > 0 {
		over += fmt.Sprintf(" (those of experts: %d)", s.DP/max(1, s.EP))
	}
	line("gradients", x.Data, "%d bytes a parameter summed and %d gathered over %s, less half of the time above", s.GradBytes,
		s.ParamBytes, over)
	fmt.Fprintf(&out, "\nthe fastest of as many ranks, if they have memory for it (see ringo plan -layout):\n  %-22s %10s  exposed\n",
		"layout", "step")
	for _, x := range t.Layouts[1:] {
		fmt.Fprintf(&out, "  %-22s %10s  %6.1f%%\n", x.Layout, seconds(x.Step), 100*x.Exposed)
	}
	return out.String()
}

func seconds(x float64) string { return sim.Time(x * 1e12).String() }
