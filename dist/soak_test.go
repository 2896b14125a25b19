//go:build unix

package dist_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// soakLength is a third of RINGO_SOAK, for each kind of rank. If it is not set, it is short, and only the long form has processes.
func soakLength(t testing.TB) time.Duration {
	s := os.Getenv("RINGO_SOAK")
	if s == "" {
		return 300 * time.Millisecond
	}
	d, err := time.ParseDuration(s)
	require.NoError(t, err, "RINGO_SOAK")
	return d / 3
}

// Many rounds of all operations, on goroutines: nothing leaks, nothing gets slower.
func TestSoakGoroutines(t *testing.T) {
	length := soakLength(t)
	require.NoError(t, dist.Run(t.Context(), dist.Config{Ranks: 4, Threads: 1}, func(_ context.Context, r *dist.Rank) error {
		return disttest.Soak(r, length)
	}))
}

// The same on processes, over connections and, with RINGO_SOAK, over shared memory.
func TestSoakProcesses(t *testing.T) {
	if os.Getenv("RINGO_SOAK") == "" && !reliability.Long(t) {
		t.Skip("RINGO_SOAK or RINGO_LONG=1 runs it")
	}
	for engine, env := range engines {
		if engine == "shm" && os.Getenv("RINGO_SOAK") == "" {
			continue
		}
		t.Run(engine, func(t *testing.T) {
			name, value, _ := strings.Cut(env, "=")
			t.Setenv(name, value)
			for rank, text := range processes(t, 3, "soak:"+soakLength(t).String()) {
				assert.NotContains(t, text, "error:", "rank %d", rank)
				if rank == 0 {
					assert.Contains(t, text, "soak: ")
					t.Log(text)
				}
			}
		})
	}
}

func TestLongSoakProcesses(t *testing.T) { reliability.AsLong(t, TestSoakProcesses) }

func soakChild(spec string) error {
	length, err := time.ParseDuration(spec)
	if err != nil {
		return err
	}
	return dist.Run(context.Background(), dist.Config{Threads: 1}, func(_ context.Context, r *dist.Rank) error {
		return disttest.Soak(r, length)
	})
}
