package local_test

import (
	"testing"

	"github.com/ringo-ml/ringo/dist/disttest"
)

// Ranks whose devices have memory of their own: what they exchange goes through the host's.
func TestConformanceOfDevices(t *testing.T) {
	disttest.ShortOnly(t)
	disttest.Run(t, disttest.OnDevices(start), "Movement", "VForms", "InPlace", "Forms", "Groups", "InFlight", "Backpressure", "PointToPoint", "Batch", "Bytes",
		"RandomPrograms", "TwoGoroutines", "Errors", "Edges", "Lifetimes")
}
