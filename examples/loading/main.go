// Command loading shows the three ways to load a checkpoint on several ranks: rank 0 reads it and broadcasts (data
// parallelism), each rank reads its shard of every tensor (FSDP, tensor parallelism), and each rank reads the layers that it
// owns (pipeline parallelism). It saves a small model first, loads it each way, and prints what each rank read.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

const width = 64 // of a layer

func main() {
	log.SetFlags(0)
	log.SetPrefix("loading: ")
	ranks := flag.Int("ranks", 3, "goroutine `ranks` (under ringo run, the launcher decides)")
	layers := flag.Int("layers", 8, "layers of the model; they need not divide by the ranks")
	dir := flag.String("dir", "", "`directory` for the checkpoint, which all ranks see (default: a temporary one)")
	device := dist.DeviceFlag()
	flag.Parse()
	if *ranks < 1 || *layers < 1 || flag.NArg() > 0 {
		log.Printf("-ranks and -layers must be at least 1, and there are no arguments: %q", flag.Args())
		os.Exit(2)
	}
	if err := run(dist.Config{Ranks: *ranks, Device: *device, Log: os.Stdout}, *layers, *dir); err != nil {
		log.Fatal(err)
	}
}

func run(cfg dist.Config, layers int, dir string) error {
	return dist.Run(context.Background(), cfg, func(ctx context.Context, r *dist.Rank) error {
		return example(ctx, r, layers, dir)
	})
}

func example(ctx context.Context, r *dist.Rank, layers int, dir string) error {
	if dir == "" {
		made := ""
		if r.World.Rank() == 0 {
			var err error
			if made, err = os.MkdirTemp("", "loading"); err != nil {
				return err
			}
			defer os.RemoveAll(made)
		}
		var err error
		if dir, err = dist.BroadcastObject(r.World, made, 0); err != nil {
			return err
		}
	}
	want := newModel(r, layers, 1)
	saver := ckpt.NewSaver(r.World, dir, ckpt.Config{})
	if err := saver.Save(ctx, ckpt.State{Step: 1, Params: want}); err != nil {
		return err
	}
	path := filepath.Join(dir, "step-00000001")
	for _, way := range []struct {
		name     string
		strategy ckpt.Strategy
		params   nn.Params
	}{
		{"rank 0 reads and broadcasts", ckpt.Broadcast, newModel(r, layers, 2)},
		{"each rank reads its shard", ckpt.Sharded, sharded(newModel(r, layers, 2), r)},
		{"each rank reads its layers", ckpt.Owned, owned(newModel(r, layers, 2), r)},
	} {
		report, err := ckpt.Load(ctx, r.World, path, &ckpt.State{Params: way.params}, ckpt.LoadConfig{Strategy: way.strategy})
		if err != nil {
			return err
		}
		if err := compare(way.params, want); err != nil {
			return err
		}
		read, err := dist.AllGatherObject(r.World, report.BytesRead)
		if err != nil {
			return err
		}
		r.Logf("%-28s bytes read by rank: %v of %d", way.name, read, 4*want.Count())
	}
	return r.World.Barrier().Wait() // rank 0 removes the directory
}

// newModel returns the parameters of a model whose values depend on seed.
func newModel(r *dist.Rank, layers int, seed uint64) nn.Params {
	var model nn.Sequential
	for range layers {
		model = append(model, nn.NewLinear(width, width))
	}
	return nn.Init(model, r.Device, tensor.Float32, seed)
}

// sharded cuts every parameter into flat shards, one for each rank, as FSDP does, and keeps only this rank's shard.
func sharded(params nn.Params, r *dist.Rank) nn.Params {
	rank, size := r.World.Rank(), r.World.Size()
	for _, p := range params {
		p.Shard(layout.Share(p.Len(), rank, size))
		p.Local = tensor.New(r.Device, tensor.Float32, p.Placement().Len())
		p.Value = tensor.Tensor{}
	}
	return params
}

// owned returns the layers of a pipeline stage. If the layers cannot be divided equally, the first stages have one more.
func owned(params nn.Params, r *dist.Rank) nn.Params {
	rank, size := r.World.Rank(), r.World.Size()
	layers := len(params) / 2 // a weight and a bias each
	first, end := layout.Share(layers, rank, size)
	return params[2*first : 2*end]
}

// compare checks that the loaded values are those that were saved.
func compare(got, want nn.Params) error {
	for _, p := range got {
		lo, hi := p.Placement().Range()
		all := tensor.Data[float32](tensor.ToHost(want.ByName(p.Name()).Value))[lo:hi]
		for i, v := range tensor.Data[float32](tensor.ToHost(p.Local)) {
			if v != all[i] {
				return fmt.Errorf("%s: element %d is %v, not %v", p.Name(), i, v, all[i])
			}
		}
	}
	return nil
}
