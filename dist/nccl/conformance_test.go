package nccl_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/dist/local"
	"github.com/ringo-ml/ringo/dist/nccl"
	"github.com/ringo-ml/ringo/dist/tcp"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cuda"
)

// devices is the number of GPUs: no test has more ranks.
const devices = 16

// long reports whether a test has parts that the short form leaves out on the emulator.
func long(t *testing.T) bool { return reliability.Long(t) || emu.OnGPU() }

// machine sets up the emulator for a test and its subtests, also those that run at the same time.
func machine(t *testing.T) { machineWith(t, emu.Config{}) }

func machineWith(t *testing.T, cfg emu.Config) {
	cfg.Devices = devices
	emu.Start(t, cfg)
	t.Cleanup(func() { nothingLeft(t) })
	dev, err := cuda.NewDevice(0)
	require.NoError(t, err)
	tensor.Floats(tensor.New(dev, tensor.Float32, 1)) // compiles the kernel that clears memory, so that no test waits for it
	dev.Close()
}

// start runs fn on n goroutine ranks, each with an emulated device of its own.
func start(t *testing.T, n int, cfg dist.Config, fn func(r *dist.Rank) error) error {
	return startWith(t, n, cfg, func(e *nccl.Engine) backend.Engine { return e }, fn)
}

func startWith(t *testing.T, n int, cfg dist.Config, wrap func(e *nccl.Engine) backend.Engine, fn func(r *dist.Rank) error) error {
	hub := local.NewHub(n)
	return startOver(t, n, cfg, hub.Engine, wrap, fn)
}

func startOver(t *testing.T, n int, cfg dist.Config, control func(rank int) backend.Engine, wrap func(e *nccl.Engine) backend.Engine,
	fn func(r *dist.Rank) error) error {
	engines, devices := make([]backend.Engine, n), make([]*cuda.Device, n)
	for i := range n {
		dev, err := cuda.NewDevice(i)
		require.NoError(t, err)
		e, err := nccl.New(nccl.Config{Control: control(i), Device: dev.GPU(), Compute: dev.Queue(0).(*cuda.Queue).Stream()})
		require.NoError(t, err)
		engines[i], devices[i] = wrap(e), dev
	}
	cfg.Device = func(local, _ int) (tensor.Device, error) { return devices[local], nil }
	return dist.RunEngines(context.Background(), cfg, engines, func(_ context.Context, r *dist.Rank) error { return fn(r) })
}

// The parts that NCCL does in its own way are left out: NaN in Min and Max, the rounding of 16-bit sums, bytes that cannot be counted. In
// the short form, TestSlowDevices has some of the others.
func TestConformance(t *testing.T) {
	machine(t)
	parts := []string{"Reductions", "Movement", "VForms", "PointToPoint", "RandomPrograms", "TwoGoroutines"}
	if long(t) {
		parts = append(parts, "Mesh", "Backpressure", "Objects")
	}
	if reliability.Long(t) {
		parts = append(parts, "InPlace", "Forms", "Groups", "InFlight", "Dependent", "Batch")
	}
	disttest.RunEmulated(t, start, parts...)
}

func TestLongConformance(t *testing.T) { reliability.AsLong(t, TestConformance) }

// Late devices: Wait returns long before an operation has run.
func TestSlowDevices(t *testing.T) {
	if disttest.Apart(t) {
		return
	}
	machineWith(t, emu.Config{Delay: 3 * time.Millisecond})
	parts := []string{"Dependent", "Batch"}
	if reliability.Long(t) {
		parts = append(parts, "PointToPoint")
	}
	disttest.RunEmulated(t, start, parts...)
	disttest.RunEmulated(t, startOnHost, "Lifetimes") // no memory is written after a failure
}

func TestLongSlowDevices(t *testing.T) { reliability.AsLong(t, TestSlowDevices) }

// onHost makes Work.Wait wait on the host. Tests of errors need them from the Wait of the operation.
type onHost struct{ *nccl.Engine }

type hostEnd interface {
	backend.Backend
	backend.Closer
	backend.Suspecter
	backend.Peeker
	backend.Algorithms
	backend.DeviceUser
}

type waitsOnHost struct{ hostEnd }

func (waitsOnHost) Order(uint64) bool { return false }

func (e onHost) Open(s backend.Spec) (backend.Backend, error) {
	b, err := e.Engine.Open(s)
	if err != nil {
		return nil, err
	}
	return waitsOnHost{b.(hostEnd)}, nil
}

func startOnHost(t *testing.T, n int, cfg dist.Config, fn func(r *dist.Rank) error) error {
	return startWith(t, n, cfg, func(e *nccl.Engine) backend.Engine { return onHost{e} }, fn)
}

func TestErrors(t *testing.T) {
	if disttest.Apart(t) {
		return
	}
	machine(t)
	parts := []string{"EveryOperation"}
	if long(t) { // TestSlowDevices, TestOverProcessEngines and TestProcessDies are the short form of these
		parts = append(parts, "Edges", "Rebuild")
	}
	if reliability.Long(t) {
		parts = append(parts, "Errors", "Lifetimes")
	}
	disttest.RunEmulated(t, startOnHost, parts...)
}

func TestLongErrors(t *testing.T) { reliability.AsLong(t, TestErrors) }

// Control engines of processes, over shared memory and, in the long form, over sockets, which TestRun has, too.
func TestOverProcessEngines(t *testing.T) {
	if disttest.Apart(t) {
		return
	}
	machine(t)
	for _, shared := range []bool{true, false} {
		if !shared && !long(t) {
			continue
		}
		start := func(t *testing.T, n int, cfg dist.Config, fn func(r *dist.Rank) error) error {
			engines := join(t, n, shared)
			control := func(rank int) backend.Engine { return engines[rank] }
			return startOver(t, n, cfg, control, func(e *nccl.Engine) backend.Engine { return onHost{e} }, fn)
		}
		t.Run(fmt.Sprint("shared memory ", shared), func(t *testing.T) {
			t.Parallel()
			parts := []string{"Errors"}
			if long(t) {
				parts = []string{"Groups", "PointToPoint", "Errors", "Forms"}
			}
			if reliability.Long(t) {
				parts = []string{"Groups", "PointToPoint", "Errors", "VForms", "Forms", "Edges", "Rebuild"}
			}
			disttest.RunEmulated(t, start, parts...)
		})
	}
}

func TestLongOverProcessEngines(t *testing.T) { reliability.AsLong(t, TestOverProcessEngines) }

// join makes the engines of n processes in this one.
func join(t *testing.T, n int, shared bool) []*tcp.Engine {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	engines, errs := make([]*tcp.Engine, n), make([]error, n)
	var wg sync.WaitGroup
	for r := range n {
		c := tcp.Config{Rank: r, Size: n, Addr: l.Addr().String(), Secret: []byte("0123456789abcdef0123456789abcdef"), Job: "test",
			Timeout: 20 * time.Second, JoinTimeout: 20 * time.Second, NoShared: !shared}
		if r == 0 {
			c.Listener = l
		}
		wg.Go(func() { engines[r], errs[r] = tcp.Join(context.Background(), c) })
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	return engines
}

// Package dist uses NCCL over an engine of processes by itself, unless they share a GPU.
func TestRun(t *testing.T) {
	machine(t)
	gpus := 2
	if reliability.Long(t) {
		gpus = devices
	}
	emu.Start(t, emu.Config{Devices: gpus})
	for n, want := range map[int]string{2: "nccl", gpus + 1: "tcp"} {
		cfg := dist.Config{Threads: 1, Device: func(local, _ int) (tensor.Device, error) { return cuda.NewDevice(local % gpus) }}
		var engines []backend.Engine
		for _, e := range join(t, n, false) {
			engines = append(engines, e)
		}
		require.NoError(t, dist.RunEngines(context.Background(), cfg, engines, func(_ context.Context, r *dist.Rank) error {
			assert.Equal(t, want, r.Engine())
			x := tensor.New(r.Device, tensor.Float32, 3)
			tensor.Copy(x, tensor.FromSlice([]float32{1, 2, 3}, 3))
			disttest.OK(r.World.AllReduce(x, dist.Sum).Wait())
			assert.Equal(t, []float64{float64(n), float64(2 * n), float64(3 * n)}, tensor.Floats(x))
			return nil
		}))
	}
}

func TestLongRun(t *testing.T) { reliability.AsLong(t, TestRun) }
