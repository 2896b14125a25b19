package tcp_test

import (
	"runtime/debug"
	"testing"

	"github.com/ringo-ml/ringo/dist/disttest"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(100) // here a larger heap costs more than collections: its pages are new
	disttest.RunMost(m, 6)
}
