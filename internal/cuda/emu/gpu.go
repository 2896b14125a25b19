package emu

import (
	"os"
	"testing"

	"github.com/ringo-ml/ringo/internal/cuda"
)

// OnGPU says whether tests run on the driver that cuda.Load finds, not on the
// emulator: with RINGO_TEST_GPU=1, which scripts/gpu sets.
func OnGPU() bool { return os.Getenv("RINGO_TEST_GPU") == "1" }

// Real says whether that driver is a GPU's: tests take sizes then that would keep
// an emulator busy for hours.
func Real() bool { return OnGPU() && !emulated }

// running is the test that Start was called by last.
var running testing.TB

// gpu is Start on a GPU. A test that asks for what only the emulator can do, or
// for more devices than there are, is skipped. Seed, order and Banks find what a
// GPU finds seldom or never: such a test runs there without them.
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

// Only skips a test on a GPU, for the reason given: what the emulator does there
// is stricter than a driver, or not the same each time. So does a machine without
// the emulator.
func Only(t testing.TB, why string) {
	t.Helper()
	if OnGPU() {
		t.Skip("only on the emulator: " + why)
	}
	needed(t)
}

// emulator returns the emulator's own functions. A test that runs on a GPU is
// skipped here.
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
