// Package stuck is a program whose last ranks, as many as the argument says, hang in their own code when all have met once. The others
// call one more operation.
package stuck

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// Main is the program.
func Main() {
	n, _ := strconv.Atoi(os.Args[1])
	err := dist.Run(context.Background(), dist.Config{}, func(_ context.Context, r *dist.Rank) error {
		if err := r.World.Barrier().Wait(); err != nil {
			return err
		}
		if r.World.Rank() >= r.World.Size()-n {
			hangs()
		}
		return r.World.AllReduce(tensor.New(r.Device, tensor.Float32, 1), dist.Sum).Wait()
	})
	if err != nil {
		fmt.Printf("error: %v\n", err)
		os.Exit(1)
	}
}

func hangs() { <-make(chan int) }
