package tcp_test

import (
	"testing"

	"github.com/ringo-ml/ringo/dist/disttest"
)

func TestMain(m *testing.M) { disttest.RunMost(m, 6) }
