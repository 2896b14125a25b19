//go:build race

package tensor_test

import (
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	. "github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// TestPlantedRace runs a child process that writes to step memory from two goroutines. The race detector must see it, which is not possible
// in memory from the operating system.
func TestPlantedRace(t *testing.T) {
	dev := cpu.New(1)
	defer dev.Close()
	if os.Getenv("RINGO_TEST_PLANT_RACE") != "" {
		tape := NewTape(dev)
		x := Data[float32](tape.New(Float32, 1<<20))
		var wait sync.WaitGroup
		for range 2 {
			wait.Go(func() { x[77]++ })
		}
		wait.Wait()
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestPlantedRace$")
	cmd.Env = append(os.Environ(), "RINGO_TEST_PLANT_RACE=1")
	out, err := cmd.CombinedOutput()
	require.Error(t, err, "%s", out)
	assert.Contains(t, string(out), "WARNING: DATA RACE")
	assert.Contains(t, string(out), "TestPlantedRace")
}
