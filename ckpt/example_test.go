package ckpt_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/ckpt/inspect"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
)

// Two ranks save; three ranks load.
func Example() {
	dir, err := os.MkdirTemp("", "ckpt")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	err = dist.Run(ctx, dist.Config{Ranks: 2}, func(ctx context.Context, r *dist.Rank) error {
		params, err := ddp.Attach(r.World, nn.NewLinear(4, 3), ddp.Config{Seed: 1})
		if err != nil {
			return err
		}
		saver := ckpt.NewSaver(r.World, dir, ckpt.Config{Keep: 3})
		st := ckpt.State{Step: 100, Params: params, Optimizer: optim.NewAdamW(params, optim.AdamWConfig{})}
		if err := saver.Save(ctx, st); err != nil {
			return err
		}
		return saver.Close()
	})
	if err != nil {
		log.Fatal(err)
	}
	path, err := ckpt.Latest(dir)
	if err != nil {
		log.Fatal(err)
	}
	err = dist.Run(ctx, dist.Config{Ranks: 3}, func(ctx context.Context, r *dist.Rank) error {
		params, err := ddp.Attach(r.World, nn.NewLinear(4, 3), ddp.Config{Seed: 2})
		if err != nil {
			return err
		}
		st := ckpt.State{Params: params, Optimizer: optim.NewAdamW(params, optim.AdamWConfig{})}
		report, err := ckpt.Load(ctx, r.World, path, &st, ckpt.LoadConfig{Strategy: ckpt.Broadcast})
		if err != nil {
			return err
		}
		r.Logf("step %d, %d tensors, rank 0 read %d bytes", st.Step, report.Tensors, report.BytesRead)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	v, err := inspect.Verify(ctx, path, inspect.VerifyConfig{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("sound:", v.OK)
	// Output:
	// step 100, 6 tensors, rank 0 read 180 bytes
	// sound: true
}
