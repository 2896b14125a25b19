// Command moe trains a small language model with a mixture of experts in each layer. It has the text and the flags of examples/gpt, and can
// divide experts over ranks: -ep 2. It records how often each expert is chosen; -plot draws it. What it has in common with examples/gpt is
// in examples/internal/lm.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/examples/internal/lm"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/models/gpt/parallel"
	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/train"
)

func main() {
	parse := define(flag.CommandLine)
	flag.Parse()
	train.Exit(parse().run(os.Stdout))
}

// run trains, and writes text for people, or the JSON line, to w.
func (o options) run(w io.Writer) error {
	dtype, err := o.check()
	if err != nil {
		return err
	}
	text, err := o.Corpus()
	if err != nil {
		return err
	}
	return o.Run(dist.Config{Ranks: o.Ranks(), Log: w}, func(ctx context.Context, r *dist.Rank) error {
		t, err := newTrainer(ctx, o, dtype, r, text)
		if err != nil {
			return err
		}
		for _, b := range t.loop.Batches(t.learn, o.Steps) {
			if err := t.step(b); err != nil {
				return err
			}
		}
		if t.loop.Going() {
			if err := t.report(text); err != nil {
				return err
			}
		}
		return t.loop.Close()
	})
}

// trainer is one rank.
type trainer struct {
	o          options
	r          *dist.Rank
	model      *gpt.Model
	layers     []*moe.Layer
	count      int // parameters of the whole model
	at         *parallel.Attached
	opt        *optim.Optimizer
	balancer   *moe.Balancer
	tape, eval *tensor.Tape
	learn      *data.Loader
	loop       *train.Loop
}

func newTrainer(ctx context.Context, o options, dtype tensor.DType, r *dist.Rank, text *lm.Corpus) (*trainer, error) {
	t := &trainer{o: o, r: r}
	var err error
	if t.model, t.layers, err = o.newModel(); err != nil {
		return nil, err
	}
	t.count = nn.ParamsOf(t.model).Count()
	mesh, err := t.o.Mesh(r, t.model.Config.KVHeads)
	if err != nil {
		return nil, err
	}
	if t.at, err = parallel.Attach(mesh, t.model, o.Config(dtype, o.Seed)); err != nil {
		return nil, err
	}
	var norm optim.Norm // sums over the ranks that have other gradients
	if t.at.Shards != nil || o.TP > 1 || o.EP > 1 {
		norm = r.World
	}
	t.opt, t.balancer = o.Optimizer(t.at.Params, norm), moe.NewBalancer(o.bias, t.layers...)
	t.tape = tensor.NewTape(r.Device, tensor.Seed(o.Seed), tensor.Trace(r.Trace))
	t.eval = tensor.NewTape(r.Device, tensor.NoGrad(), tensor.Eval(), tensor.Trace(r.Trace))
	t.loop, err = t.o.Start(ctx, r, t.model.Config, ckpt.State{Params: t.at.Params, Optimizer: t.opt, Tape: t.tape})
	if err != nil {
		return nil, err
	}
	t.learn = data.NewLoader(text.Learn, data.Config{Batch: o.Batch, Shuffle: true, Seed: o.Seed, Sharder: t.at.Data, Device: r.Device})
	t.loop.Measure(t.at.Groups...)
	test := data.NewLoader(text.Test, data.Config{Batch: 16, Sharder: t.at.Data, Device: r.Device})
	t.loop.Evaluate(lm.ValLoss, 250, test, t.measure)
	return t, nil
}

// step does a step on this rank's part of a batch.
func (t *trainer) step(b data.Batch) error {
	loss := t.at.FeatureLoss(t.model.Features(t.tape.Input(t.at.Part(b.X))), t.at.Part(b.Y)) // this rank's part of the mean
	t.tape.Backward(loss)
	t.loop.Sum("loss", t.at.Once(loss))
	err := t.opt.Step()
	t.tape.Reset()
	return errors.Join(err, t.balance())
}

// measure returns what this rank adds to the losses of a batch's sequences.
func (t *trainer) measure(b data.Batch) (float64, error) {
	defer t.eval.Reset()
	loss := t.at.Once(t.at.FeatureLoss(t.model.Features(t.eval.Input(t.at.Part(b.X))), t.at.Part(b.Y)))
	return loss.Item() * float64(b.Global), nil
}

// balance records which experts were chosen in the step.
func (t *trainer) balance() error {
	loads, err := t.balancer.Step()
	for i, l := range loads {
		total := int64(0)
		for _, n := range l.Chosen {
			total += n
		}
		t.loop.Log(fmt.Sprintf("cv of layer %d", i), l.CV())
		t.loop.Log(fmt.Sprintf("entropy of layer %d", i), l.Entropy())
		if t.o.capacity > 0 {
			t.loop.Log(fmt.Sprintf("dropped of layer %d", i), float64(l.Dropped)/float64(max(1, total)))
		}
		for e, n := range l.Chosen {
			t.loop.Log(fmt.Sprintf("load of layer %d[%d]", i, e), float64(n)*float64(len(l.Chosen))/float64(max(1, total)))
		}
	}
	return err
}

// summary is what -json prints.
type summary struct {
	lm.Summary
	Experts []layerOfExperts `json:"experts"`
}

// layerOfExperts is the summary of a layer. Numbers of experts are means over the last 100 steps.
type layerOfExperts struct {
	CV      float64 `json:"load_cv"` // standard deviation of the experts' slots over their mean
	Entropy float64 `json:"entropy"` // of the expert of a slot, in nats
	Dropped float64 `json:"dropped"` // fraction of the slots
	Forced  bool    `json:"forced"`  // -forced: the router chose nothing
	Sent    uint64  `json:"bytes"`   // to other experts and back, by this rank in training steps
}

// report prints the summary and a text.
func (t *trainer) report(text *lm.Corpus) error {
	s := summary{Summary: t.o.Summary(t.loop, "moe", t.count, text)}
	lines := []string{s.String()}
	for i, g := range t.at.Experts {
		mean := func(name string) float64 { return t.loop.Mean(fmt.Sprintf("%s of layer %d", name, i), s.Steps-100) }
		l := layerOfExperts{mean("cv"), mean("entropy"), mean("dropped"), t.o.forced, t.loop.Sent(g)}
		s.Experts = append(s.Experts, l)
		lines = append(lines, fmt.Sprintf("layer %d: expert load varies by %.2f, entropy %.3f of %.3f, %.2f%% dropped, sent %.2f MiB a step",
			i, l.CV, l.Entropy, math.Log(float64(t.o.experts)), 100*l.Dropped, s.PerStep(l.Sent)))
	}
	if t.o.forced {
		lines = append(lines, "experts were taken in turn (-forced): this is a benchmark, and no model to keep")
	}
	s.Sample = t.o.Write(t.model, t.r.Device, text)
	return t.loop.Report(s, append(lines, s.Sample)...)
}
