package ckpt

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/tensortest"
)

// TestRemoteDevice: parameters on a device with memory of its own are copied from there, before a save in the background
// returns, and to there, transposed or not.
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
			require.Equal(t, 2, dev.Counts().Down)
			if async {
				for i, p := range made(dev, 2) { // training goes on
					tensor.Copy(params[i].Local, p.Local)
				}
			}
			require.NoError(t, s.Close())
			got := made(dev, 2)
			want := made(dev, 1)
			_, err := Load(context.Background(), g, filepath.Join(dir, stepName(1)), &State{Params: got}, LoadConfig{})
			for i, p := range got {
				require.Equal(t, tensor.Floats(want[i].Local), tensor.Floats(p.Local))
			}
			return err
		})
	}
	dev, path := tensortest.NewRemote(t, 1), filepath.Join(t.TempDir(), "a.safetensors")
	require.NoError(t, SaveFile(t.Context(), path, State{Params: made(dev, 1)}))
	got := made(dev, 2)
	_, err := LoadFile(t.Context(), path, &State{Params: got}, LoadConfig{})
	require.NoError(t, err)
	for i, p := range made(dev, 1) {
		require.Equal(t, tensor.Floats(p.Local), tensor.Floats(got[i].Local))
	}
}
