package dist_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

// readsSlowly is what a rank does instead of the operation that others wait for.
func readsSlowly() { time.Sleep(20 * time.Second) } // virtual

// A rank does not arrive, or a message of it does not: the log has its stack, and no other one.
func TestStackOfALateRank(t *testing.T) {
	for name, wait := range map[string]func(g *dist.Group, x tensor.Tensor) dist.Work{
		"collective": func(g *dist.Group, x tensor.Tensor) dist.Work { return g.AllReduce(x, dist.Sum) },
		"message":    func(g *dist.Group, x tensor.Tensor) dist.Work { return g.Recv(x, 2, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log reliability.Log
				cfg := dist.Config{Ranks: 4, Threads: 1, Log: &log, Timeout: 10 * time.Second}
				err := dist.Run(t.Context(), cfg, func(_ context.Context, r *dist.Rank) error {
					if r.World.Rank() == 2 {
						readsSlowly()
						return nil
					}
					return wait(r.World, tensor.New(r.Device, tensor.Float32, 1)).Wait()
				})
				assert.ErrorContains(t, err, "rank 2 did not arrive")
				assert.Equal(t, 1, strings.Count(log.String(), "for which others waited, was here:"), log.String())
				assert.Regexp(t, `(?s)rank 2, for which others waited, was here:\ngoroutine \d+ \[.*dist_test\.readsSlowly\(`, log.String())
			})
		})
	}
}
