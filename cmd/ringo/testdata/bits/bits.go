// Package bits is a program that reduces random numbers of every floating-point type and prints a hash of what each rank got. Its argument
// is the number of ranks.
package bits

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// Main is the program.
func Main() {
	n, err := strconv.Atoi(os.Args[1])
	if err == nil {
		err = dist.Run(context.Background(), dist.Config{Ranks: n, Exact: true}, rank)
	}
	if err != nil {
		fmt.Printf("error: %v\n", err)
		os.Exit(1)
	}
}

func rank(_ context.Context, r *dist.Rank) error {
	g, rng := r.World, rand.New(rand.NewPCG(1, uint64(r.World.Rank())))
	hash := sha256.New()
	for _, count := range []int{9, 20_000} {
		for _, dt := range []tensor.DType{tensor.Float16, tensor.BFloat16, tensor.Float32, tensor.Float64} {
			for _, op := range []dist.Reduction{dist.Sum, dist.Avg, dist.PreMulSum(1 / (3 + float64(g.Rank())))} {
				x, y := tensor.New(r.Device, dt, count*g.Size()), tensor.New(r.Device, dt, count)
				for _, do := range []func() dist.Work{
					func() dist.Work { return g.AllReduce(x, op) },
					func() dist.Work { return g.Reduce(x, op, g.Size()-1) },
					func() dist.Work { return g.ReduceScatter(y, x, op) },
				} {
					fill(x, rng)
					if err := do().Wait(); err != nil {
						return err
					}
					hash.Write(x.Bytes())
					hash.Write(y.Bytes())
				}
			}
		}
	}
	fmt.Printf("rank %d: bits %x\n", g.Rank(), hash.Sum(nil))
	return nil
}

// fill sets x to numbers that need rounding when they are added.
func fill(x tensor.Tensor, rng *rand.Rand) {
	switch x.DType() {
	case tensor.Float32:
		for i, d := 0, tensor.Data[float32](x); i < len(d); i++ {
			d[i] = float32(rng.NormFloat64())
		}
	case tensor.Float64:
		for i, d := 0, tensor.Data[float64](x); i < len(d); i++ {
			d[i] = rng.NormFloat64()
		}
	case tensor.BFloat16:
		for i, d := 0, tensor.Data[tensor.BF16](x); i < len(d); i++ {
			d[i] = tensor.BF16(0x3e00 + rng.IntN(0x300))
		}
	case tensor.Float16:
		for i, d := 0, tensor.Data[tensor.F16](x); i < len(d); i++ {
			d[i] = tensor.F16(0x3000 + rng.IntN(0x1000))
		}
	}
}
