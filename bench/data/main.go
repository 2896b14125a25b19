// Command data measures what becomes of files: pictures, a table, and steps of sentence embeddings. peer.py makes the files, and does the
// same with torchvision, pandas and sentence-transformers. For each number of seconds on its standard input it works for about that time,
// and prints a line of JSON. The script beside it runs the two in turn.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/data/images"
	"github.com/ringo-ml/ringo/data/tokenizer"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/models/bert"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: data WORK FOLDER, where WORK is jpeg, webp, table, embed or embed64")
	}
	cfg := dist.Config{Ranks: 1, Log: os.Stderr}
	err := dist.Run(context.Background(), cfg, func(ctx context.Context, r *dist.Rank) error { return run(ctx, r, os.Args[1], os.Args[2]) })
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, r *dist.Rank, work, dir string) error {
	do, err := workOf(ctx, r, work, dir)
	if err != nil {
		return err
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		seconds, err := strconv.ParseFloat(strings.TrimSpace(lines.Text()), 64)
		if err != nil {
			return err
		}
		done, start := 0, time.Now()
		for done == 0 || time.Since(start).Seconds() < seconds {
			n, err := do()
			if err != nil {
				return err
			}
			done += n
		}
		line := map[string]any{"per_s": float64(done) / time.Since(start).Seconds(), "version": runtime.Version()}
		if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
			return err
		}
	}
	return nil
}

// workOf returns what does the work once, and says of how many pictures, tables or steps.
func workOf(ctx context.Context, r *dist.Rank, work, dir string) (func() (int, error), error) {
	switch work {
	case "jpeg", "webp":
		return pictures(ctx, filepath.Join(dir, work))
	case "table":
		return func() (int, error) {
			_, err := data.CSV(filepath.Join(dir, "table.csv"), data.CSVConfig{Header: true})
			return 1, err
		}, nil
	case "embed", "embed64":
		return embeddings(ctx, r, dir, work)
	}
	return nil, fmt.Errorf("there is no work %q", work)
}

// pictures reads a folder with a Loader, an epoch at a time.
func pictures(ctx context.Context, dir string) (func() (int, error), error) {
	set, err := images.Open(dir, images.Config{Height: 224, Width: 224, Crop: images.RandomResizedCrop{}, Transforms: []images.Transform{
		images.RandomHorizontalFlip{}, images.Normalize{Mean: [3]float32{0.485, 0.456, 0.406}, Std: [3]float32{0.229, 0.224, 0.225}}}})
	if err != nil {
		return nil, err
	}
	loader, epoch := data.NewLoader(set, data.Config{Batch: 32, Shuffle: true}), 0
	return func() (n int, err error) {
		for _, b := range loader.Epoch(ctx, epoch) {
			n += b.Rows
		}
		epoch++
		return n, loader.Err()
	}, nil
}

// embeddings trains on the pairs of texts in a file.
func embeddings(ctx context.Context, r *dist.Rank, dir, work string) (func() (int, error), error) {
	text, err1 := os.ReadFile(filepath.Join(dir, work+".json"))
	var pairs [2][]string
	err2 := json.Unmarshal(text, &pairs)
	tok, err3 := tokenizer.Open(filepath.Join(dir, "embed"))
	m, err4 := bert.Open(filepath.Join(dir, "embed"))
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	set, err := m.Config.NewTexts(tok, pairs[0], pairs[1])
	if err != nil {
		return nil, err
	}
	params := nn.Init(m, r.Device, tensor.Float32, 1)
	if _, err := ckpt.Load(ctx, r.World, filepath.Join(dir, "embed"), &ckpt.State{Params: params}, m.LoadConfig()); err != nil {
		return nil, err
	}
	opt, tape := optim.NewAdamW(params, optim.AdamWConfig{LR: 2e-5, WeightDecay: 0.01}), tensor.NewTape(r.Device)
	loader, epoch := data.NewLoader(set, data.Config{Batch: set.Len(), Device: r.Device}), 0
	return func() (n int, err error) {
		for _, b := range loader.Epoch(ctx, epoch) {
			tape.Backward(nn.InfoNCE(m.Embed(set.Input(tape, b, 0)), m.Embed(set.Input(tape, b, 1)), 20, nil))
			if err := opt.Step(); err != nil {
				return n, err
			}
			tape.Reset()
			n++
		}
		epoch++
		return n, loader.Err()
	}, nil
}
