package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/cmd/ringo/viz"
	"github.com/ringo-ml/ringo/dist/sim"
	"github.com/ringo-ml/ringo/dist/sim/training"
	"github.com/ringo-ml/ringo/plan"
)

// ddpCmd is `ringo viz ddp`.
type ddpCmd struct {
	Ranks    int           `default:"32" placeholder:"N" help:"Number of ranks; 32 if absent."`
	Topo     string        `default:"hgx-h100" placeholder:"NAME" help:"The network, as for ringo sim; hgx-h100 if absent."`
	Buckets  string        `default:"1M..64M" placeholder:"LIST" help:"Largest buckets; 1M..64M is every fourfold between."`
	Backward time.Duration `default:"20ms" placeholder:"TIME" help:"What backward takes on a rank by itself; 20ms if absent."`
	Out      string        `short:"o" required:"" placeholder:"FILE" help:"The SVG file to write."`
}

// Help is the text below the flags of `ringo viz ddp -h`.
func (*ddpCmd) Help() string {
	return `Draws when package ddp all-reduces the gradients of GPT-2 small, in virtual time, on a network that is not there: with buckets of several
sizes, and without, as ddp.Naive does it: each gradient by itself after backward. Says what part of the all-reduces is hidden behind backward.

  ringo viz ddp -o ddp.svg
  ringo viz ddp -ranks 64 -topo tree -backward 2s -buckets 4M,25M -o ddp.svg`
}

// Run writes the picture.
func (c *ddpCmd) Run() error {
	if !strings.HasSuffix(c.Out, ".svg") {
		return usageOf("viz ddp", "-o %s: the name must end in .svg", c.Out)
	}
	picture, err := c.picture()
	if err != nil {
		return err
	}
	return os.WriteFile(c.Out, []byte(picture), 0o666)
}

func (c *ddpCmd) picture() (string, error) {
	top, err := sim.Open(c.Topo)
	if err != nil {
		return "", usageOf("viz ddp", "-topo: %v", err)
	}
	sizes, wrong := ranged(c.Buckets, "..")
	switch {
	case wrong != "" || len(sizes) == 0 || len(sizes) > vizRanks:
		return "", usageOf("viz ddp", "-buckets %s: %q is neither a size such as 25M nor a range such as 1M..64M; at most %d", c.Buckets, wrong,
			vizRanks)
	case c.Backward <= 0 || c.Backward > time.Hour:
		return "", usageOf("viz ddp", "-backward %v: want a time up to an hour, such as 20ms", c.Backward)
	}
	if err := top.Fits(c.Ranks); err != nil {
		return "", usageOf("viz ddp", "-ranks: %v", err)
	}
	model, err := plan.Transformer{Layers: 12, Dim: 768, Heads: 12, Vocab: 50257, Batch: c.Ranks, Seq: 1024}.Model(
		plan.Config{Layout: plan.Layout{DP: c.Ranks}})
	if err != nil {
		return "", err
	}
	b := training.Backward{Ranks: c.Ranks, Gradients: backwards(model), Compute: sim.Time(c.Backward.Nanoseconds() * 1000)}
	var rows []viz.Pass
	for _, n := range append([]int{0}, sizes...) {
		b.Bucket = n
		o, err := b.On(top)
		if err != nil {
			return "", err
		}
		name := "none"
		if n > 0 {
			name = sizeName(n)
		}
		rows = append(rows, viz.Pass{Name: name, Overlap: o})
	}
	return viz.Passes(fmt.Sprintf("gradients of GPT-2 small on %s of %s", viz.Counted(c.Ranks, "rank"), top.Name), b.Compute, rows), nil
}

// backwards returns the bytes of the gradients of a model in float32, those of the last layers first.
func backwards(m plan.Model) (list []int) {
	for i := range m.Units {
		params := m.Units[len(m.Units)-1-i].Params
		for k := range params {
			list = append(list, 4*params[len(params)-1-k])
		}
	}
	return list
}
