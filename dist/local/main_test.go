package local_test

import (
	"testing"

	"github.com/ringo-ml/ringo/internal/reliability"
)

func TestMain(m *testing.M) { reliability.RunMost(m, 8) }
