package ckpt

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/ringo-ml/ringo/ckpt/internal/disk"
	"github.com/ringo-ml/ringo/ckpt/internal/shard"
	"github.com/ringo-ml/ringo/ckpt/internal/storage"
	"github.com/ringo-ml/ringo/nn"
)

// SaveFile writes all of st to one safetensors file, as torch.save does for users of PyTorch. The path must end in
// .safetensors. Parameters and buffers have the names of a PyTorch state_dict, and the optimizer's tensors have names
// such as optimizer.state.0.weight.exp_avg. Everything else (step, learning rate, extra state, hashes) is in the file's
// metadata. LoadFile, Load and the other functions that take a checkpoint can read the file.
//
// It needs no group. If ranks hold replicas, as with ddp, call it on rank 0. It returns an error for parameters that
// are sharded over ranks; use a Saver for them. An existing file is replaced when the new one is complete and flushed
// to the disk. After an error or a crash the old file is unchanged, with one exception: if flushing the directory fails
// at the end, the complete new file may be there.
func SaveFile(ctx context.Context, path string, st State) error {
	if err := saveFile(ctx, disk.OS{}, path, st); err != nil {
		return fmt.Errorf("ckpt: saving %s: %w", path, err)
	}
	return nil
}

// LoadFile fills the tensors of st from a file that SaveFile wrote, or from another safetensors file, which has no
// optimizer state. It is Load for one rank without a group; c and the report mean the same, but Strategy is ignored.
// Ranks that train together must call Load, which checks that all of them read the same checkpoint.
func LoadFile(ctx context.Context, path string, st *State, c LoadConfig) (*Report, error) {
	if st == nil {
		return nil, fmt.Errorf("ckpt: loading %s: the State is nil", path)
	}
	err := mustBeWhole("LoadFile", path, st.Params)
	var r *Report
	if err == nil {
		c.Strategy = Sharded
		r, err = load(ctx, nil, disk.OS{}, path, st, c)
	}
	if err != nil {
		return r, fmt.Errorf("ckpt: loading %s: %w", path, err)
	}
	return r, nil
}

// mustBeWhole returns an error if path does not name a file, or if this rank does not hold all elements of the
// parameters.
func mustBeWhole(function, path string, params nn.Params) error {
	if !strings.HasSuffix(path, storage.FileSuffix) {
		return fmt.Errorf("the name of the file must end in %s", storage.FileSuffix)
	}
	for _, p := range params {
		if p.Local.IsZero() {
			continue // newRankPlan reports it
		}
		held, err := shard.Of(p.Placement(), p.Local.Len())
		if err != nil {
			return fmt.Errorf("%s: %w", p.Name(), err)
		}
		if !held.Whole() {
			return fmt.Errorf("ranks hold %s together, and this one %d of its %d elements: %s is for one rank that holds all; use a Saver and Load",
				p.Name(), held.Len(), shard.Product(p.Global()), function)
		}
	}
	return nil
}

func saveFile(ctx context.Context, fsys disk.FS, path string, st State) error {
	if err := mustBeWhole("SaveFile", path, st.Params); err != nil {
		return err
	}
	if len(st.Files) > 0 {
		return errors.New("State.Files are for a folder: write them yourself, or use a Saver")
	}
	st.warn(map[string]bool{})
	w, err := newFile(fsys, st)
	if err != nil {
		return err
	}
	dir, name := filepath.Dir(path), filepath.Base(path)
	unlock, alone, err := disk.Lock(fsys, dir, "-"+name)
	if err != nil {
		return err
	}
	defer unlock()
	if alone {
		if err := storage.RemoveStale(fsys, dir, name); err != nil {
			return err
		}
	}
	tmp := filepath.Join(dir, storage.TmpName(name))
	err = w.writeTo(ctx, tmp)
	if err == nil {
		err = fsys.Replace(tmp, path)
	}
	if err != nil {
		return errors.Join(err, fsys.RemoveAll(tmp))
	}
	return fsys.SyncDir(dir)
}

// newFile plans a save of a State to one file.
func newFile(fsys disk.FS, st State) (*writer, error) {
	o := st.optimizer()
	mine, err := newRankPlan(&st, &o)
	if err != nil {
		return nil, err
	}
	c, err := st.summary(&o)
	if err != nil {
		return nil, err
	}
	p, todo, err := newPlan([]localPlan{mine.local(&st)}, st.TP, 1<<62)
	if err != nil {
		return nil, err
	}
	mine.global = p
	if err := errors.Join(p.setState([]summary{c}, nil), p.JoinFiles(), mine.assign(todo[0])); err != nil {
		return nil, err
	}
	mine.check(&st)
	w := &writer{Saver: &Saver{fs: fsys}, rankPlan: mine}
	for _, j := range w.jobs {
		at := p.At[j.item.key()]
		j.file, j.offset = at.File, at.Offset
	}
	return w, nil
}

// writeTo writes the file and flushes it.
func (w *writer) writeTo(ctx context.Context, name string) error {
	f, err := w.fs.Create(name, w.global.Files[0].Size)
	if err != nil {
		return err
	}
	err = w.writeJobs(ctx, []disk.File{f})
	if err == nil {
		err = w.finishHeader(f)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// finishHeader writes the header when all hashes are known.
func (w *writer) finishHeader(f disk.File) error {
	if err := w.global.SetHashes([][]byte{w.verdict().Hashes}); err != nil {
		return err
	}
	h, err := w.global.SingleHeader()
	if err == nil {
		_, err = f.WriteAt(h.Encode(), 0)
	}
	return err
}
