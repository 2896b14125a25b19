package main

import (
	"testing"

	"github.com/ringo-ml/ringo/internal/cuda/emu"
)

func Example() {
	main()
	// Output: the sum over 2 ranks is float32[2] [2 1]
}

// Ranks on GPUs can reduce host memory, too. A failure ends the process.
func TestCUDA(t *testing.T) {
	emu.Start(t, emu.Config{})
	t.Setenv("RINGO_DEVICE", "cuda")
	main()
}
