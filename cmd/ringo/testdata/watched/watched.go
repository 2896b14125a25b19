// Package watched is a program whose training is looked at: step by step all ranks sum a tensor, rank 1 is slower than the others, and the
// loss is one over the step. In generation 1, rank 1 fails before step CRASH. Before each step HALT all ranks wait for its file GO.
//
//	watched STEPS CRASH HALT GO ...
package watched

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
	"github.com/ringo-ml/ringo/train"
)

// Main is the program.
func Main() {
	var o train.Options
	train.Exit(o.Run(dist.Config{}, func(ctx context.Context, r *dist.Rank) error { return run(ctx, &o, r) }))
}

func run(ctx context.Context, o *train.Options, r *dist.Rank) error {
	steps, _ := strconv.Atoi(os.Args[1])
	crash, _ := strconv.Atoi(os.Args[2])
	halts := map[string]string{}
	for at := range slices.Chunk(os.Args[3:], 2) {
		halts[at[0]] = at[1]
	}
	fmt.Printf("<i>rank %d of generation %d</i>\n", r.World.Rank(), r.Generation())
	loop, err := train.Start(ctx, r, o, ckpt.State{})
	if err != nil {
		return err
	}
	x := tensor.NewFor(memory.Gradients, r.Device, tensor.Float32, 1000)
	for step := range loop.Steps(steps) {
		if step == crash && r.Generation() == 1 && r.World.Rank() == 1 {
			return errors.New("crash before step " + os.Args[2])
		}
		if gate := halts[strconv.Itoa(step)]; gate != "" {
			await(gate)
		}
		if r.World.Rank() == 1 {
			time.Sleep(3 * time.Millisecond) //sleep: a slow rank
		}
		if err := r.World.AllReduce(x, dist.Sum).Wait(); err != nil {
			return err
		}
		loop.Sum("loss", tensor.FromSlice([]float64{1 / float64(step+1) / float64(r.World.Size())}, 1))
	}
	return loop.Close()
}

// await returns when there is a file.
func await(name string) {
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		if _, err := os.Stat(name); err == nil {
			return
		}
		<-look.C
	}
}
