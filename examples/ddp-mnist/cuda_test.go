package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

// TestCapturedOnCUDA: one rank on a GPU, with replays of a graph from the third step on, has the losses of the CPU.
func TestCapturedOnCUDA(t *testing.T) {
	o := short()
	o.optim, o.batch = "adamw", 16
	want := trainOn(t, o, synthetics, 50)
	o.Device, o.Trace = disttest.CUDA(t, emu.Config{}), filepath.Join(t.TempDir(), "trace.json")
	got := trainOn(t, o, synthetics, 50)
	trace, err := os.ReadFile(o.Trace)
	require.NoError(t, err)
	require.Equal(t, o.steps-2, strings.Count(string(trace), `"name":"graph"`))
	require.Equal(t, want.Steps, got.Steps)
	require.InEpsilon(t, float64(want.FinalLoss), float64(got.FinalLoss), 1e-3)
	require.InDelta(t, want.TestAccuracy, got.TestAccuracy, 0.01)
}

// On GPUs (one for each of two ranks; in the long form, also one that they share), training gives the CPU's results.
func TestCUDA(t *testing.T) {
	for _, c := range []struct {
		dtype string
		gpus  int
		tol   float64
	}{{"float32", 2, 1e-5}, {"bfloat16", 1, 1e-2}} {
		if c.gpus == 1 && !reliability.Long(t) {
			break
		}
		o, tests := short(), 50
		if o.ranks, o.steps, o.dtype = 2, 3, c.dtype; reliability.Long(t) {
			tests = 300
		} else {
			o.batch = 15
		}
		want := trainOn(t, o, synthetics, tests)
		o.Device = disttest.CUDA(t, emu.Config{Devices: c.gpus, Lazy: true})
		got := trainOn(t, o, synthetics, tests)
		require.InEpsilon(t, float64(want.FirstLoss), float64(got.FirstLoss), c.tol, c.dtype)
		require.InEpsilon(t, float64(want.FinalLoss), float64(got.FinalLoss), c.tol, c.dtype)
		require.InDelta(t, want.TestAccuracy, got.TestAccuracy, 0.01)
	}
}

func TestLongCUDA(t *testing.T) { reliability.AsLong(t, TestCUDA) }

// TestMain runs this binary as a rank of TestProcessesOnCUDA, if that has started it.
func TestMain(m *testing.M) {
	if os.Getenv("DDP_TEST_CHILD") == "" {
		os.Exit(m.Run())
	}
	if err := child(); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

func child() (err error) {
	o := short()
	if _, err := fmt.Sscan(os.Getenv("DDP_TEST_CHILD"), &o.steps, &o.batch); err != nil {
		return err
	}
	if o.Device, err = dist.Devices("cuda"); err != nil {
		return err
	}
	return runOn(o, synthetics, 300, os.Stdout)
}

// Two processes with a GPU each, connected by NCCL, train like one rank. The bits are those of goroutine ranks, because the order of two
// summands does not matter. TestCUDA has the goroutine ranks, and package ddp has short tests with NCCL.
func TestProcessesOnCUDA(t *testing.T) {
	if !reliability.Long(t) && !emu.OnGPU() {
		t.Skip("the long runs have it, and those on a GPU")
	}
	o := short()
	o.steps, o.batch = 5, 64
	o.Device = disttest.CUDA(t, emu.Config{})
	one := trained(t, o)
	o.ranks = 2
	goroutines := trained(t, o)
	printed := disttest.Processes(t, 2, fmt.Sprintf("DDP_TEST_CHILD=%d %d", o.steps, o.batch), "EMU_DEVICES=2")
	var got summary
	require.NoError(t, json.Unmarshal(bytes.TrimSpace(printed[0]), &got), "%s", printed[0])
	require.Equal(t, [2]any{"nccl", 2}, [2]any{got.Backend, got.Ranks})
	require.InEpsilon(t, float64(one.FirstLoss), float64(got.FirstLoss), 1e-5)
	require.InEpsilon(t, float64(one.FinalLoss), float64(got.FinalLoss), 1e-5)
	require.Equal(t, goroutines.ParamsSHA256, got.ParamsSHA256)
	require.Equal(t, goroutines.LossesSHA256, got.LossesSHA256)
}

func TestLongProcessesOnCUDA(t *testing.T) { reliability.AsLong(t, TestProcessesOnCUDA) }

// A step copies nothing and does not wait for the device: the loss is read at the end of an epoch. TestSteadySteps of package ddp is short.
func TestSteadyStep(t *testing.T) {
	if !reliability.Long(t) && !emu.OnGPU() {
		t.Skip("the long runs have it, and those on a GPU")
	}
	o := short()
	o.ranks, o.batch, o.lr = 2, 7, 0.01
	images, err := synthetic(300, o.seed, tensor.Float32)
	require.NoError(t, err)
	disttest.SteadySteps(t, disttest.GPUs()[1].Start(t, 2), 20, 1, func(r *dist.Rank) (func() error, error) {
		x, err := newTrainer(t.Context(), o, tensor.Float32, r, images, images)
		if err != nil {
			return nil, err
		}
		var batch data.Batch
		for _, batch = range x.images.Epoch(context.Background(), 0) {
			break
		}
		return func() error { return x.advance(batch) }, nil
	})
}

func TestLongSteadyStep(t *testing.T) { reliability.AsLong(t, TestSteadyStep) }
