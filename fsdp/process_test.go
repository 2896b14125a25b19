//go:build unix

package fsdp_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

const childEnv = "FSDP_TEST_CHILD"

// TestMain runs this binary as one rank of a job when the test below started it.
func TestMain(m *testing.M) {
	text := os.Getenv(childEnv)
	if text == "" {
		os.Exit(m.Run())
	}
	var j processJob
	err := json.Unmarshal([]byte(text), &j)
	if err == nil {
		var res result
		if res, err = j.job().try(); err == nil {
			err = json.NewEncoder(os.Stdout).Encode([][]float64{res.losses, res.norms, res.params})
		}
	}
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

// processJob is what a child is told.
type processJob struct{ Ranks, Copies, Stage, Steps int }

func (p processJob) job() job {
	return job{ranks: p.Ranks, copies: p.Copies, steps: p.Steps, batch: 24, micro: 2, cfg: fsdp.Config{DType: tensor.Float64, Stage: p.Stage}}
}

// Processes compute what one rank does, over shared memory and over sockets.
func TestProcesses(t *testing.T) {
	jobs := []processJob{{Ranks: 2, Copies: 1, Stage: 3, Steps: 10}}
	if reliability.Long(t) {
		jobs = nil
		for stage := 1; stage <= 3; stage++ {
			for ranks := 1; ranks <= 5; ranks++ {
				jobs = append(jobs, processJob{ranks, 1, stage, 12})
			}
			jobs = append(jobs, processJob{2, 2, stage, 12})
		}
	}
	want := onOne(jobs[0].job()).run(t)
	for _, shm := range []string{"1", "0"} {
		for _, p := range jobs {
			for rank, got := range processes(t, p, "RINGO_SHM="+shm) {
				if rank == 0 {
					requireClose(t, want, got, 1e-10, "%+v, RINGO_SHM=%s", p, shm)
				}
			}
		}
	}
}

func TestLongProcesses(t *testing.T) {
	reliability.SkipUnlessLong(t)
	TestProcesses(t)
}

// processes runs a job with a process per rank and returns what each has at the end: only rank 0 has anything.
func processes(t *testing.T, p processJob, env string) []result {
	text, err := json.Marshal(p)
	require.NoError(t, err)
	n := p.Ranks * p.Copies
	results := make([]result, n)
	for r, out := range disttest.Processes(t, n, childEnv+"="+string(text), env, "RINGO_TIMEOUT=20s") {
		var v [3][]float64
		require.NoError(t, json.Unmarshal(out, &v), "%s", out)
		results[r] = result{losses: v[0], norms: v[1], params: v[2]}
	}
	return results
}
