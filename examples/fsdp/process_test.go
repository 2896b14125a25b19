//go:build linux && !race

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor/memory"
)

const stageEnv = "EXAMPLE_TEST_STAGE"

// TestMain runs this binary as one rank of a job if the test below started it.
func TestMain(m *testing.M) {
	var stage, layers, length int
	if _, err := fmt.Sscan(os.Getenv(stageEnv), &stage, &layers, &length); err != nil {
		os.Exit(m.Run())
	}
	if err := measureResident(large(layers, length), stage); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

// large is a model that is much larger than the Go runtime and the engine.
func large(layers, length int) options {
	return options{ranks: 2, steps: 2, batch: 4, width: 512, layers: layers, length: length}
}

// resident is a rank's report: the bytes by which its process grew, and those that it counted.
type resident struct{ Grew, Counted int }

func measureResident(o options, stage int) error {
	return dist.Run(context.Background(), dist.Config{Log: io.Discard}, func(ctx context.Context, r *dist.Rank) error {
		debug.FreeOSMemory()
		before, err := residentBytes("VmRSS")
		if err != nil {
			return err
		}
		if _, err := fit(ctx, o, stage, r); err != nil {
			return err
		}
		after, err := residentBytes("VmHWM")
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(resident{after - before, r.Device.Memory().Total().Peak})
	})
}

// residentBytes returns the memory of this process: VmRSS is now, VmHWM the peak.
func residentBytes(name string) (int, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), name+":")
	kib := 0
	_, err = fmt.Sscan(rest, &kib)
	return kib << 10, err
}

// The process of a rank grows by little more than the plan (without the race detector's own memory). TestPlan compares what is counted.
func TestLongResidentMemory(t *testing.T) {
	reliability.SkipUnlessLong(t)
	o := large(6, 64)
	for stage := range 4 {
		p, err := o.plan(stage, o.ranks)
		require.NoError(t, err)
		which := fmt.Sprintf("%s=%d %d %d", stageEnv, stage, o.layers, o.length)
		for rank, out := range disttest.Processes(t, o.ranks, which, "RINGO_SHM=0", "RINGO_TIMEOUT=60s") {
			var got resident
			require.NoError(t, json.Unmarshal(out, &got), "%s", out)
			t.Logf("stage %d, rank %d: planned %s, counted %s, grew by %s", stage, rank, memory.Format(p.Total),
				memory.Format(got.Counted), memory.Format(got.Grew))
			require.InEpsilon(t, p.Total, got.Counted, 0.05)
			extra := 16 << 20 // the runtime, the engine, the workspace of kernels
			if stage == 0 {   // the first buckets are garbage after the first step
				extra += p.Of(memory.Gradients)
			}
			require.Greater(t, got.Grew, p.Total*95/100)
			require.Less(t, got.Grew, p.Total*105/100+extra)
		}
	}
}
