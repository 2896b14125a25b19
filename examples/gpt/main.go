// Command gpt trains a small Llama to write like Isaac Newton, byte by byte, on any layout of data, sharded-data, tensor, sequence,
// context and pipeline parallelism. Ranks are goroutines of this process, or processes if it is started by "ringo run". Every layout
// computes the same. The text is the Opticks (1730), or a file. With -load it continues from a GPT-2 or Llama in Hugging Face's format, or
// from its own checkpoint. With -lora it trains only adapters, with -chat it learns the answers of conversations (chat.go). Flags that
// examples/moe has too, and the text, are in examples/internal/lm: its layout.go makes the mesh and the parallel.Config from the flags. The
// order in which a model is divided is in divide, below.
package main

import (
	"context"
	"flag"
	"io"
	"os"
	"path/filepath"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/ckpt/peft"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/examples/internal/lm"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/models/gpt/parallel"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/pp"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
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
	text, err := o.corpus()
	if err != nil {
		return err
	}
	return o.Run(dist.Config{Ranks: o.Ranks(), Log: w}, func(ctx context.Context, r *dist.Rank) error {
		t := &trainer{o: o, r: r, text: text}
		if err := t.divide(dtype); err != nil {
			return err
		}
		if err := t.start(ctx); err != nil {
			return err
		}
		for _, b := range t.loop.Batches(t.learn, o.Steps) {
			if err := t.step(b); err != nil {
				return err
			}
		}
		if t.loop.Going() {
			s := t.o.Summary(t.loop, "gpt", t.count, text.Corpus)
			if t.pipe == nil { // stages write no text
				s.Sample = o.Write(t.model, r.Device, text.Corpus)
			}
			if err := t.loop.Report(s, s.String(), s.Sample); err != nil {
				return err
			}
		}
		return t.close()
	})
}

// trainer is one rank.
type trainer struct {
	o          options
	r          *dist.Rank
	text       *corpus
	model      *gpt.Model
	count      int // parameters of the whole model
	at         *parallel.Attached
	pipe       *parallel.Pipeline // nil without -pp
	opt        *optim.Optimizer
	tape, eval *tensor.Tape
	learn      *data.Loader
	loop       *train.Loop
}

// divide makes the model, without values, and divides it over the ranks.
func (t *trainer) divide(dtype tensor.DType) (err error) {
	o := &t.o
	if t.model, err = o.newModel(); err != nil {
		return err
	}
	t.count = nn.ParamsOf(t.model).Count()
	mesh, err := o.Mesh(t.r, t.model.Config.KVHeads)
	if err != nil {
		return err
	}
	if o.PP > 1 { // layers first
		s, err := pp.ByName(o.schedule, o.PP, o.chunks, o.micro)
		if err != nil {
			return err
		}
		if t.pipe, err = parallel.NewPipeline(mesh.Group("pp"), s, t.model); err != nil {
			return train.Usagef("-pp %d -schedule %s: %v", o.PP, o.schedule, err)
		}
	}
	t.at, err = parallel.Attach(mesh, t.model, o.Config(dtype, o.Seed)) // then the others, and the values
	return err
}

// start makes what else a step needs, and begins the loop.
func (t *trainer) start(ctx context.Context) error {
	saved, base, err := t.load(ctx)
	if err != nil {
		return err
	}
	var norm optim.Norm // sums over the ranks that have other gradients
	if t.at.Shards != nil || t.o.TP > 1 || t.pipe != nil {
		norm = t.r.World
	}
	t.opt = t.o.Optimizer(t.at.Params, norm)
	t.tape = tensor.NewTape(t.r.Device, tensor.Seed(t.o.Seed), tensor.Trace(t.r.Trace))
	t.eval = tensor.NewTape(t.r.Device, tensor.NoGrad(), tensor.Eval(), tensor.Trace(t.r.Trace))
	st := ckpt.State{Params: saved, Optimizer: t.opt, Tape: t.tape, Base: base}
	if t.o.LoRA == 0 { // a folder of a whole model, which others can read
		if st.Files, err = t.model.Files(); err != nil {
			return err
		}
	}
	if t.loop, err = t.o.Start(ctx, t.r, t.model.Config, st); err != nil {
		return err
	}
	var dev tensor.Device // nil: the host cuts microbatches, and reads the numbers of documents
	if t.pipe != nil {
		if err := t.pipe.Start(t.at, t.opt, t.tape, t.eval); err != nil {
			return err
		}
	} else if t.text.chat == nil {
		dev = t.r.Device
	}
	t.learn = data.NewLoader(t.text.Learn, data.Config{Batch: t.o.Batch, Shuffle: true, Seed: t.o.Seed, Sharder: t.at.Data, Device: dev})
	t.loop.Measure(t.at.Groups...)
	test := data.NewLoader(t.text.Test, data.Config{Batch: 16, Sharder: t.at.Data, Device: dev})
	t.loop.Evaluate(lm.ValLoss, 250, test, t.measure)
	return nil
}

// step does a step on this rank's part of a batch.
func (t *trainer) step(b data.Batch) error {
	if t.pipe != nil {
		loss, err := t.pipe.Train(b, t.text.options(b)...)
		if err != nil {
			return err
		}
		t.loop.Sum("loss", tensor.ToDevice(t.r.Device, tensor.FromSlice([]float64{loss}, 1)))
		return t.opt.Step()
	}
	loss := t.loss(t.tape, b, t.text.options(b))
	t.tape.Backward(loss)
	t.loop.Sum("loss", t.at.Once(loss))
	err := t.opt.Step()
	t.tape.Reset()
	return err
}

// loss is this rank's part of the mean over labels.
func (t *trainer) loss(tape *tensor.Tape, b data.Batch, options []ops.CrossEntropyOptions) tensor.Tensor {
	ids, docs := gpt.Documents(b.X)
	return t.at.FeatureLoss(t.model.Features(tape.Input(t.at.Part(ids, docs...)), docs...), t.at.Part(b.Y, docs...), options...)
}

// measure returns what this rank adds to the losses of a batch's sequences.
func (t *trainer) measure(b data.Batch) (float64, error) {
	if t.pipe != nil {
		return t.pipe.Loss(b, t.text.test)
	}
	defer t.eval.Reset()
	return t.at.Once(t.loss(t.eval, b, []ops.CrossEntropyOptions{t.text.test})).Item(), nil
}

// load loads the model's values before an optimizer copies them. It returns the parameters to save: all, or only adapters, with the base
// that they need.
func (t *trainer) load(ctx context.Context) (saved nn.Params, base *ckpt.Base, err error) {
	all := t.at.Params
	if t.o.Load == "" {
		return all, nil, nil
	}
	loaded, saved := all, all
	if t.o.LoRA > 0 {
		loaded, saved = all.Base(), all.Trainable()
	}
	c := t.model.LoadConfig()
	switch {
	case t.pipe != nil:
		c.Strategy = ckpt.Owned
	case t.at.Shards == nil && t.o.TP == 1:
		c.Strategy = ckpt.Broadcast
	}
	if _, err := ckpt.Load(ctx, t.r.World, t.o.Load, &ckpt.State{Params: loaded}, c); err != nil {
		return nil, nil, err
	}
	if t.o.LoRA > 0 && t.o.Save != "" {
		base, err = ckpt.BaseOf(ctx, t.r.World, t.o.Load, loaded, c) // with what -lora-save trains
	}
	return saved, base, err
}

// close ends the training. It also writes adapters in PEFT's format.
func (t *trainer) close() error {
	going := t.loop.Going()
	if err := t.loop.Close(); err != nil || !going || t.o.LoRA == 0 || t.o.Save == "" || t.r.World.Rank() != 0 {
		return err
	}
	last, err := ckpt.Latest(t.o.Save)
	if err != nil {
		return err
	}
	whole, err := t.o.newModel() // this rank may have a stage alone
	if err != nil {
		return err
	}
	return peft.Export(whole, last, filepath.Join(t.o.Save, "adapters"))
}
