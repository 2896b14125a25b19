package main

import (
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/dist/sim"
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

// pass is a row of the picture.
type pass struct {
	name string
	*sim.Overlap
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
	b := sim.Backward{Ranks: c.Ranks, Gradients: backwards(model), Compute: sim.Time(c.Backward.Nanoseconds() * 1000)}
	var rows []pass
	for _, n := range append([]int{0}, sizes...) {
		b.Bucket = n
		o, err := top.Backward(b)
		if err != nil {
			return "", err
		}
		name := "none"
		if n > 0 {
			name = sizeName(n)
		}
		rows = append(rows, pass{name, o})
	}
	return drawPasses(fmt.Sprintf("gradients of GPT-2 small on %s of %s", counted(c.Ranks, "rank"), top.Name), b.Compute, rows), nil
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

// drawPasses draws two lines for each: what ranks compute, and what is on the network.
func drawPasses(title string, compute sim.Time, rows []pass) string {
	const top, wide, high = 76, 620.0, 46
	longest := compute
	for _, r := range rows {
		longest = max(longest, r.Total)
	}
	x := func(t sim.Time) float64 { return leftMargin + wide*float64(t)/float64(longest) }
	var p svg
	p.begin(leftMargin+wide+190, float64(top+high*len(rows)), title)
	p.text(12, 30, "h", "start", title)
	p.text(12, 54, "dim", "start", "buckets; above: backward; below: all-reduces, a box for each")
	for i, r := range rows {
		y := float64(top + high*i)
		p.text(leftMargin-10, y+22, "rank", "end", r.name)
		p.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="14" fill="#8fbdf0"/>`, x(0), y, x(compute)-x(0))
		for k, s := range r.Sums {
			p.add(`<rect x="%.2f" y="%.1f" width="%.2f" height="14" fill="%s"><title>%s: %v to %v</title></rect>`, x(s.Start), y+16,
				x(s.End)-x(s.Start), [2]string{"#86cf97", "#4fae66"}[k%2], roughly(s.Bytes), s.Start, s.End)
		}
		p.text(x(longest)+10, y+12, "dim", "start", fmt.Sprintf("%.0f%% hidden, %v", math.Abs(100*r.Hidden),
			time.Duration(r.Total/1e3).Round(10*time.Microsecond)))
		p.text(x(longest)+10, y+28, "dim", "start", counted(len(r.Sums), "all-reduce"))
	}
	return p.String() + "</svg>\n"
}
