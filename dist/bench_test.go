package dist_test

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor"
)

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
			if bytes >= 64<<20 {
				b.ReportMetric(streams(bytes/4, b.N).Seconds()/took.Seconds(), "of-streams")
			}
		})
	}
}

// streams does what two ranks do in an all-reduce of n floats, n times, with no synchronization: each adds its half of
// two buffers block by block and writes the sum to both.
func streams(count, times int) time.Duration {
	bufs := [2][]float32{make([]float32, count), make([]float32, count)}
	for i := range count {
		bufs[0][i], bufs[1][i] = 0, 0 // touch the pages
	}
	var wg sync.WaitGroup
	start := time.Now()
	for r := range 2 {
		wg.Go(func() {
			block := make([]float32, 4096)
			for range times {
				for lo := r * count / 2; lo < (r+1)*count/2; lo += len(block) {
					hi := min(lo+len(block), (r+1)*count/2)
					kernel.AddTo32(block[:hi-lo], bufs[0][lo:hi], bufs[1][lo:hi])
					copy(bufs[0][lo:hi], block)
					copy(bufs[1][lo:hi], block)
				}
			}
		})
	}
	wg.Wait()
	return time.Since(start)
}
