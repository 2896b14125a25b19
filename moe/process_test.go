//go:build unix

package moe_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/moe"
)

const childEnv = "MOE_TEST_CHILD"

// TestMain runs this binary as one rank of a job when the test below started it.
func TestMain(m *testing.M) {
	text := os.Getenv(childEnv)
	if text == "" {
		os.Exit(m.Run())
	}
	var p processes
	err := json.Unmarshal([]byte(text), &p)
	if err == nil {
		var res result
		if res, err = p.training().run(); err == nil {
			err = json.NewEncoder(os.Stdout).Encode([][]float64{res.losses, res.norms, res.last})
		}
	}
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

// processes is what a child is told.
type processes struct {
	Router   string
	Capacity float64
	Ranks    [3]int // dp, ep, tp
	FSDP     bool
}

func (p processes) training() training {
	c := training{Config: moe.Config{Features: 5, Hidden: 6, Experts: 8, Router: routers[p.Router], Shared: 6, Balance: 0.1, Z: 0.1, Capacity: p.Capacity},
		dp: p.Ranks[0], ep: p.Ranks[1], tp: p.Ranks[2], fsdp: p.FSDP}
	if c.Router.Bias {
		c.rate = 0.01
	}
	return c
}

// Ranks are goroutines, processes with shared memory, and processes with sockets, and have the same bits, each time.
func TestProcesses(t *testing.T) {
	for _, p := range []processes{{"deepseek", 0, [3]int{1, 2, 1}, false}, {"mixtral", 0.9, [3]int{1, 2, 1}, true}, {"qwen", 0, [3]int{1, 2, 2}, true}} {
		want, err := p.training().run()
		require.NoError(t, err)
		again, err := p.training().run()
		require.NoError(t, err)
		require.Equal(t, want, again)
		text, err := json.Marshal(p)
		require.NoError(t, err)
		for _, shm := range []string{"1", "0"} {
			for rank, out := range disttest.Processes(t, p.Ranks[0]*p.Ranks[1]*p.Ranks[2], childEnv+"="+string(text), "RINGO_SHM="+shm, "RINGO_TIMEOUT=20s") {
				var got [3][]float64
				require.NoError(t, json.Unmarshal(out, &got), "%s", out)
				if rank == 0 {
					require.Equal(t, [3][]float64{want.losses, want.norms, want.last}, got, "%+v RINGO_SHM=%s", p, shm)
				}
			}
		}
	}
}
