package ckpt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt/inspect"
	"github.com/ringo-ml/ringo/ckpt/internal/disk"
	"github.com/ringo-ml/ringo/ckpt/internal/storage"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// TestBytesRead: each rank reads its own elements from the disk; to verify them, the ranks together read everything at
// most once more. With Broadcast, only rank 0 reads.
func TestBytesRead(t *testing.T) {
	path := save(t, t.TempDir(), layouts["ddp2"], 2)
	for _, c := range []struct {
		layout   string
		strategy Strategy
	}{{"fsdp3", Sharded}, {"tp2fsdp2", Owned}, {"ddp2", Broadcast}, {"fsdp4", Broadcast}} {
		l := layouts[c.layout]
		counted := &countingFS{}
		var sum, again atomic.Int64
		onRanks(t, l.ranks, func(g *dist.Group) error {
			st := newState(t, g, l, 0)
			st.Extra = nil
			items, err := st.items()
			require.NoError(t, err)
			want := int64(0)
			for _, x := range items {
				want += int64(x.data.Len() * x.data.DType().Size())
			}
			if c.strategy == Broadcast {
				if want = 0; g.Rank() == 0 {
					want = size()
				}
			}
			r, err := load(context.Background(), g, counted, path, st, LoadConfig{Strategy: c.strategy})
			if err != nil {
				return err
			}
			sum.Add(r.BytesRead)
			if r.BytesRead != want || r.Tensors != len(items) {
				return fmt.Errorf("rank %d read %d bytes of %d tensors, not %d", g.Rank(), r.BytesRead, r.Tensors, want)
			}
			if whole := c.strategy == Broadcast; r.Unverified > 0 || whole && r.BytesChecked > 0 {
				return fmt.Errorf("%d bytes unverified, %d read again", r.Unverified, r.BytesChecked)
			}
			sum.Add(r.BytesChecked)
			again.Add(r.BytesChecked)
			requireState(t, g, l, 2, st)
			return nil
		})
		require.Equal(t, c.strategy != Broadcast, again.Load() > 0)
		require.LessOrEqual(t, again.Load(), size(), "no byte more than once by all ranks together")
		if c.strategy == Broadcast {
			require.Equal(t, sum.Load(), counted.data.Load(), "counted where the disk is read")
		} else { // short runs are read together with the bytes between them
			require.GreaterOrEqual(t, counted.data.Load(), sum.Load())
		}
		if c.strategy == Broadcast {
			require.Equal(t, int64(1), counted.manifests.Load())
		}
	}
}

// countingFS counts the bytes of tensor data that are read, without headers.
type countingFS struct {
	disk.OS
	data, manifests atomic.Int64
}

func (c *countingFS) Open(name string, write bool) (disk.File, error) {
	f, err := c.OS.Open(name, write)
	if strings.HasSuffix(name, storage.ManifestName) {
		c.manifests.Add(1)
	}
	if err != nil || !strings.HasSuffix(name, ".safetensors") {
		return f, err
	}
	var length [8]byte
	if _, err := f.ReadAt(length[:], 0); err != nil {
		return nil, err
	}
	return &countingFile{f, c, 8 + int64(length[0]) + int64(length[1])<<8 + int64(length[2])<<16}, nil
}

type countingFile struct {
	disk.File
	c      *countingFS
	header int64
}

func (f *countingFile) ReadAt(b []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(b, off)
	f.c.data.Add(max(0, off+int64(n)-max(off, f.header)))
	return n, err
}

// TestStrict: one error lists everything that does not fit, and nothing is changed. Partial loads the rest.
func TestStrict(t *testing.T) {
	path := save(t, t.TempDir(), layouts["ddp2"], 2)
	change := func(st *State) {
		drop := st.Params[1]
		other := tensor.NewParam(tensor.Constant(0), 2)
		other.SetName("new.weight")
		other.Make(drop.Local.Device(), tensor.Float32, 1)
		wide := tensor.NewParam(tensor.Constant(0), 3)
		wide.SetName("blocks.0.norm.bias") // float64 in the file
		wide.Make(drop.Local.Device(), tensor.Float32, 1)
		long := tensor.NewParam(tensor.Constant(0), 17, 17)
		long.SetName("tok.weight")
		long.Make(drop.Local.Device(), tensor.Float32, 1)
		st.Params = nn.Params{long, other, st.Params[2], wide, st.Params[4], st.Params[5], st.Params[6], st.Params[7]}
		st.Optimizer, st.Extra = nil, nil
	}
	misfits := []string{"model:blocks.0.norm.bias is float64[3], not float32[3]", "model:tok.weight is float32[17,16], not float32[17,17]"}
	for _, s := range []Strategy{Sharded, Broadcast, Owned} {
		onRanks(t, 2, func(g *dist.Group) error {
			st := newState(t, g, layouts["ddp2"], 3)
			change(st)
			before := append([]byte(nil), st.Params[6].Local.Bytes()...)
			_, err := Load(context.Background(), g, path, st, LoadConfig{Strategy: s})
			require.ErrorContains(t, err, "the checkpoint does not fit: missing: model:new.weight; unexpected: model:blocks.0.qkv.weight; "+
				"of another shape or type: "+
				strings.Join(misfits, ", "))
			require.Equal(t, before, st.Params[6].Local.Bytes())
			require.Equal(t, 3, st.Step)

			r, err := Load(context.Background(), g, path, st, LoadConfig{Strategy: s, Partial: true})
			require.NoError(t, err)
			require.Equal(t, []string{"model:new.weight"}, r.Missing)
			require.Equal(t, []string{"model:blocks.0.qkv.weight"}, r.Unexpected)
			require.Equal(t, misfits, r.Misfits)
			require.Equal(t, 5, r.Tensors)
			want := newState(t, g, layouts["ddp2"], 2)
			require.Equal(t, want.Params[6].Local.Bytes(), st.Params[6].Local.Bytes())
			return nil
		})
	}
}

// TestOwned: ranks that each hold some of the layers load them together. A layer that no rank holds is an error.
func TestOwned(t *testing.T) {
	path := save(t, t.TempDir(), layouts["ddp1"], 2)
	part := func(st *State, rank, ranks int) {
		n := len(st.Params)
		first, end := layout.Share(n, rank, ranks)
		st.Params = st.Params[first:end]
		st.Optimizer, st.Extra = nil, nil
	}
	onRanks(t, 3, func(g *dist.Group) error {
		st := newState(t, g, layouts["ddp3"], 0)
		part(st, g.Rank(), 3)
		_, err := Load(context.Background(), g, path, st, LoadConfig{Strategy: Owned})
		require.NoError(t, err)
		want := newState(t, g, layouts["ddp3"], 2)
		part(want, g.Rank(), 3)
		for i, p := range want.Params {
			require.Equal(t, tensor.ToHost(p.Local).Bytes(), tensor.ToHost(st.Params[i].Local).Bytes())
		}

		st = newState(t, g, layouts["ddp3"], 0)
		part(st, g.Rank(), 4) // no rank holds the last quarter
		_, err = Load(context.Background(), g, path, st, LoadConfig{Strategy: Owned})
		require.ErrorContains(t, err, "unexpected: model:head.weight")

		_, err = Load(context.Background(), g, path, st, LoadConfig{})
		require.ErrorContains(t, err, "rank 0: the checkpoint does not fit: unexpected: ")

		// Together the ranks save the whole model again.
		dir := filepath.Join(filepath.Dir(path), "owned")
		s := newSaver(g, disk.OS{}, dir, Config{})
		require.NoError(t, s.Save(context.Background(), State{Step: 2, Params: want.Params}))
		return s.Close()
	})
	d, err := inspect.Diff(context.Background(), path, filepath.Join(filepath.Dir(path), "owned", storage.StepName(2)), nil)
	require.NoError(t, err)
	require.Empty(t, d.Tensors)
	require.Empty(t, d.OnlyB)
	for _, name := range d.OnlyA {
		require.True(t, strings.HasPrefix(name, "optimizer:"), name)
	}
}

// disagreements are ways in which ranks can differ, with the expected error.
var disagreements = map[string]func(g *dist.Group, st *State){
	"rank 1 has step 4 where rank 0 has 3": func(g *dist.Group, st *State) { st.Step += g.Rank() },
	"rank 1 has extra state":               func(g *dist.Group, st *State) { st.Extra["loader"] = g.Rank() },
	"rank 1 has learning rate":             func(g *dist.Group, st *State) { st.Optimizer.SetLR(1 + float64(g.Rank())) },
	"rank 1 has optimizer steps": func(g *dist.Group, st *State) {
		s := st.Optimizer.State()
		s.Steps += g.Rank()
		_ = st.Optimizer.SetState(s)
	},
	"rank 1 has scaler {\"scale\":2,\"good\":0} where rank 0 has {\"scale\":1,\"good\":0}": func(g *dist.Group, st *State) {
		st.Optimizer = optim.NewAdamW(st.Params, optim.AdamWConfig{Scaler: &optim.Scaler{Scale: float64(1 + g.Rank())}})
		s := st.Optimizer.State()
		s.Steps = 3
		_ = st.Optimizer.SetState(s)
	},
	"rank 1 has randomness {\"seed\":1,\"step\":0,\"micro\":0} where rank 0 has {\"seed\":0,": func(g *dist.Group, st *State) {
		st.Tape = tensor.NewTape(g.Device(), tensor.Seed(uint64(g.Rank())))
	},
	"rank 1 has mlp.weight as BF16[5 9]": func(g *dist.Group, st *State) { st.Params[7].SetTransposed(g.Rank() == 0) },
	"other bits in tok.weight":           func(g *dist.Group, st *State) { st.Params[0].Local.Bytes()[5] ^= byte(g.Rank()) },
	"other bits in head.weight.exp":      func(g *dist.Group, st *State) { moment(st, "head.weight.exp_avg_sq").Bytes()[0] ^= byte(g.Rank()) },
	"tok.weight: nobody has elements 0 to 9 of the boxes [{[0 0] [17 16]}]": func(g *dist.Group, st *State) {
		p := st.Params[0]
		st.Optimizer = nil
		p.Local = tensor.New(g.Device(), tensor.Float32, 263)
		p.Shard(9, 272)
	},
	"tok.weight: the boxes {[0 0] [9 16]} and {[0 0] [17 16]} overlap": func(g *dist.Group, st *State) {
		st.Optimizer = nil
		if g.Rank() == 1 {
			*st.Params[0] = *rows(g, "tok.weight", []int{17, 16}, 0, layout.Division{})
		}
	},
	"rank 1: tok.weight was never made": func(g *dist.Group, st *State) {
		if g.Rank() == 1 {
			st.Params[0].Local = tensor.Tensor{}
		}
	},
	"rank 1: extra \"f\": json": func(g *dist.Group, st *State) {
		if g.Rank() == 1 {
			st.Extra["f"] = func() {}
		}
	},
	"rank 1 has called map[allreduce:1] where rank 0 has map[]": func(g *dist.Group, st *State) { // a mismatch that no transport noticed
		if g.Rank() == 1 {
			_ = g.AllReduce(tensor.FromSlice([]float32{1}, 1), dist.Sum) //discard: nobody answers it
		}
	},
}

// TestDisagree: a State in which ranks differ is never saved; the previous checkpoint stays the latest. The long form loads it, too.
func TestDisagree(t *testing.T) {
	ctx := context.Background()
	for want, change := range disagreements {
		dir := t.TempDir()
		save(t, dir, layouts["ddp2"], 2)
		_ = tryRanks(2, func(g *dist.Group) error {
			s := newSaver(g, disk.OS{}, dir, Config{})
			st := newState(t, g, layouts["ddp2"], 3)
			change(g, st)
			err := s.Save(ctx, *st)
			require.ErrorContains(t, err, want)
			return errors.Join(err, s.Close())
		})
		path, err := Latest(dir)
		require.NoError(t, err)
		require.Equal(t, storage.StepName(2), filepath.Base(path), want)
		if reliability.Long(t) {
			loadAll(t, path, layouts["fsdp3"], 2, LoadConfig{})
		}
		list, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, list, 1, "nothing else is left")
	}
}

func TestLongDisagree(t *testing.T) { reliability.AsLong(t, TestDisagree) }

// TestReplicasDiffer: the same holds for shards that several ranks hold.
func TestReplicasDiffer(t *testing.T) {
	l, dir := layouts["tp2dp2"], t.TempDir()
	err := tryRanks(l.ranks, func(g *dist.Group) error {
		st := newState(t, g, l, 3)
		if g.Rank() == 2 {
			st.Params[1].Local.Bytes()[0] ^= 1
		}
		s := newSaver(g, disk.OS{}, dir, Config{})
		return errors.Join(s.Save(context.Background(), *st), s.Close())
	})
	require.ErrorContains(t, err, "rank 0 and rank 2 have other bits in blocks.0.qkv.weight")
}

func moment(st *State, name string) tensor.Tensor {
	for _, x := range st.Optimizer.State().Tensors {
		if x.Name == name {
			return x.Tensor
		}
	}
	return tensor.Tensor{}
}

// TestSaver: retention, steps that go back, stale folders, saves in the background.
func TestSaver(t *testing.T) {
	ctx, dir := context.Background(), filepath.Join(t.TempDir(), "new", "dir")
	l := layouts["fsdp2"]
	require.NoError(t, os.MkdirAll(filepath.Join(dir, storage.TmpPrefix+"step-00000001-X"), 0o777))
	onRanks(t, 2, func(g *dist.Group) error {
		s := newSaver(g, disk.OS{}, dir, Config{Keep: 2, Async: true})
		for version := 1; version <= 5; version++ {
			st := newState(t, g, l, version)
			require.NoError(t, s.Save(ctx, *st))
			for _, p := range st.Params { // training continues
				clear(p.Local.Bytes())
			}
			for _, x := range st.Optimizer.State().Tensors {
				clear(x.Tensor.Bytes())
			}
		}
		require.NoError(t, s.Wait())
		require.NoError(t, s.Save(ctx, *newState(t, g, l, 5)), "the error comes with the next call")
		require.ErrorContains(t, s.Save(ctx, *newState(t, g, l, 6)), "has step 5 already")
		return s.Close()
	})
	names, err := disk.OS{}.ReadDir(dir)
	require.NoError(t, err)
	require.Equal(t, []string{storage.StepName(4), storage.StepName(5)}, names)
	for version := 4; version <= 5; version++ {
		path := filepath.Join(dir, storage.StepName(version))
		require.True(t, mustVerify(t, path, inspect.VerifyConfig{}).OK)
		loadAll(t, path, layouts["fsdp3"], version, LoadConfig{})
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, storage.StepName(7)), 0o777))
	_, err = Latest(dir)
	require.ErrorContains(t, err, "step-00000007 is not sound")
	_, err = Latest(filepath.Join(dir, "nowhere"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// If a directory cannot be written, the error of every rank says where and why.
func TestReadOnlyDirectory(t *testing.T) {
	dir, why := filepath.Join(t.TempDir(), "checkpoints"), "permission denied"
	if os.Getuid() == 0 { // permissions do not stop root, but a file in place of the directory does
		why = "not a directory"
		require.NoError(t, os.WriteFile(dir, nil, 0o666))
	} else {
		require.NoError(t, os.Mkdir(dir, 0o555))
	}
	errs := make([]error, 2)
	require.Error(t, tryRanks(2, func(g *dist.Group) error {
		s := NewSaver(g, dir, Config{})
		err := errors.Join(s.Save(context.Background(), *newState(t, g, layouts["ddp2"], 1)), s.Close())
		errs[g.Rank()] = err
		return err
	}))
	for rank, err := range errs {
		require.ErrorContains(t, err, dir, "rank %d", rank)
		require.ErrorContains(t, err, why, "rank %d", rank)
	}
}

// Backward refuses what was computed before a Load.
func TestLoadChangesValues(t *testing.T) {
	dir := t.TempDir()
	onRanks(t, 1, func(g *dist.Group) error {
		l, dev := nn.NewLinear(2, 1), cpu.New(1)
		defer dev.Close()
		st := &State{Params: nn.Init(l, dev, tensor.Float64, 1)}
		if err := NewSaver(g, dir, Config{}).Save(context.Background(), *st); err != nil {
			return err
		}
		tape, x := tensor.NewTape(dev), tensor.FromSlice([]float64{1, 2}, 1, 2)
		loss := l.Forward(tape.Input(x)).Square().Sum()
		if _, err := Load(context.Background(), g, filepath.Join(dir, storage.StepName(0)), st, LoadConfig{}); err != nil {
			return err
		}
		err := tensor.Try(func() { tape.Backward(loss) })
		require.ErrorContains(t, err, "weight was changed")
		return nil
	})
}

// Folders that another program wrote, and that cannot be loaded as they are.
func TestForeignFolders(t *testing.T) {
	const weight = `{"weight":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]}`
	small, two := t.TempDir(), t.TempDir()
	write(t, small, "model.safetensors", weight+`,"bias":{"dtype":"F8_E4M3","shape":[1,1],"data_offsets":[4,5]}}`, make([]byte, 5))
	for _, name := range []string{"model.safetensors", "a.safetensors"} {
		write(t, two, name, weight+`,"bias":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, make([]byte, 8))
	}
	index := `{"weight_map": {"weight": "a.safetensors", "bias": "a.safetensors"}}`
	require.NoError(t, os.WriteFile(filepath.Join(two, "model.safetensors.index.json"), []byte(index), 0o666))
	require.NoError(t, dist.Run(t.Context(), dist.Config{Threads: 1}, func(ctx context.Context, r *dist.Rank) error {
		for dir, want := range map[string]string{
			small: "of another shape or type: model:bias is F8_E4M3[1,1], which is not converted, not float32[1]",
			two: two + " is not sound: model.safetensors is one model, and the files that model.safetensors.index.json names are another: " +
				"remove the one that is old",
		} {
			params := nn.Init(nn.NewLinear(1, 1), r.Device, tensor.Float32, 1)
			_, err := Load(ctx, r.World, dir, &State{Params: params}, LoadConfig{Cast: true})
			require.ErrorContains(t, err, want)
		}
		return nil
	}))
}
