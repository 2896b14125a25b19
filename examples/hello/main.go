// Command hello runs two ranks that sum their numbers.
package main

import (
	"context"
	"log"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("hello: ")
	err := dist.Run(context.Background(), dist.Config{Ranks: 2}, func(_ context.Context, r *dist.Rank) error {
		x := tensor.FromSlice([]float32{1, float32(r.World.Rank())}, 2)
		if err := r.World.AllReduce(x, dist.Sum).Wait(); err != nil {
			return err
		}
		r.Logf("the sum over %d ranks is %v", r.World.Size(), x)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}
