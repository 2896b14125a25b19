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
	// fileSuffix is what the name of a file of safetensors ends in.
	fileSuffix = ".safetensors"

	// optimizerPrefix is what names of the optimizer's state begin with in a file that has the parameters too. The rest is as in
	// PyTorch's torch.distributed.checkpoint: optimizer.state.0.weight.exp_avg.
	optimizerPrefix = "optimizer.state."

	// metadataName is the key of the manifest in the metadata of such a file.
	metadataName = "ringo"
)

// SaveFile writes all of st to one file of safetensors, whose name ends in .safetensors: what PyTorch's users do with torch.save.
// Parameters and buffers have their own names there, as in a state_dict of PyTorch, and the optimizer's state names such as
// optimizer.state.0.weight.exp_avg. What is no tensor (step, learning rate, extra state, hashes) is in the file's metadata. LoadFile
// and Load read it, and so does everything else that takes a checkpoint.
//
// It needs no group and no other rank: of replicas, as ddp has them, let rank 0 call it. Parameters that are cut over ranks are an
// error; a Saver saves those. A file that was there is replaced when the new one is complete and flushed to the disk; after an
// error, or a crash, it is there unchanged. (Only when the very last flush fails, of the name, the new file may be there, complete.)
func SaveFile(ctx context.Context, path string, st State) error {
	if err := saveFile(ctx, disk{}, path, st); err != nil {
		return fmt.Errorf("ckpt: saving %s: %w", path, err)
	}
	return nil
}

// LoadFile fills the tensors of st from a file that SaveFile wrote, or from another file of safetensors, which has no optimizer
// state. It is Load for one rank, without a group: c and the report are as there, but for Strategy, of which nothing depends.
// Ranks that train together use Load, which makes sure that all read the same.
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

// mustBeWhole refuses what is not one file, and not of one rank.
func mustBeWhole(function, path string, params nn.Params) error {
	if !strings.HasSuffix(path, fileSuffix) {
		return fmt.Errorf("the name of the file must end in %s", fileSuffix)
	}
	for _, p := range params {
		if p.Local.IsZero() {
			continue // items says so
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

// newFile plans one file for a State.
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

// joinFiles puts all tensors of a plan into one file. Its header has room for the hashes.
func (p *plan) joinFiles() error {
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

// singleName is the name of a tensor in a file that holds the optimizer's state too.
func singleName(model bool, name string) string {
	if model {
		return name
	}
	return optimizerPrefix + name
}

// singleTensors lists what the one file holds.
func (p *plan) singleTensors() (list []safetensors.Tensor) {
	p.eachPiece(func(model bool, t *tensorEntry, k int) {
		if k == 0 {
			list = append(list, safetensors.Tensor{Name: singleName(model, t.Name), DType: t.DType, Shape: t.Shape})
		}
	})
	return list
}

// singleHeader is the header of the one file, with the manifest in it.
func (p *plan) singleHeader() (*safetensors.Header, error) {
	text, err := p.man.encode()
	if err != nil {
		return nil, err
	}
	return safetensors.New(p.singleTensors(), map[string]string{"format": "pt", metadataName: string(text)})
}

// bareHash is the SHA-256 of a header without the manifest in it.
func bareHash(h *safetensors.Header) string {
	bare := *h
	bare.Metadata = maps.Clone(h.Metadata)
	delete(bare.Metadata, metadataName)
	return sum(bare.Encode())
}

// writeTo writes the one file and flushes it.
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

// finishHeader writes the header, now that all hashes are known.
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

// removeStaleFile removes what crashes have left of a file: its temporary name and eight characters.
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

// readSingle reads one file: of SaveFile, or of others.
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
