// Command finetune trains a model in Hugging Face's form on a text, and saves it in this form. With -new it writes a small model to train.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/data/tokenizer"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

var (
	dir   = flag.String("model", "model", "the folder")
	fresh = flag.Bool("new", false, "write a model there")
)

func train(ctx context.Context, r *dist.Rank) error {
	model, err := gpt.Open(*dir)
	if err != nil {
		return err
	}
	tok, err := tokenizer.Open(*dir)
	if err != nil {
		return err
	}
	lines, err := data.Lines("text.txt")
	if err != nil {
		return err
	}
	set, err := data.NewText(tok.Encode(strings.Join(lines, "\n")), 8, 8)
	if err != nil {
		return err
	}
	params, err := ddp.Attach(r.World, model, ddp.Config{})
	if err != nil {
		return err
	}
	if _, err := ckpt.Load(ctx, r.World, *dir, &ckpt.State{Params: params}, model.LoadConfig()); err != nil {
		return err
	}
	opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 1e-3})
	batches := data.NewLoader(set, data.Config{Batch: 8, Sharder: r.World, Device: r.Device})
	tape := tensor.NewTape(r.Device)
	sum, steps := make([]float64, 1), 0
	for _, b := range batches.Epoch(ctx, 0) {
		loss := nn.CrossEntropy(model.Forward(tape.Input(b.X)), b.Y)
		sum[0] += loss.Item()
		tape.Backward(loss)
		if err := opt.Step(); err != nil {
			return err
		}
		tape.Reset()
		steps++
	}
	if err := batches.Err(); err != nil {
		return err
	}
	if err := r.World.SumFloats(sum); err != nil {
		return err
	}
	r.Logf("%d steps of %d tokens  loss %.6f", steps, tok.Vocab(), sum[0])
	files, err := model.Files()
	if err != nil {
		return err
	}
	saver := ckpt.NewSaver(r.World, "out", ckpt.Config{})
	if err := saver.Save(ctx, ckpt.State{Step: steps, Params: params, Files: files}); err != nil {
		return err
	}
	return saver.Close()
}

func write(ctx context.Context, r *dist.Rank) error {
	tok, err := tokenizer.Open(*dir)
	if err != nil {
		return err
	}
	model, err := gpt.New(gpt.Config{Kind: gpt.Llama, Vocab: tok.Vocab(), Positions: 8, Width: 8, Layers: 1, Heads: 2})
	if err != nil {
		return err
	}
	files, err := model.Files()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(*dir, "config.json"), files["config.json"], 0o666); err != nil {
		return err
	}
	st := ckpt.State{Params: nn.Init(model, r.Device, tensor.BFloat16, 1)}
	return ckpt.SaveFile(ctx, filepath.Join(*dir, "model.safetensors"), st)
}

func main() {
	flag.Parse()
	ranks, do := 2, train
	if *fresh {
		ranks, do = 1, write
	}
	if err := dist.Run(context.Background(), dist.Config{Ranks: ranks}, do); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
