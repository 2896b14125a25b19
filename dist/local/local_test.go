package local_test

import (
	"context"
	"testing"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
)

func start(_ *testing.T, n int, cfg dist.Config, fn func(r *dist.Rank) error) error {
	cfg.Ranks = n
	return dist.Run(context.Background(), cfg, func(_ context.Context, r *dist.Rank) error { return fn(r) })
}

func TestConformance(t *testing.T) { disttest.Run(t, start) }
