//go:build unix

package fsdp_test

import (
	"fmt"
	"testing"

	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

func TestMain(m *testing.M) { disttest.Main(m, func(p processJob) training { return p.job().whole() }) }

// processJob is what a process is told.
type processJob struct{ Ranks, Copies, Stage int }

func (p processJob) job() job {
	j := job{training: training{Ranks: p.Ranks}, cfg: fsdp.Config{DType: tensor.Float64, Stage: p.Stage}}
	if p.Copies > 1 {
		j.Ranks, j.Mesh = 0, fmt.Sprintf("dp=%d,fsdp=%d", p.Copies, p.Ranks)
	}
	return j
}

// Processes compute what one rank does, over shared memory and over sockets.
func TestProcesses(t *testing.T) {
	jobs := []processJob{{Ranks: 2, Copies: 1, Stage: 3}}
	if reliability.Long(t) {
		jobs = nil
		for stage := 1; stage <= 3; stage++ {
			for ranks := 1; ranks <= 5; ranks++ {
				jobs = append(jobs, processJob{ranks, 1, stage})
			}
			jobs = append(jobs, processJob{2, 2, stage})
		}
	}
	want := onOne(jobs[0].job()).run(t)
	for _, shm := range []string{"1", "0"} {
		for _, p := range jobs {
			disttest.RequireEqual(t, want, disttest.InProcesses(t, p.Ranks*p.Copies, p, "RINGO_SHM="+shm), 1e-10)
		}
	}
}

func TestLongProcesses(t *testing.T) { reliability.AsLong(t, TestProcesses) }
