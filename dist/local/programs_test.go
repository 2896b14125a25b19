package local_test

import (
	"context"
	"io"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/dist/local"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// onGoroutines runs a program on goroutine ranks. Now and then a rank yields its core just before it accesses a peer's memory.
func onGoroutines(p *disttest.Program) *disttest.Outcome {
	hub := local.NewHub(p.Ranks)
	often := rand.New(rand.NewPCG(p.Seed, 79)).Uint64N(8)
	var touches atomic.Uint64
	hub.SetFault(func(int, int, int) bool {
		if k := touches.Add(1); often > 0 && backend.Hash64(p.Seed, k)%8 < often {
			for range k % 5 {
				runtime.Gosched()
			}
		}
		return false
	})
	return onEngines(p, enginesOf(hub, p.Ranks))
}

// onEngines runs a program.
func onEngines(p *disttest.Program, engines []backend.Engine) *disttest.Outcome {
	o := &disttest.Outcome{Errs: make([]error, p.Ranks), Took: make([]time.Duration, p.Ranks)}
	began := time.Now()
	_ = dist.RunEngines(context.Background(), dist.Config{Threads: 1, Log: io.Discard, Timeout: p.Timeout}, engines,
		func(_ context.Context, r *dist.Rank) error {
			rank := r.World.Rank()
			o.Errs[rank] = p.Run(r)
			o.Took[rank] = time.Since(began)
			return o.Errs[rank]
		})
	return o
}

func TestRandomPrograms(t *testing.T) { disttest.Programs(t, onGoroutines) }

func TestLongRandomPrograms(t *testing.T) { reliability.AsLong(t, TestRandomPrograms) }
