package dist_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/tensor"
)

// BenchmarkAllReduce times all-reduces without a pause between them.
func BenchmarkAllReduce(b *testing.B) {
	for _, bytes := range []int{4, 64 << 10, 1 << 20, 64 << 20} {
		b.Run(fmt.Sprint(bytes), func(b *testing.B) {
			b.SetBytes(int64(bytes))
			var took time.Duration
			run := func(_ context.Context, r *dist.Rank) error {
				x := tensor.New(r.Device, tensor.Float32, bytes/4)
				steps := func(n int) (err error) {
					for range n {
						err = r.World.AllReduce(x, dist.Sum).Wait()
					}
					return err
				}
				disttest.OK(steps(3))
				start := time.Now()
				err := steps(b.N)
				if r.World.Rank() == 0 {
					took = time.Since(start)
				}
				return err
			}
			if err := dist.Run(context.Background(), dist.Config{Ranks: 2, Log: io.Discard}, run); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(took.Nanoseconds())/float64(b.N), "ns/op")
		})
	}
}

// BenchmarkFour times four all-reduces: with a wait after each, as a chain that depends on each other, and independent ones. A chain
// should cost no more than four waits.
func BenchmarkFour(b *testing.B) {
	for _, bytes := range []int{4, 64 << 10, 1 << 20} {
		for name, four := range map[string]func(g *dist.Group, x [4]tensor.Tensor) error{
			"waits": func(g *dist.Group, x [4]tensor.Tensor) (err error) {
				for range 4 {
					err = errors.Join(err, g.AllReduce(x[0], dist.Avg).Wait())
				}
				return err
			},
			"chain": func(g *dist.Group, x [4]tensor.Tensor) error {
				avg := func() dist.Work { return g.AllReduce(x[0], dist.Avg) }
				return last(avg(), avg(), avg(), avg()).Wait()
			},
			"independent": func(g *dist.Group, x [4]tensor.Tensor) error {
				avg := func(i int) dist.Work { return g.AllReduce(x[i], dist.Avg) }
				return last(avg(0), avg(1), avg(2), avg(3)).Wait()
			},
		} {
			b.Run(fmt.Sprintf("%d/%s", bytes, name), func(b *testing.B) {
				if err := dist.Run(context.Background(), dist.Config{Ranks: 2, Log: io.Discard}, func(_ context.Context, r *dist.Rank) error {
					var x [4]tensor.Tensor
					for i := range x {
						x[i] = tensor.New(r.Device, tensor.Float32, bytes/4)
					}
					for range b.N {
						disttest.OK(four(r.World, x))
					}
					return nil
				}); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}
