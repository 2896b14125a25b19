package bert_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/data/tokenizer"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/models/bert"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

var (
	questions = []string{"what color is the sky", "color of grass?", "what is the color of snow"}
	answers   = []string{"the sky is blue", "green", "white"}
)

// finetune trains a folder's model with questions and their answers, and saves it under to, for sentence-transformers, too.
func finetune(ctx context.Context, r *dist.Rank, dir, to string) error {
	m, err := bert.Open(dir)
	if err != nil {
		return err
	}
	tok, err := tokenizer.Open(dir)
	if err != nil {
		return err
	}
	params, err := ddp.Attach(r.World, m, ddp.Config{})
	if err != nil {
		return err
	}
	if _, err := ckpt.Load(ctx, r.World, dir, &ckpt.State{Params: params}, m.LoadConfig()); err != nil {
		return err
	}
	pairs, err := m.Config.NewTexts(tok, questions, answers)
	if err != nil {
		return err
	}
	loader := data.NewLoader(pairs, data.Config{Batch: 3, Sharder: r.World, Device: r.Device})
	opt, tape := optim.NewAdamW(params, optim.AdamWConfig{LR: 1e-2}), tensor.NewTape(r.Device)
	gather := &autograd.AllGather{Group: r.World}
	for epoch := range 20 {
		for _, b := range loader.Epoch(ctx, epoch) {
			tape.Backward(nn.InfoNCE(m.Embed(pairs.Input(tape, b, 0)), m.Embed(pairs.Input(tape, b, 1)), 20, gather))
			if err := opt.Step(); err != nil {
				return err
			}
			tape.Reset()
		}
		if err := loader.Err(); err != nil {
			return err
		}
	}
	files, err := m.Files()
	if err != nil {
		return err
	}
	saver := ckpt.NewSaver(r.World, to, ckpt.Config{})
	if err := errors.Join(saver.Save(ctx, ckpt.State{Step: 20, Params: params, Files: files}), saver.Close()); err != nil {
		return err
	}
	vectors, err := m.Encode(r.Device, tok, append(questions[:3:3], answers...))
	for i, question := range questions {
		if r.World.Rank() == 0 && err == nil {
			fmt.Printf("%s: %s\n", question, answers[nearest(vectors[i], vectors[3:])])
		}
	}
	return err
}

// nearest returns the place of the vector with the largest cosine: vectors have the length 1.
func nearest(x []float32, all [][]float32) (best int) {
	most := float32(-2)
	for i, y := range all {
		var cos float32
		for j := range x {
			cos += x[j] * y[j]
		}
		if cos > most {
			best, most = i, cos
		}
	}
	return best
}

// A model is trained on two ranks, saved, and finds the answers to questions.
func Example() {
	to, err := os.MkdirTemp("", "bert")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(to)
	err = dist.Run(context.Background(), dist.Config{Ranks: 2}, func(ctx context.Context, r *dist.Rank) error {
		return finetune(ctx, r, "testdata/mean", to)
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// what color is the sky: the sky is blue
	// color of grass?: green
	// what is the color of snow: white
}
