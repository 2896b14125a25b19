package emu

import (
	"os"
	"testing"

	"github.com/ringo-ml/ringo/internal/cuda"
)

// OnGPU reports whether tests run on the driver that cuda.Load finds, not on the
// emulator: with RINGO_TEST_GPU=1, which scripts/gpu sets.
func OnGPU() bool { return os.Getenv("RINGO_TEST_GPU") == "1" }

// Real reports whether that driver is a GPU's. Tests then use sizes that would take
// hours on an emulator.
func Real() bool { return OnGPU() && !emulated }

// running is the test that Start was called by last.
var running testing.TB

// gpu is Start on a GPU. It skips a test that needs the emulator, or more devices
// than there are. Seed, order and Banks are ignored: with them the emulator finds
// mistakes that a GPU shows seldom or never.
func gpu(t testing.TB, cfg Config) *cuda.Driver {
	t.Helper()
	running = t
	failing := faults || cfg.FailAlloc != 0 || cfg.FailLaunch != 0 || cfg.Memory != 0 || cfg.Timeout != 0
	if failing || cfg.Version != 0 || cfg.Devices < 0 || cfg.Apart {
		onlyEmulated()
	}
	d, err := cuda.Load()
	if err != nil {
		t.Skip(err)
	}
	n, err := d.Count()
	if err != nil {
		t.Fatal(err)
	}
	if want := max(cfg.Devices, 1); n < want {
		t.Skipf("this test needs %d GPUs; there are %d", want, n)
	}
	return d
}

// Only skips a test on a GPU, for the given reason: the emulator is stricter there
// than a driver, or a driver does not do the same each time. It also skips the test
// if the emulator cannot be built.
func Only(t testing.TB, why string) {
	t.Helper()
	if OnGPU() {
		t.Skip("only on the emulator: " + why)
	}
	needed(t)
}

// emulator returns the emulator's control functions. On a GPU it skips the test.
func emulator() *control {
	onlyEmulated()
	return controls()
}

// onlyEmulated skips the running test when it is on a GPU.
func onlyEmulated() {
	if OnGPU() {
		running.Helper()
		running.Skip("only the emulator can do what this test needs")
	}
}
