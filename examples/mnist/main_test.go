package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/train"
)

// number returns the number after a text at the beginning of a line; other lines may show progress.
func number(t *testing.T, out, text string) (x float64) {
	_, rest, ok := strings.Cut("\n"+out, "\n"+text)
	require.True(t, ok, out)
	_, err := fmt.Sscan(strings.TrimRight(strings.SplitN(rest, "\n", 2)[0], "%"), &x)
	require.NoError(t, err, out)
	return x
}

// cpu is what the CPU prints.
var cpu struct {
	once           sync.Once
	loss, accuracy float64
}

// onCPU trains on the CPU once.
func onCPU(t *testing.T) (loss, accuracy float64) {
	cpu.once.Do(func() { cpu.loss, cpu.accuracy = output(t, nil) })
	return cpu.loss, cpu.accuracy
}

// output returns the loss of the first step and the accuracy that three steps print.
func output(t *testing.T, device dist.DeviceFunc) (loss, accuracy float64) {
	var out bytes.Buffer
	require.NoError(t, run(&train.Options{Device: device}, 3, "float32", &out))
	return number(t, out.String(), "step 0  loss "), number(t, out.String(), "test accuracy ")
}

// Tests of the same name of ../embed and ../ddp-mnist are short on the emulator.
func TestCUDA(t *testing.T) {
	if !reliability.Long(t) && !emu.OnGPU() {
		t.Skip("the long runs have it, and those on a GPU")
	}
	wantLoss, want := onCPU(t)
	loss, accuracy := output(t, disttest.CUDA(t, emu.Config{Devices: 1}))
	require.InDelta(t, wantLoss, loss, 2e-4)
	require.InDelta(t, want, accuracy, 0.1)
}

func TestLongCUDA(t *testing.T) { reliability.AsLong(t, TestCUDA) }

// A training resumes where it was saved, in the middle of an epoch.
func TestResume(t *testing.T) {
	_, want := onCPU(t)
	require.Greater(t, want, 15.0, "it has learnt something")
	o := train.Options{Save: filepath.Join(t.TempDir(), "ckpt")}
	var out bytes.Buffer
	require.NoError(t, run(&o, 2, "float32", &out))
	o.Resume = true
	out.Reset()
	require.NoError(t, run(&o, 3, "float32", &out))
	require.Equal(t, 2.0, number(t, out.String(), "resumed at step "))
	require.Equal(t, want, number(t, out.String(), "test accuracy "))
}

func TestUsage(t *testing.T) {
	for want, err := range map[string]error{
		"-steps 0: want 1 or more": run(&train.Options{}, 0, "float32", nil),
		"-dtype: ":                 run(&train.Options{}, 1, "int31", nil),
		"-resume needs -save":      run(&train.Options{Resume: true}, 1, "float32", nil),
	} {
		require.ErrorContains(t, err, want)
		require.ErrorAs(t, err, new(train.UsageError))
	}
}
