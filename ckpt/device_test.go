package ckpt

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// remote is a device whose memory Go code may not touch, as far as ckpt knows.
type remote struct {
	*tensor.CPU
	copies atomic.Int64 // several goroutines save and load
}

func (r *remote) Host() bool     { return false }
func (r *remote) String() string { return "remote" }
func (r *remote) Copy(dst, src tensor.Ptr, n int, q tensor.Queue) {
	r.copies.Add(1)
	r.CPU.Copy(dst, src, n, q)
}

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
			dev := &remote{CPU: tensor.NewCPU(1)}
			params := made(dev, 1)
			s := NewSaver(g, dir, Config{Async: async})
			dev.copies.Store(0)
			if err := s.Save(context.Background(), State{Step: 1, Params: params}); err != nil {
				return err
			}
			require.EqualValues(t, 2, dev.copies.Load())
			if async {
				for i, p := range made(dev, 2) { // training goes on
					dev.Copy(params[i].Local.Ptr(), p.Local.Ptr(), 4*p.Len(), dev.Queue(0))
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
}
