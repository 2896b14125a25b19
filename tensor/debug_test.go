package tensor

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// TestDebugMode runs tests of the package again. Every kernel is compared with its reference, and freed memory is filled with NaN.
func TestDebugMode(t *testing.T) {
	if debugMode || reliability.Racing {
		t.Skip("in debug mode already, or slow")
	}
	tests := "Values|Views|Pending|Accumulation|LiveTapes|Scope|Rows|Checkpoint|DebugOracle|BorrowedWrite"
	if reliability.Long(t) { // kernels of all gradients: their rules have short tests
		tests += "|Gradient"
	}
	cmd := exec.Command(os.Args[0], "-test.run="+tests, "-test.skip=Threads|^TestLong", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), "RINGO_DEBUG=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func TestLongDebugMode(t *testing.T) { reliability.AsLong(t, TestDebugMode) }
