package cuda_test

import (
	"testing"

	gpu "github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/optim/optimtest"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cuda"
	"github.com/ringo-ml/ringo/tensor/tensortest"
)

// counter is a device with the driver's counts.
type counter struct {
	*cuda.Device
	last gpu.Stats
}

func (c *counter) Counts() tensortest.Counts {
	now, last := c.GPU().Stats(), c.last
	c.last = now
	return tensortest.Counts{Launches: int(now.Launches - last.Launches), Up: int(now.HostToDevice - last.HostToDevice),
		Down: int(now.DeviceToHost - last.DeviceToHost), Syncs: int(now.Syncs - last.Syncs)}
}

// TestConformance runs every operation through tapes, and optimizers, on streams that run only as far as somebody waits for them.
func TestConformance(t *testing.T) {
	emu.Start(t, emu.Config{Lazy: true, Reverse: true})
	newDevice := func(t *testing.T) tensor.Device { return &counter{Device: open(t, 0)} }
	tensortest.Run(t, newDevice, tensortest.Options{})
	optimtest.Run(t, newDevice, tensortest.Options{})
}

func TestLongConformance(t *testing.T) { reliability.AsLong(t, TestConformance) }
