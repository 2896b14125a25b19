package ckpt

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"

	"github.com/ringo-ml/ringo/ckpt/safetensors"
	"github.com/ringo-ml/ringo/nn"
)

const (
	// fileSuffix ends the name of every safetensors file.
	fileSuffix = ".safetensors"

	// optimizerPrefix begins the names of the optimizer's tensors in a file that has the parameters too. The rest of
	// the name is as in PyTorch's torch.distributed.checkpoint: optimizer.state.0.weight.exp_avg.
	optimizerPrefix = "optimizer.state."

	// metadataName is the key of the manifest in the file's metadata.
	metadataName = "ringo"
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
	if err := saveFile(ctx, disk{}, path, st); err != nil {
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
		r, err = load(ctx, nil, disk{}, path, st, c)
	}
	if err != nil {
		return r, fmt.Errorf("ckpt: loading %s: %w", path, err)
	}
	return r, nil
}

// mustBeWhole returns an error if path does not name a file, or if this rank does not hold all elements of the
// parameters.
func mustBeWhole(function, path string, params nn.Params) error {
	if !strings.HasSuffix(path, fileSuffix) {
		return fmt.Errorf("the name of the file must end in %s", fileSuffix)
	}
	for _, p := range params {
		if p.Local.IsZero() {
			continue // newPlanned reports it
		}
		held, err := heldPart(p.Global(), p.Shard, p.Local.Len())
		if err != nil {
			return fmt.Errorf("%s: %w", p.Name(), err)
		}
		if !held.whole() {
			return fmt.Errorf("ranks hold %s together, and this one %d of its %d elements: %s is for one rank that holds all; use a Saver and Load",
				p.Name(), held.len(), product(p.Global()), function)
		}
	}
	return nil
}

func saveFile(ctx context.Context, fsys fileSystem, path string, st State) error {
	if err := mustBeWhole("SaveFile", path, st.Params); err != nil {
		return err
	}
	if len(st.Files) > 0 {
		return errors.New("State.Files are for a folder: write them yourself, or use a Saver")
	}
	w, err := newFile(fsys, st)
	if err != nil {
		return err
	}
	dir, name := filepath.Dir(path), filepath.Base(path)
	unlock, alone, err := lock(fsys, dir, "-"+name)
	if err != nil {
		return err
	}
	defer unlock()
	if alone {
		if err := removeStaleFile(fsys, dir, name); err != nil {
			return err
		}
	}
	tmp := filepath.Join(dir, tmpPrefix+name+"-"+rand.Text()[:8])
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
func newFile(fsys fileSystem, st State) (*writer, error) {
	o := st.optimizer()
	mine, err := newPlanned(&st, &o)
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
	if err := errors.Join(p.setState([]summary{c}, nil), p.joinFiles(), mine.assign(todo[0])); err != nil {
		return nil, err
	}
	w := &writer{Saver: &Saver{fs: fsys}, planned: mine}
	for _, j := range w.jobs {
		at := p.at[j.item.key()]
		j.file, j.offset = at.file, at.offset
	}
	return w, nil
}

// joinFiles puts all tensors of a plan into one file. The hashes in its header are zeros: only their length is known
// now.
func (p *draft) joinFiles() error {
	p.eachPiece(func(_ bool, t *tensorEntry, k int) {
		t.File, t.Pieces[k].SHA256 = "", strings.Repeat("0", 2*sha256.Size)
	})
	bare, err := safetensors.New(p.singleTensors(), map[string]string{"format": "pt"})
	if err != nil {
		return err
	}
	p.man.Files, p.man.Header = nil, bareHash(bare)
	h, err := p.singleHeader()
	if err != nil {
		return err
	}
	p.files = []plannedFile{{size: h.Size + h.DataSize()}}
	at := map[string]place{}
	for _, t := range h.Tensors {
		at[t.Name] = place{0, h.Size + t.Start}
	}
	p.eachPiece(func(model bool, t *tensorEntry, _ int) {
		p.at[itemKey(model, t.Name)] = at[singleName(model, t.Name)]
	})
	return nil
}

// singleName is the name of a tensor in a file that also holds the optimizer's state.
func singleName(model bool, name string) string {
	if model {
		return name
	}
	return optimizerPrefix + name
}

// singleTensors lists the tensors of the file.
func (p *draft) singleTensors() (list []safetensors.Tensor) {
	p.eachPiece(func(model bool, t *tensorEntry, k int) {
		if k == 0 {
			list = append(list, safetensors.Tensor{Name: singleName(model, t.Name), DType: t.DType, Shape: t.Shape})
		}
	})
	return list
}

// singleHeader returns the header of the file, with the manifest in its metadata.
func (p *draft) singleHeader() (*safetensors.Header, error) {
	text, err := p.man.encode()
	if err != nil {
		return nil, err
	}
	return safetensors.New(p.singleTensors(), map[string]string{"format": "pt", metadataName: string(text)})
}

// bareHash is the SHA-256 of a header without its manifest.
func bareHash(h *safetensors.Header) string {
	bare := *h
	bare.Metadata = maps.Clone(h.Metadata)
	delete(bare.Metadata, metadataName)
	return sum(bare.Encode())
}

// writeTo writes the file and flushes it.
func (w *writer) writeTo(ctx context.Context, name string) error {
	f, err := w.fs.Create(name, w.global.files[0].size)
	if err != nil {
		return err
	}
	err = w.writeJobs(ctx, []file{f})
	if err == nil {
		err = w.finishHeader(f)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// finishHeader writes the header when all hashes are known.
func (w *writer) finishHeader(f file) error {
	if err := w.global.setHashes([][]byte{w.verdict().Hashes}); err != nil {
		return err
	}
	h, err := w.global.singleHeader()
	if err == nil {
		_, err = f.WriteAt(h.Encode(), 0)
	}
	return err
}

// removeStaleFile removes temporary files that crashed saves of a file left. Their names end in eight random
// characters.
func removeStaleFile(fsys fileSystem, dir, name string) error {
	names, err := fsys.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, left := range names {
		if rest, ok := strings.CutPrefix(left, tmpPrefix+name+"-"); ok && len(rest) == 8 {
			err = errors.Join(err, fsys.RemoveAll(filepath.Join(dir, left)))
		}
	}
	return err
}

// readSingle reads one file, written by SaveFile or by another program.
func (s *storageReader) readSingle(name string) {
	f := s.openFile(name)
	if f == nil {
		return
	}
	text, ours := f.header.Metadata[metadataName]
	if !ours {
		for key, value := range f.header.Metadata {
			if strings.HasPrefix(value, string(manifestHead)) {
				s.problem("%s: its metadata has a checkpoint of this package under %q, not %q: the file is damaged", name, key, metadataName)
				return
			}
		}
		s.addPlain(name)
		return
	}
	man, err := decodeManifest([]byte(text))
	if err != nil {
		s.problem("%s: %s: %w", name, s.list, err)
		return
	}
	s.man, s.manHash = man, sum([]byte(text))
	if bareHash(f.header) != man.Header {
		s.problem("%s: the header's SHA-256 is not that of %s: the file is damaged", name, s.list)
		return
	}
	for i := range man.Model {
		man.Model[i].File = name
	}
	if man.Optimizer != nil {
		for i := range man.Optimizer.Tensors {
			man.Optimizer.Tensors[i].File = name
		}
	}
	s.checkEntries()
}
