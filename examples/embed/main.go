// Command embed finetunes a model of sentence-transformers' with pairs of texts, such as questions and answers. It saves a folder that
// sentence-transformers opens, too, and searches. Without flags, it trains the tiny model of a test: start it in this repository.
package main

import (
	"context"
	"errors"
	"flag"
	"os"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/data/tokenizer"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/models/bert"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/train"
)

type options struct {
	load, pairs, save, query       string
	ranks, fsdp, tp, epochs, batch int
	lr                             float64
}

func main() {
	var o options
	flag.StringVar(&o.load, "load", "models/bert/testdata/mean", "the `folder` of the model")
	flag.StringVar(&o.pairs, "pairs", "examples/embed/testdata/pairs.jsonl", "a `file` of pairs: JSON Lines with anchor and positive, or CSV")
	flag.StringVar(&o.save, "save", "", "a `folder` to save the model in, below the number of the last step")
	flag.StringVar(&o.query, "query", "the color of grass", "a `text`; which second text of a pair is the nearest one?")
	flag.IntVar(&o.ranks, "ranks", 2, "goroutine `ranks` (under ringo run, the launcher decides)")
	flag.IntVar(&o.fsdp, "fsdp", 1, "ranks that divide parameters, gradients and the optimizer's state")
	flag.IntVar(&o.tp, "tp", 1, "ranks that divide each layer")
	flag.IntVar(&o.epochs, "epochs", 20, "how often each pair is used")
	flag.IntVar(&o.batch, "batch", 64, "pairs of a step, on all ranks: for a question, the answers to all others are wrong")
	flag.Float64Var(&o.lr, "lr", 1e-2, "learning rate; 2e-5 is usual for models that are not tiny")
	device := dist.DeviceFlag()
	flag.Parse()
	train.Exit(o.run(dist.Config{Ranks: o.ranks, Device: *device, Log: os.Stdout}))
}

func (o options) run(cfg dist.Config) error {
	if min(o.ranks, o.fsdp, o.tp, o.epochs, o.batch) < 1 || flag.NArg() > 0 {
		return train.Usagef("-ranks, -fsdp, -tp, -epochs and -batch must be at least 1, and there are no arguments: %q", flag.Args())
	}
	return dist.Run(context.Background(), cfg, func(ctx context.Context, r *dist.Rank) error {
		questions, answers, err1 := readPairs(o.pairs)
		tok, err2 := tokenizer.Open(o.load)
		m, err3 := bert.Open(o.load)
		if err := errors.Join(err1, err2, err3); err != nil {
			return err
		}
		pairs, err := m.Config.NewTexts(tok, questions, answers)
		if err != nil {
			return err
		}
		params, group, err := o.divide(r, m) // the ranks of the group have other pairs
		if err != nil {
			return err
		}
		if _, err := ckpt.Load(ctx, r.World, o.load, &ckpt.State{Params: params}, m.LoadConfig()); err != nil {
			return err
		}

		opt, tape := optim.NewAdamW(params, optim.AdamWConfig{LR: o.lr}), tensor.NewTape(r.Device)
		batches := data.NewLoader(pairs, data.Config{Batch: o.batch, Shuffle: true, Sharder: group, Device: r.Device})
		gather := &autograd.AllGather{Group: group}
		for epoch := range o.epochs {
			for _, b := range batches.Epoch(ctx, epoch) {
				tape.Backward(nn.InfoNCE(m.Embed(pairs.Input(tape, b, 0)), m.Embed(pairs.Input(tape, b, 1)), 20, gather))
				if err := opt.Step(); err != nil {
					return err
				}
				tape.Reset()
			}
			if err := batches.Err(); err != nil {
				return err
			}
		}

		if o.save != "" {
			files, err := m.Files()
			if err != nil {
				return err
			}
			saver := ckpt.NewSaver(r.World, o.save, ckpt.Config{})
			state := ckpt.State{Step: o.epochs * batches.Steps(), Params: params, Files: files}
			if err := errors.Join(saver.Save(ctx, state), saver.Close()); err != nil {
				return err
			}
		}
		vectors, err := m.Encode(r.Device, tok, append([]string{o.query}, answers...))
		if err != nil {
			return err
		}
		best, cosine := nearest(vectors[0], vectors[1:])
		r.Logf("%s: %s (%.2f)", o.query, answers[best], cosine)
		return nil
	})
}

// nearest returns the place of the vector with the largest cosine: vectors have the length 1.
func nearest(x []float32, all [][]float32) (best int, most float64) {
	for i, y := range all {
		cosine := 0.0
		for j := range x {
			cosine += float64(x[j] * y[j])
		}
		if i == 0 || cosine > most {
			best, most = i, cosine
		}
	}
	return best, most
}
