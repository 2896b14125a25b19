package storage

import (
	"context"
	"runtime"

	"golang.org/x/sync/errgroup"
)

// Parallel calls fn for 0 to n-1 on a few goroutines, and returns the first error. After an error it starts no more
// calls.
func Parallel(n int, fn func(i int) error) error {
	g, failed := errgroup.WithContext(context.Background())
	g.SetLimit(min(4, runtime.GOMAXPROCS(0)))
	for i := range n {
		g.Go(func() error {
			if failed.Err() != nil {
				return nil
			}
			return fn(i)
		})
	}
	return g.Wait()
}
