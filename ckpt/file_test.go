package ckpt

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt/inspect"
	"github.com/ringo-ml/ringo/ckpt/internal/disk"
	"github.com/ringo-ml/ringo/ckpt/internal/storage"
	"github.com/ringo-ml/ringo/ckpt/safetensors"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// fileState is newState on one rank, without what a file cannot hold.
func fileState(t require.TestingT, g *dist.Group, version int) State {
	st := newState(t, g, layouts["ddp1"], version)
	st.Files = nil
	return *st
}

// saveVersion writes a version of the test model to a file.
func saveVersion(fsys disk.FS, path string, version int) error {
	return tryRanks(1, func(g *dist.Group) error {
		return saveFile(context.Background(), fsys, path, fileState(failNow{}, g, version))
	})
}

// requireVersion loads a file and compares every bit.
func requireVersion(t *testing.T, fsys disk.FS, path string, version int) {
	t.Helper()
	onRanks(t, 1, func(g *dist.Group) error {
		st := fileState(t, g, 0)
		extra := struct{ Epoch int }{}
		st.Extra = map[string]any{"loader": &extra}
		r, err := load(context.Background(), nil, fsys, path, &st, LoadConfig{})
		if err != nil {
			return err
		}
		require.Zero(t, r.Unverified)
		require.Equal(t, version, extra.Epoch)
		requireState(t, g, layouts["ddp1"], version, &st)
		return nil
	})
}

// TestFile: LoadFile, Load on every layout, Verify, List, Convert and Diff accept a file of SaveFile, also under
// another name.
func TestFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "first.safetensors")
	require.NoError(t, saveVersion(disk.OS{}, path, 1))
	require.NoError(t, saveVersion(disk.OS{}, path, 3), "it is replaced")
	names, err := disk.OS{}.ReadDir(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"first.safetensors"}, names)
	moved := filepath.Join(dir, "moved.safetensors")
	require.NoError(t, os.Rename(path, moved))

	requireVersion(t, disk.OS{}, moved, 3)
	for _, l := range []string{"ddp2", "fsdp3", "tp2fsdp2"} {
		loadAll(t, moved, layouts[l], 3, LoadConfig{})
	}
	loadAll(t, moved, layouts["ddp2"], 3, LoadConfig{Strategy: Broadcast})

	v := mustVerify(t, moved, inspect.VerifyConfig{Layout: "tp=2,fsdp=2"})
	require.Empty(t, v.Errors)
	require.Empty(t, v.Unchecked)
	require.Equal(t, v.Tensors, v.Shards, "each has a hash")
	step, list, err := inspect.List(moved)
	require.NoError(t, err)
	require.Equal(t, 3, step)
	require.Equal(t, inspect.Info{Name: "tok.weight", Kind: "model", DType: "F32", Shape: []int{17, 16}, File: "moved.safetensors",
		Bytes: 17 * 16 * 4, Shards: 1}, list[0])

	folder := filepath.Join(dir, "folder")
	require.NoError(t, inspect.Convert(t.Context(), moved, folder, inspect.ConvertConfig{}))
	d, err := inspect.Diff(t.Context(), moved, folder, nil)
	require.NoError(t, err)
	require.True(t, d.Same, d)
	loadAll(t, folder, layouts["fsdp2"], 3, LoadConfig{})
}

// TestFileCrash crashes before every operation of SaveFile. The file must be the old or the new one, complete, and the
// next SaveFile must work and leave no other file. If the disk is full or broken, the old file must stay. The short form tries every
// third operation.
func TestFileCrash(t *testing.T) {
	const path = "dir/a.safetensors"
	base := newCrashFS()
	require.NoError(t, base.MkdirAll("dir"))
	require.NoError(t, base.SyncDir("."))
	require.NoError(t, saveVersion(base, path, 1))
	trial := base.clone()
	require.NoError(t, saveVersion(trial, path, 2))
	requireVersion(t, trial.reboot(rand.New(rand.NewPCG(1, 1))), path, 2)
	require.Greater(t, trial.ops, 20)

	seen := map[int]int{}
	for stop := 1; stop <= trial.ops; stop++ {
		if (trial.ops-stop)%3 > 0 && !reliability.Long(t) {
			continue
		}
		crashed := base.clone()
		crashed.stop = stop
		require.ErrorIs(t, saveVersion(crashed, path, 2), errCrash)
		after := crashed.reboot(rand.New(rand.NewPCG(uint64(stop), 0)))
		src, err := storage.Open(after, path)
		require.NoError(t, err, "off at operation %d of %d, %s", stop, trial.ops, crashed.failed)
		version := src.Manifest.Step
		require.NoError(t, src.Close())
		require.Contains(t, []int{1, 2}, version)
		requireVersion(t, after, path, version)
		seen[version]++

		require.NoError(t, saveVersion(after, path, 3))
		require.Len(t, after.root.entries["dir"].entries, 1, "nothing else is left")
		requireVersion(t, after.reboot(rand.New(rand.NewPCG(uint64(stop), 1))), path, 3)

		broken := base.clone()
		broken.fail, broken.err = stop, []error{syscall.ENOSPC, syscall.EIO}[stop%2]
		require.ErrorIs(t, saveVersion(broken, path, 2), broken.err, "operation %d, %s", stop, broken.failed)
		broken.fail = 0
		version = 1
		if stop == trial.ops {
			version = 2 // the last operation flushes the name
		}
		requireVersion(t, broken, path, version)
		require.Len(t, broken.root.entries["dir"].entries, 1)
	}
	require.NotZero(t, seen[1])
}

func TestLongFileCrash(t *testing.T) { reliability.AsLong(t, TestFileCrash) }

// TestFileFlush shows that TestFileCrash can fail: without flushes, the file is lost.
func TestFileFlush(t *testing.T) {
	for name, lazy := range map[string]func(c *crashFS) disk.FS{
		"file": func(c *crashFS) disk.FS { return lazyFiles{c} }, "name": func(c *crashFS) disk.FS { return lazyDirs{c} },
	} {
		lost := false
		for seed := range uint64(20) {
			c := newCrashFS()
			require.NoError(t, c.MkdirAll("dir"))
			require.NoError(t, c.SyncDir("."))
			require.NoError(t, saveVersion(lazy(c), "dir/a.safetensors", 1))
			src, err := storage.Open(c.reboot(rand.New(rand.NewPCG(3, seed))), "dir/a.safetensors")
			lost = lost || err != nil
			if err == nil {
				require.NoError(t, src.Close())
			}
		}
		require.True(t, lost, name)
	}
}

// saveFileForEver replaces a file again and again, and prints each version when it is complete.
func saveFileForEver(path string) error {
	for version := 1; ; version++ {
		if err := saveVersion(disk.OS{}, path, version); err != nil {
			return err
		}
		fmt.Println(version)
	}
}

// TestFileKill kills a process that saves. The file must be the last version that it reported, or the next one.
func TestFileKill(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.safetensors")
	r := rand.New(rand.NewPCG(7, 7))
	for range 4 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), fileVar+"="+path)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := bufio.NewScanner(out)
		require.True(t, lines.Scan())
		time.AfterFunc(time.Duration(r.IntN(10000))*time.Microsecond, func() { _ = cmd.Process.Kill() })
		last := lines.Text()
		for lines.Scan() {
			last = lines.Text()
		}
		require.Error(t, cmd.Wait(), "it does not end by itself")
		reported, err := strconv.Atoi(last)
		require.NoError(t, err, "the process failed: %s", last)
		step, _, err := inspect.List(path)
		require.NoError(t, err)
		require.Contains(t, []int{reported, reported + 1}, step)
		requireVersion(t, disk.OS{}, path, step)
	}
	require.NoError(t, saveVersion(disk.OS{}, path, 1))
	names, err := disk.OS{}.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, names, 1, "what was half written is removed")
}

// tinyFile saves a file so small that every byte of it can be damaged.
func tinyFile(t *testing.T) (path string, state func() *State) {
	dev := cpu.New(1)
	t.Cleanup(dev.Close)
	state = func() *State {
		params := nn.Init(nn.NewLinear(2, 3), dev, tensor.Float32, 1)
		return &State{Step: 5, Params: params, Optimizer: optim.NewAdamW(params, optim.AdamWConfig{})}
	}
	path = filepath.Join(t.TempDir(), "tiny.safetensors")
	require.NoError(t, SaveFile(t.Context(), path, *state()))
	return path, state
}

// TestFileEveryFlip: LoadFile refuses a wrong bit in any byte of the file, and so does the reader that Verify uses.
func TestFileEveryFlip(t *testing.T) {
	path, state := tinyFile(t)
	info, err := os.Stat(path)
	require.NoError(t, err)
	st := state()
	for i := range info.Size() {
		if i%7 > 0 && !reliability.Long(t) {
			continue
		}
		flipped := flipFS{disk.OS{}, filepath.Base(path), i*8 + i%8}
		_, err := load(t.Context(), nil, flipped, path, st, LoadConfig{})
		require.Error(t, err, "bit %d of byte %d of %d", i%8, i, info.Size())
		require.Error(t, sound(flipped, path), "bit %d of byte %d", i%8, i)
	}
	_, err = LoadFile(t.Context(), path, st, LoadConfig{})
	require.NoError(t, err)
}

func TestLongFileEveryFlip(t *testing.T) { reliability.AsLong(t, TestFileEveryFlip) }

// TestFileNameFlips: a wrong bit in the manifest's key is refused, also in a file with parameters alone. Such a file
// must not be taken for one of another program.
func TestFileNameFlips(t *testing.T) {
	dev := cpu.New(1)
	defer dev.Close()
	st := &State{Params: nn.Init(nn.NewLinear(2, 3), dev, tensor.Float32, 1)}
	path := filepath.Join(t.TempDir(), "tiny.safetensors")
	require.NoError(t, SaveFile(t.Context(), path, *st))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	key := []byte(`"` + storage.MetadataName + `":`)
	require.Equal(t, 1, bytes.Count(text, key))
	at, others := int64(bytes.Index(text, key)), 0
	for bit := at * 8; bit < (at+int64(len(key)))*8; bit++ {
		_, err := load(t.Context(), nil, flipFS{disk.OS{}, filepath.Base(path), bit}, path, st, LoadConfig{})
		require.Error(t, err, "bit %d", bit)
		if strings.Contains(err.Error(), "has a checkpoint of this package under ") {
			others++
		}
	}
	require.Greater(t, others, 4*len(storage.MetadataName), "flips that leave a name")
	_, err = LoadFile(t.Context(), path, st, LoadConfig{})
	require.NoError(t, err)
}

// TestFileSegments: a tensor that is one parameter in one model and parts of two in another can be saved and loaded
// both ways.
func TestFileSegments(t *testing.T) {
	dev := cpu.New(1)
	defer dev.Close()
	made := func(name string, rows int, as []tensor.Stored, seed uint64) *tensor.Param {
		p := tensor.NewParam(tensor.NormalInit(0, 1), rows, 2)
		p.SetName(name)
		p.SetStored(as)
		p.Make(dev, tensor.Float32, seed)
		return p
	}
	whole := func(seed uint64) nn.Params { return nn.Params{made("x", 12, nil, seed)} }
	parts := func(seed uint64) nn.Params {
		return nn.Params{made("q", 4, []tensor.Stored{of("x", 4, 0, 12)}, seed), made("kv", 8, []tensor.Stored{of("x", 8, 4, 12)}, seed+10)}
	}
	all := func(params nn.Params) (v []float64) {
		for _, p := range params {
			v = append(v, tensor.Floats(p.Local)...)
		}
		return v
	}
	path := filepath.Join(t.TempDir(), "a.safetensors")
	for _, ways := range [][2]func(seed uint64) nn.Params{{whole, parts}, {parts, whole}} {
		saved, loaded := ways[0](1), ways[1](2)
		require.NoError(t, SaveFile(t.Context(), path, State{Params: saved}))
		r, err := LoadFile(t.Context(), path, &State{Params: loaded}, LoadConfig{})
		require.NoError(t, err)
		require.Equal(t, all(saved), all(loaded))
		require.Zero(t, r.Unverified)
		info, err := os.Stat(path)
		require.NoError(t, err)
		flipped := flipFS{disk.OS{}, filepath.Base(path), info.Size()*8 - 1}
		_, err = load(t.Context(), nil, flipped, path, &State{Params: loaded}, LoadConfig{})
		require.ErrorContains(t, err, "has another SHA-256 than its metadata says")
	}
}

// TestFileHostile: a manifest with a correct hash and false content is refused.
func TestFileHostile(t *testing.T) {
	for name, c := range map[string]struct {
		change func(m *storage.Manifest)
		says   string
	}{
		"hash": {func(m *storage.Manifest) { m.Model[0].Pieces[0].SHA256 = storage.Sum(nil) },
			"has another SHA-256 than its metadata says: the data is damaged"},
		"header": {func(m *storage.Manifest) { m.HeaderHash = storage.Sum(nil) },
			"tiny.safetensors: the header's SHA-256 is not that of its metadata"},
		"version": {func(m *storage.Manifest) { m.Version = 2 },
			"tiny.safetensors: its metadata: format version 2; this program reads 1 to 1"},
		"shape":      {func(m *storage.Manifest) { m.Model[0].Shape = []int{2, 3} }, `tensor "weight" is F32[3 2]; its metadata says F32[2 3]`},
		"no tensor":  {func(m *storage.Manifest) { m.Model[0].Name = "x" }, `tensor "x": its metadata has it in this file, which has not`},
		"not listed": {func(m *storage.Manifest) { m.Model = m.Model[1:] }, `tensor "weight": its metadata does not list it`},
		"no state":   {func(m *storage.Manifest) { m.Optimizer = nil }, `tensor "optimizer.state.weight.exp_avg": its metadata does not list it`},
		"twice":      {func(m *storage.Manifest) { m.Model = append(m.Model, m.Model[0]) }, "which has not"},
		"pieces":     {func(m *storage.Manifest) { m.Model[0].Pieces = nil }, "the boxes have 0 of 6 elements"},
	} {
		path, state := tinyFile(t)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, forge(t, text, c.change), 0o666))
		_, err = LoadFile(t.Context(), path, state(), LoadConfig{})
		require.ErrorContains(t, err, c.says, name)
	}
}

// forge changes a file's manifest and updates its hash.
func forge(t *testing.T, text []byte, change func(m *storage.Manifest)) []byte {
	t.Helper()
	h, err := safetensors.Read("x", bytesAt(text), int64(len(text)))
	require.NoError(t, err)
	m, err := storage.DecodeManifest([]byte(h.Metadata[storage.MetadataName]))
	require.NoError(t, err)
	change(m)
	body, err := m.Encode()
	require.NoError(t, err)
	data := text[h.Size:]
	h.Metadata[storage.MetadataName] = string(body)
	return append(h.Encode(), data...)
}

// bytesAt reads memory as a file.
type bytesAt []byte

func (b bytesAt) ReadAt(p []byte, off int64) (int, error) { return copy(p, b[off:]), nil }

// TestFileRefuses: parameters that are sharded over ranks cannot be saved by one rank.
func TestFileRefuses(t *testing.T) {
	for _, name := range []string{"fsdp2", "tp2"} {
		l := layouts[name]
		onRanks(t, l.ranks, func(g *dist.Group) error {
			path := filepath.Join(t.TempDir(), "a.safetensors")
			st := newState(t, g, l, 1)
			st.Files = nil
			err := SaveFile(t.Context(), path, *st)
			require.ErrorContains(t, err, "ckpt: saving "+path+": ranks hold tok.weight together, and this one ")
			_, loadErr := LoadFile(t.Context(), path, st, LoadConfig{})
			require.ErrorContains(t, loadErr, "LoadFile is for one rank that holds all; use a Saver and Load")
			require.NoFileExists(t, path)
			return nil
		})
	}
}
