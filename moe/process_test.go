//go:build unix

package moe_test

import (
	"testing"

	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// process is what a process is told.
type process struct {
	Ranks    int
	Router   string
	Capacity float64
	Mesh     string
	FSDP     bool
}

func (p process) training() disttest.Training {
	j := named(p.Router, p.Capacity)
	j.mesh, j.fsdp = p.Mesh, p.FSDP
	return j.training(new(seen))
}

func TestMain(m *testing.M) { disttest.Main(m, process.training) }

// Ranks are goroutines, processes with shared memory, and processes with sockets, and have the same bits, each time.
func TestProcesses(t *testing.T) {
	for i, p := range []process{{2, "deepseek", 0, "ep=2", false}, {2, "mixtral", 0.9, "ep=2", true}, {4, "qwen", 0, "ep=2,tp=2", true}} {
		if !reliability.Long(t) && i == 2 {
			continue
		}
		want := p.training().Run(t)
		disttest.RequireEqual(t, want, p.training().Run(t), 0)
		for k, shm := range []string{"1", "0"} {
			if !reliability.Long(t) && i != k {
				continue
			}
			disttest.RequireEqual(t, want, disttest.InProcesses(t, p.Ranks, p, "RINGO_SHM="+shm), 0)
		}
	}
}

func TestLongProcesses(t *testing.T) { reliability.AsLong(t, TestProcesses) }
