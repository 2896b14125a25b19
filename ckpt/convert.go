package ckpt

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/ringo-ml/ringo/ckpt/safetensors"
	"github.com/ringo-ml/ringo/ckpt/torch"
	"github.com/ringo-ml/ringo/tensor"
)

// ConvertConfig changes Convert.
type ConvertConfig struct {
	// DType is what the model's floats become; nil: what they are. The optimizer's state keeps its types.
	DType *tensor.DType
	// FileBytes is the size at which a new file begins; 0: all in one file.
	FileBytes int64
	// ModelOnly leaves the optimizer out.
	ModelOnly bool
	// LeftOut is told what of a checkpoint of PyTorch's has no place in the new one, such as "ema: 12 tensors"; nil: nobody.
	LeftOut func(what []string)
	// Progress is as in VerifyConfig.
	Progress func(done, total int64)
}

// Convert writes a checkpoint (as Load takes) anew: in one file or several, in another type, with hashes where there were
// none. to must not exist; it is complete or absent, like what Save writes. The hashes of the source are verified. Types
// are converted as Tensor.Cast does, with one rounding. Small files beside the tensors come along: State.Files, or what folders of
// Hugging Face's form have for settings and vocabularies.
//
// It also takes PyTorch's checkpoints (package torch): a file of torch.save, named .pt, .pth, .bin or .ckpt, or a folder of
// torch.distributed.checkpoint. Load resumes from the result: it has the moments, step counts and learning rate of AdamW,
// Adam or SGD. The step is that of the parameter with the most; SGD counts none, and gets 1 where there is momentum.
// What else the checkpoint says in numbers and texts, param_groups included, is the extra state "torch".
func Convert(ctx context.Context, from, to string, c ConvertConfig) error {
	if err := convert(ctx, disk{}, from, to, c); err != nil {
		return fmt.Errorf("ckpt: converting %s: %w", from, err)
	}
	return nil
}

func convert(ctx context.Context, fsys fileSystem, from, to string, c ConvertConfig) error {
	if c.DType != nil && !c.DType.IsFloat() {
		return fmt.Errorf("%v is not a floating-point type", *c.DType)
	}
	src, leftOut, err := openAny(fsys, from, c)
	if err != nil {
		return err
	}
	defer src.Close() // only read
	if c.LeftOut != nil && len(leftOut) > 0 {
		c.LeftOut(leftOut)
	}
	if _, err := os.Lstat(to); err == nil {
		return fmt.Errorf("%s exists already", to)
	}
	if strings.HasSuffix(to, fileSuffix) {
		return fmt.Errorf("%s is to be a folder, and a name that ends in %s is that of a file: choose another name", to, fileSuffix)
	}
	p, err := convertPlan(src, c)
	if err != nil {
		return err
	}
	tmp := filepath.Join(filepath.Dir(to), tmpPrefix+filepath.Base(to)+"-"+rand.Text()[:8])
	if err := fsys.Mkdir(tmp); err != nil {
		return err
	}
	err = p.create(fsys, tmp)
	if err == nil {
		err = p.copy(ctx, fsys, src, tmp, c.Progress)
	}
	if err == nil {
		err = p.commit(fsys, tmp, to)
	}
	if err != nil {
		return errors.Join(err, fsys.RemoveAll(tmp))
	}
	return nil
}

// openAny opens a checkpoint of this package or of PyTorch.
func openAny(fsys fileSystem, from string, c ConvertConfig) (*storageReader, []string, error) {
	if torch.Is(from) {
		return openTorch(from, c.ModelOnly)
	}
	src, err := open(fsys, from)
	return src, nil, err
}

// convertPlan plans one piece for every tensor.
func convertPlan(src *storageReader, c ConvertConfig) (*plan, error) {
	limit := c.FileBytes
	if limit <= 0 {
		limit = 1 << 62
	}
	p := &plan{at: map[string]place{}, man: manifest{Version: formatVersion, Ranks: 1}}
	beside, err := src.besides()
	if err != nil {
		return nil, err
	}
	p.setBeside(beside)
	entries := func(list []*stored) (out []tensorEntry) {
		for _, x := range list {
			d := x.DType
			if x.model && c.DType != nil && isFloat(d) {
				d = dtypes[*c.DType]
			}
			out = append(out, tensorEntry{Name: x.Name, DType: d, Shape: x.Shape, Transposed: x.transposed, TP: x.rule, Expert: x.expert, Pieces: []piece{{}}})
		}
		return out
	}
	if p.man.Model, err = p.layOut("model", entries(src.model), limit); err != nil || src.man == nil {
		return p, err
	}
	p.man.Step, p.man.Random, p.man.Extra, p.man.Base = src.man.Step, src.man.Random, src.man.Extra, src.man.Base
	if o := src.man.Optimizer; o != nil && !c.ModelOnly {
		p.man.Optimizer = &optimizerEntry{Steps: o.Steps, LR: o.LR, Scaler: o.Scaler, Counts: o.Counts}
		p.man.Optimizer.Tensors, err = p.layOut("optimizer", entries(src.opt), limit)
	}
	return p, err
}

// copy copies all tensors, a few at a time, and notes their hashes.
func (p *plan) copy(ctx context.Context, fsys fileSystem, src *storageReader, dir string, progress func(done, total int64)) error {
	files := make([]file, len(p.files))
	for i, f := range p.files {
		var err error
		if files[i], err = fsys.Open(filepath.Join(dir, f.name), true); err != nil {
			return errors.Join(err, closeAll(files[:i]))
		}
	}
	type job struct {
		x    *stored
		e    *tensorEntry
		hash *string
	}
	var jobs []job
	total := int64(0)
	p.eachPiece(func(model bool, e *tensorEntry, k int) {
		s := src.tensors[itemKey(model, e.Name)]
		jobs = append(jobs, job{s, e, &e.Pieces[k].SHA256})
		total += s.End - s.Start
	})
	var done atomic.Int64
	err := parallel(len(jobs), func(i int) error {
		j := jobs[i]
		at := p.at[itemKey(j.x.model, j.e.Name)]
		var err error
		*j.hash, err = j.x.copyTo(ctx, files[at.file], at.offset, j.e.DType, func(n int) {
			if k := done.Add(int64(n)); progress != nil {
				progress(k, total)
			}
		})
		return err
	})
	for _, f := range files {
		if err == nil {
			err = f.Sync()
		}
	}
	return errors.Join(err, closeAll(files))
}

// copyTo writes a tensor as another type and returns the hash of what it wrote.
func (x *stored) copyTo(ctx context.Context, f file, off int64, d safetensors.DType, progress func(n int)) (string, error) {
	if len(x.pieces) > 0 { // they may be cut in another order
		if err := x.scan(ctx, func([]byte) {}); err != nil {
			return "", err
		}
	}
	cast := func(b []byte) []byte { return b }
	if d != x.DType {
		from, _ := dtypeOf(x.DType)
		to, _ := dtypeOf(d)
		c := newCaster(from, to)
		defer c.close()
		cast = c.cast
	}
	h := sha256.New()
	err := x.stream(ctx, wholePart(x.Shape), func(b []byte) error {
		progress(len(b))
		out := cast(b)
		h.Write(out)
		_, err := f.WriteAt(out, off)
		off += int64(len(out))
		return err
	})
	return hex.EncodeToString(h.Sum(nil)), err
}
