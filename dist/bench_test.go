package dist_test

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// BenchmarkAllReduce times all-reduces back to back.
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
				if err := steps(3); err != nil {
					return err
				}
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
