package wait

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A nap is as short as it is asked for. Otherwise processes that wait for each other in turn never get out of their naps.
func TestNap(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there, naps are those of package time")
	}
	const short = 20 * time.Microsecond
	var took []time.Duration
	for range 50 {
		began := time.Now()
		Nap(short)
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	require.GreaterOrEqual(t, took[0], short)
	require.Less(t, took[2], 700*time.Microsecond, "%v", took) // of time.Sleep almost all take more than a millisecond
}
