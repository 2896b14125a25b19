package ckpt

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt/inspect"
	"github.com/ringo-ml/ringo/ckpt/internal/storage"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/tensortest"
)

// TestRemoteDevice: parameters on a device with its own memory are copied before a save in the background returns, and
// loaded back, transposed or not.
func TestRemoteDevice(t *testing.T) {
	made := func(dev tensor.Device, seed uint64) nn.Params {
		up, down := tensor.NewParam(tensor.NormalInit(0, 1), 5, 7), tensor.NewParam(tensor.NormalInit(0, 1), 7, 3)
		up.SetName("up")
		down.SetName("down")
		up.SetTransposed(true)
		for _, p := range (nn.Params{up, down}) {
			p.Make(dev, tensor.Float32, seed)
		}
		return nn.Params{up, down}
	}
	for _, async := range []bool{false, true} {
		dir := t.TempDir()
		onRanks(t, 1, func(g *dist.Group) error {
			dev := tensortest.NewRemote(t, 1)
			params := made(dev, 1)
			s := NewSaver(g, dir, Config{Async: async})
			dev.Counts()
			if err := s.Save(context.Background(), State{Step: 1, Params: params}); err != nil {
				return err
			}
			require.Equal(t, tensortest.Counts{Down: 2, Syncs: 1}, dev.Counts())
			if async {
				for i, p := range made(dev, 2) { // training continues
					tensor.Copy(params[i].Local, p.Local)
				}
			}
			require.NoError(t, s.Close())
			got := made(dev, 2)
			want := made(dev, 1)
			_, err := Load(context.Background(), g, filepath.Join(dir, storage.StepName(1)), &State{Params: got}, LoadConfig{})
			for i, p := range got {
				require.Equal(t, tensor.Floats(want[i].Local), tensor.Floats(p.Local))
			}
			return err
		})
	}
	dev, path := tensortest.NewRemote(t, 1), filepath.Join(t.TempDir(), "a.safetensors")
	require.NoError(t, SaveFile(t.Context(), path, State{Params: made(dev, 1)}))
	got := made(dev, 2)
	dev.Counts()
	_, err := LoadFile(t.Context(), path, &State{Params: got}, LoadConfig{})
	require.NoError(t, err)
	require.Equal(t, tensortest.Counts{Up: 2, Syncs: 2}, dev.Counts())
	for i, p := range made(dev, 1) {
		require.Equal(t, tensor.Floats(p.Local), tensor.Floats(got[i].Local))
	}
}

// On a device with its own memory, Step returns no error of a step that is not finite, and from then on changes nothing. A save refuses
// this state, though all of its values are finite: on all ranks, also in a file, until the optimizer has another one.
func TestSaveAfterLateStop(t *testing.T) {
	dir := t.TempDir()
	onRanks(t, 2, func(g *dist.Group) error {
		dev := tensortest.NewRemote(t, 1)
		p := tensor.NewParam(tensor.Constant(1), 3)
		p.SetName(fmt.Sprintf("part%d", g.Rank()))
		p.Make(dev, tensor.Float32, 0)
		opt, tape := optim.NewAdamW(nn.Params{p}, optim.AdamWConfig{LR: 0.1}), tensor.NewTape(dev)
		opt.OnNonfinite(func(*optim.NonfiniteError) { t.Error("a save tells others, who may not be there to listen") })
		step := func(x float64) {
			tape.Backward(tape.Use(p).Affine(x, 0).Sum())
			require.NoError(t, opt.Step())
			tape.Reset()
		}
		s, path := NewSaver(g, dir, Config{}), filepath.Join(t.TempDir(), "a.safetensors")
		save := func(nonfinite bool) (error, error) {
			st := State{Step: opt.Steps(), Params: nn.Params{p}, Optimizer: opt, Nonfinite: nonfinite}
			return s.Save(t.Context(), st), SaveFile(t.Context(), path, st)
		}
		step(1)
		err, alone := save(false)
		require.NoError(t, errors.Join(err, alone))
		step([]float64{1, math.NaN()}[g.Rank()])
		step(1)
		err, alone = save(false)
		require.ErrorContains(t, err, "ckpt: step 3 is not saved: rank 1: optim: step 2: the norm of the gradients is NaN")
		require.Equal(t, g.Rank() == 1, alone != nil)
		err, alone = save(true)
		require.NoError(t, errors.Join(err, alone))
		require.NoError(t, opt.SetState(opt.State()))
		step(1)
		err, alone = save(false)
		require.NoError(t, errors.Join(err, alone))
		tape.Close()
		return s.Close()
	})
}

// A synchronous save copies from a device in bounded pieces, waits once for each, and reuses its memory.
func TestStagingIsBounded(t *testing.T) {
	defer func(n int) { stagingBytes = n }(stagingBytes)
	stagingBytes = 1024
	dev, dir := tensortest.NewRemote(t, 1), t.TempDir()
	var params nn.Params
	for i, n := range []int{112, 112, 32, 0, 400, 10, 10} { // in bytes: 448, 448, 128; 1600; 40, 40
		p := tensor.NewParam(tensor.NormalInit(0, 1), n)
		p.SetName(string(rune('a' + i)))
		p.Make(dev, tensor.Float32, 1)
		params = append(params, p)
	}
	onRanks(t, 1, func(g *dist.Group) error {
		s := NewSaver(g, dir, Config{})
		for step := range 2 {
			dev.Counts()
			require.NoError(t, s.Save(t.Context(), State{Step: step, Params: params}))
			require.Equal(t, tensortest.Counts{Down: 6, Syncs: 3}, dev.Counts())
			held := 0
			for _, b := range s.staging.blocks {
				held += b.Len()
			}
			require.Equal(t, 1024+1600, held)
		}
		return s.Close()
	})
	require.True(t, mustVerify(t, filepath.Join(dir, storage.StepName(1)), inspect.VerifyConfig{}).OK)
	for _, p := range params {
		want := tensor.Floats(p.Local)
		p.Make(dev, tensor.Float32, 2)
		_, err := LoadFile(t.Context(), filepath.Join(dir, storage.StepName(1), "model.safetensors"), &State{Params: nn.Params{p}},
			LoadConfig{Partial: true})
		require.NoError(t, err)
		require.Equal(t, want, tensor.Floats(p.Local))
	}
}
