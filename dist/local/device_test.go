package local_test

import (
	"testing"

	"github.com/ringo-ml/ringo/dist/disttest"
)

// Ranks whose devices have their own memory exchange data through host memory.
func TestConformanceOfDevices(t *testing.T) {
	t.Parallel()
	disttest.Run(t, disttest.OnDevices(start), "Movement", "VForms", "InPlace", "Forms", "Groups", "InFlight", "Backpressure", "PointToPoint",
		"Batch", "Bytes", "RandomPrograms", "TwoGoroutines", "Errors", "Edges", "Lifetimes")
}
