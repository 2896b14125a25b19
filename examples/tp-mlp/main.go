// Command tp-mlp divides the two layers of an MLP over ranks (tensor parallelism). It shows what each rank holds, which collectives a step
// calls, what they send, and how much the results differ from those of one rank.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tp"
)

type options struct {
	ranks, dim, hidden, tokens int
	seq                        bool
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("tp-mlp: ")
	var o options
	flag.IntVar(&o.ranks, "ranks", 2, "goroutine `ranks` (under ringo run, the launcher decides)")
	flag.IntVar(&o.dim, "dim", 64, "features of a token")
	flag.IntVar(&o.hidden, "hidden", 250, "features between the two layers")
	flag.IntVar(&o.tokens, "tokens", 96, "tokens of the step")
	flag.BoolVar(&o.seq, "sp", false, "outside the layers, each rank has a part of the tokens (sequence parallelism)")
	device := dist.DeviceFlag()
	flag.Parse()
	if min(o.ranks, o.dim, o.hidden, o.tokens) < 1 || flag.NArg() > 0 {
		log.Printf("-ranks, -dim, -hidden and -tokens must be at least 1, and there are no arguments: %q", flag.Args())
		os.Exit(2)
	}
	if err := o.run(dist.Config{Ranks: o.ranks, Device: *device, Log: os.Stdout}); err != nil {
		log.Fatal(err)
	}
}

// block is x + Down(GELU(Up(Norm(x)))).
type block struct {
	Norm nn.Layer
	MLP  *nn.MLP

	divide tensor.Function // applied to the tokens before the block, to divide them; nil: they are not divided
}

func (o *options) block() *block {
	return &block{Norm: nn.NewLayerNorm(o.dim), MLP: nn.NewMLP(o.dim, o.hidden)}
}

func (b *block) loss(t *tensor.Tape, x tensor.Tensor) nn.T {
	in := t.Input(x)
	if b.divide != nil {
		in = t.Apply(b.divide, in)
	}
	return b.MLP.ForwardAdd(b.Norm.Forward(in), in).Square().Sum()
}

func (o *options) run(cfg dist.Config) error {
	return dist.Run(context.Background(), cfg, func(_ context.Context, r *dist.Rank) error {
		mesh, err := r.World.Mesh(fmt.Sprintf("tp=%d", r.World.Size()))
		if err != nil {
			return err
		}
		g, b := mesh.Group("tp"), o.block()
		if err := tp.Parallelize(b, tp.Config{Group: g, Sequence: o.seq}, func(p *tp.Parallel) {
			b.divide = p.Tokens()
			b.Norm = p.Columns(b.Norm, b.MLP.Up)
			p.Row(b.MLP.Down)
		}); err != nil {
			return err
		}
		params := nn.Init(b, r.Device, tensor.Float64, 1)
		if err := o.holds(r, params); err != nil {
			return err
		}
		x := tensor.NewParam(tensor.NormalInit(0, 1), o.tokens, o.dim)
		x.Make(r.Device, tensor.Float64, 2)
		tape := tensor.NewTape(r.Device)
		loss := b.loss(tape, x.Value)
		r.Logf("forward:  %s", calls(g.Stats(), dist.Stats{}))
		before := g.Stats()
		total := []float64{loss.Item()}
		tape.Backward(loss)
		r.Logf("backward: %s", calls(g.Stats(), before))
		if o.seq { // each rank has only the loss of its tokens
			if err := r.World.SumFloats(total); err != nil {
				return err
			}
		}
		return o.compare(r, params, x.Value, total[0])
	})
}

// holds prints the part of each parameter on each rank.
func (o *options) holds(r *dist.Rank, params nn.Params) error {
	var mine []string
	for _, p := range params {
		mine = append(mine, fmt.Sprintf("%s %v of %v", p.Name(), p.Dims(), p.Global()))
	}
	all, err := dist.AllGatherObject(r.World, mine)
	for rank, list := range all {
		r.Logf("rank %d: %s", rank, strings.Join(list, ", "))
	}
	return err
}

// calls returns the collectives that were called since before, and the bytes that this rank sent.
func calls(now, before dist.Stats) string {
	var list []string
	for op, n := range now.Calls {
		if n -= before.Calls[op]; n > 0 {
			list = append(list, fmt.Sprintf("%d %s, %d bytes sent", n, op, now.Wire[op]-before.Wire[op]))
		}
	}
	if slices.Sort(list); list == nil {
		return "no communication"
	}
	return strings.Join(list, "; ")
}

// compare computes the same with the whole model on this rank, and compares.
func (o *options) compare(r *dist.Rank, params nn.Params, x tensor.Tensor, loss float64) error {
	one := o.block()
	whole := nn.Init(one, r.Device, tensor.Float64, 1)
	tape := tensor.NewTape(r.Device)
	want := one.loss(tape, x)
	far := []float64{math.Abs(want.Item()-loss) / want.Item()}
	tape.Backward(want)
	for i, p := range params {
		mine, all, at := tensor.Floats(p.Grad.ToLocal()), tensor.Floats(whole[i].Grad), 0
		for first, n := range p.Runs(0, p.Len()) {
			for k := range n {
				far[0] = max(far[0], math.Abs(mine[at]-all[first+k])/(1+math.Abs(all[first+k])))
				at++
			}
		}
	}
	if err := r.World.SumFloats(far); err != nil {
		return err
	}
	r.Logf("loss %.6f; loss and gradients differ from those of one rank by %.1e at most, relatively", loss, far[0])
	if !(far[0] < 1e-9) {
		return fmt.Errorf("they should be the same")
	}
	return nil
}
