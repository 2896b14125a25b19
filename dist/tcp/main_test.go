package tcp_test

import (
	"runtime/debug"
	"testing"

	"github.com/ringo-ml/ringo/internal/reliability"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(100) // here a larger heap costs more than collections: its pages are new
	reliability.RunMost(m, 6)
}
