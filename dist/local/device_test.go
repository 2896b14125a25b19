package local_test

import (
	"testing"

	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// Ranks whose devices have their own memory exchange data through host memory.
func TestConformanceOfDevices(t *testing.T) {
	t.Parallel()
	parts := []string{"Movement", "VForms", "InPlace", "Forms", "InFlight", "PointToPoint", "Batch"}
	if reliability.Long(t) {
		parts = append(parts, "Lifetimes", "Groups", "Backpressure", "Bytes", "RandomPrograms", "TwoGoroutines", "Errors", "Edges")
	}
	disttest.RunShort(t, disttest.OnDevices(start), parts...)
}

func TestLongConformanceOfDevices(t *testing.T) { reliability.AsLong(t, TestConformanceOfDevices) }
