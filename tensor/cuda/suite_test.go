package cuda_test

import (
	"testing"

	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/tensortest"
)

// TestConformance runs every operation through tapes, on streams that run only as far as somebody waits for them.
func TestConformance(t *testing.T) {
	emu.Start(t, emu.Config{Lazy: true, Reverse: true})
	tensortest.Run(t, func(t *testing.T) tensor.Device { return open(t, 0) }, tensortest.Options{})
}
