// Package allreduce is a program that sums over the ranks: ten times, or, with the argument "forever", until an operation fails.
package allreduce

import (
	"context"
	"fmt"
	"os"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// Main is the program.
func Main() {
	forever := len(os.Args) > 1 && os.Args[1] == "forever"
	err := dist.Run(context.Background(), dist.Config{}, func(_ context.Context, r *dist.Rank) error {
		rank, size := r.World.Rank(), r.World.Size()
		for step := 0; step < 10 || forever; step++ {
			x := tensor.FromSlice([]float32{float32(rank), float32(step)}, 2)
			if err := r.World.AllReduce(x, dist.Sum).Wait(); err != nil {
				return err
			}
			got := tensor.Data[float32](x)
			if want := [2]float32{float32(size * (size - 1) / 2), float32(step) * float32(size)}; [2]float32(got) != want {
				return fmt.Errorf("step %d: got %v, want %v", step, got, want)
			}
			if step == 9 {
				fmt.Printf("rank %d of %d, pid %d: sums are right\n", rank, size, os.Getpid())
			}
		}
		return nil
	})
	if err != nil {
		fmt.Printf("error: %v\n", err)
		os.Exit(1)
	}
}
