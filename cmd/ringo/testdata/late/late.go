// Package late is a program whose rank 1 begins every all-reduce when rank 0 has begun it. Each rank writes its timeline to a file of its own,
// in the folder that is given.
package late

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// Main trains nothing for 20 steps.
func Main() {
	if err := dist.Run(context.Background(), dist.Config{Trace: 1000}, steps); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func steps(_ context.Context, r *dist.Rank) error {
	x, word := tensor.New(r.Device, tensor.Float32, 1000), tensor.New(r.Device, tensor.Float32, 1)
	for step := range 20 {
		r.Trace.Step(step)
		if r.World.Rank() == 1 {
			if err := r.World.Recv(word, 0, 0).Wait(); err != nil {
				return err
			}
		}
		sum := r.World.AllReduce(x, dist.Sum)
		if r.World.Rank() == 0 {
			if err := r.World.Send(word, 1, 0).Wait(); err != nil {
				return err
			}
		}
		if err := sum.Wait(); err != nil {
			return err
		}
		r.Trace.EndStep()
	}
	f, err := os.Create(filepath.Join(os.Args[1], fmt.Sprintf("trace-%d.json", r.World.Rank())))
	if err != nil {
		return err
	}
	return errors.Join(r.WriteOwnTrace(f), f.Close())
}
