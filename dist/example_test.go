package dist_test

import (
	"context"
	"fmt"
	"log"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// Four goroutine ranks add up their numbers.
func Example() {
	err := dist.Run(context.Background(), dist.Config{Ranks: 4}, func(ctx context.Context, r *dist.Rank) error {
		x := tensor.FromSlice([]float32{float32(r.World.Rank()), 1}, 2)
		if err := r.World.AllReduce(x, dist.Sum).Wait(); err != nil {
			return err
		}
		r.Logf("hello from %d ranks: %v", r.World.Size(), tensor.Data[float32](x))
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: hello from 4 ranks: [6 4]
}

// Several groups: a 2 × 2 mesh sums rows and columns.
func ExampleMesh() {
	err := dist.Run(context.Background(), dist.Config{Ranks: 4}, func(ctx context.Context, r *dist.Rank) error {
		mesh, err := r.Mesh("dp=2,tp=2")
		if err != nil {
			return err
		}
		rows, cols := []float64{float64(r.World.Rank())}, []float64{float64(r.World.Rank())}
		if err := mesh.Group("tp").SumFloats(rows); err != nil {
			return err
		}
		if err := mesh.Group("dp").SumFloats(cols); err != nil {
			return err
		}
		r.Logf("row of rank 0: %v, column of rank 0: %v", rows[0], cols[0])
		return nil
	})
	fmt.Println(err)
	// Output:
	// row of rank 0: 1, column of rank 0: 2
	// <nil>
}

// A buffer that is reduced again and again lies in shared memory: between processes of a host, peers read it in place.
func ExampleRank_Alloc() {
	err := dist.Run(context.Background(), dist.Config{Ranks: 2}, func(ctx context.Context, r *dist.Rank) error {
		x := r.Alloc(tensor.Float32, 2, 3)
		defer r.World.Free(x)
		for step := range 3 {
			for i := range tensor.Data[float32](x) {
				tensor.Data[float32](x)[i] = float32(step)
			}
			if err := r.World.AllReduce(x, dist.Sum).Wait(); err != nil {
				return err
			}
		}
		r.Logf("%v", tensor.Data[float32](x))
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: [4 4 4 4 4 4]
}
