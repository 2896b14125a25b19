package ckpt

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt/internal/disk"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// flipFS is a disk on which one bit of one file is wrong.
type flipFS struct {
	disk.OS
	name string
	bit  int64
}

func (f flipFS) Open(name string, write bool) (disk.File, error) {
	x, err := f.OS.Open(name, write)
	if err != nil || filepath.Base(name) != f.name {
		return x, err
	}
	return flipFile{x, f.bit}, nil
}

type flipFile struct {
	disk.File
	bit int64
}

func (f flipFile) ReadAt(b []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(b, off)
	if at := f.bit/8 - off; at >= 0 && at < int64(n) {
		b[at] ^= 1 << (f.bit % 8)
	}
	return n, err
}

// TestLoadRefusesFlips: every layout refuses a wrong bit in any byte of any file, also if it cuts tensors differently from the layout that
// saved. Trying every byte would take twenty minutes: it tries every 997th, from another byte on for each pair of layouts. The short
// form has a pair for each layout that saved.
func TestLoadRefusesFlips(t *testing.T) {
	for k, from := range flippedFrom {
		path := save(t, t.TempDir(), layouts[from], 2)
		for i, to := range flippedTo {
			if (i+k)%6 == 1 == reliability.Long(t) {
				continue
			}
			requireRefusesFlips(t, path, from, to, int64(50*i+331*k))
		}
	}
}

// The long form has the other pairs. Then a seed chooses the layouts and the first byte.
func TestLongLoadRefusesFlips(t *testing.T) {
	reliability.AsLong(t, TestLoadRefusesFlips)
	var paths []string
	for _, from := range flippedFrom {
		paths = append(paths, save(t, t.TempDir(), layouts[from], 2))
	}
	seeds := reliability.Random(t)
	for seed, ok := seeds.Next(); ok; seed, ok = seeds.Next() {
		r := rand.New(rand.NewPCG(seed, 0))
		from := r.IntN(len(flippedFrom))
		t.Logf("RINGO_SEED=%d", seed)
		requireRefusesFlips(t, paths[from], flippedFrom[from], flippedTo[r.IntN(len(flippedTo))], r.Int64N(997))
	}
}

var (
	flippedFrom = []string{"fsdp2", "tp2fsdp2", "ddp1"}
	flippedTo   = []string{"ddp1", "fsdp2", "tp2", "fsdp3", "fsdp5", "tp2fsdp2"}
)

// requireRefusesFlips loads on one layout what another one saved, with a wrong bit in every 997th byte from one on.
func requireRefusesFlips(t *testing.T, path, from, to string, first int64) {
	const stride = 997
	names, err := disk.OS{}.ReadDir(path)
	require.NoError(t, err)
	flips := 0
	onRanks(t, layouts[to].ranks, func(g *dist.Group) error {
		st := newState(t, g, layouts[to], 0)
		st.Extra = nil
		at := first % stride
		for _, name := range names {
			info, err := os.Stat(filepath.Join(path, name))
			if err != nil {
				return err
			}
			for ; at < info.Size(); at += stride {
				if _, err := load(context.Background(), g, flipFS{disk.OS{}, name, 8*at + at%8}, path, st, LoadConfig{}); err == nil {
					return fmt.Errorf("rank %d of %s loaded what %s saved, with a wrong bit in byte %d of %s", g.Rank(), to, from, at, name)
				}
				if g.Rank() == 0 {
					flips++
				}
			}
			at -= info.Size()
		}
		return nil
	})
	require.Greater(t, flips, 20)
}

// TestFlipNamesThePlace: the error names file, tensor and reason, also if no rank holds a complete piece.
func TestFlipNamesThePlace(t *testing.T) {
	path := save(t, t.TempDir(), layouts["fsdp2"], 2)
	info, err := os.Stat(filepath.Join(path, "optimizer-00006-of-00006.safetensors"))
	require.NoError(t, err)
	onRanks(t, 3, func(g *dist.Group) error {
		st := newState(t, g, layouts["fsdp3"], 0)
		st.Extra = nil
		_, err := load(context.Background(), g, flipFS{disk.OS{}, "optimizer-00006-of-00006.safetensors", 8*info.Size() - 3}, path, st,
			LoadConfig{})
		require.ErrorContains(t, err, `optimizer-00006-of-00006.safetensors: tensor "`)
		require.ErrorContains(t, err, "has another SHA-256 than ringo.json says: the data is damaged")
		return nil
	})
}
