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
	// DType is the new type of the model's floating-point tensors; nil keeps their types. The optimizer's state is not
	// converted.
	DType *tensor.DType
	// FileBytes is the size of a file, in bytes, at which a new one begins; 0 means one file.
	FileBytes int64
	// ModelOnly leaves the optimizer out.
	ModelOnly bool
	// LeftOut, if not nil, is called with what a PyTorch checkpoint contains and the new one cannot, such as "ema: 12
	// tensors".
	LeftOut func(what []string)
	// Progress is as in VerifyConfig.
	Progress func(done, total int64)
}

// Convert writes a copy of a checkpoint (any that Load reads) to the folder to. The copy has hashes, and may have
// another number of files or another type. The folder must not exist; it is complete or absent, as after Save. Convert
// verifies the hashes of the source. It converts types as Tensor.Cast does, with one rounding. It also copies small
// files: State.Files, or the settings and vocabularies in a Hugging Face folder.
//
// It also reads PyTorch's checkpoints (package torch): a file of torch.save, named .pt, .pth, .bin or .ckpt, or a
// folder of torch.distributed.checkpoint. Load can resume from the result, which has the moments, step counts and
// learning rate of AdamW, Adam or SGD. Step is the largest step count of any parameter. SGD counts no steps; its
// parameters with momentum get a count of 1. Other numbers and texts of the checkpoint, and param_groups, become the
// extra state "torch".
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
	defer src.Close() // opened for reading only
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
		err = copyAll(ctx, fsys, p, src, tmp, c.Progress)
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
func convertPlan(src *storageReader, c ConvertConfig) (*draft, error) {
	limit := c.FileBytes
	if limit <= 0 {
		limit = 1 << 62
	}
	p := newDraft(1)
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

// copyAll copies all tensors, several at a time, and stores their hashes in the plan.
func copyAll(ctx context.Context, fsys fileSystem, p *draft, src *storageReader, dir string, progress func(done, total int64)) error {
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
		*j.hash, err = copyTo(ctx, j.x, files[at.file], at.offset, j.e.DType, func(n int) {
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

// copyTo writes a tensor with the type d to a file at off, and returns the SHA-256 of the written bytes.
func copyTo(ctx context.Context, x *stored, f file, off int64, d safetensors.DType, progress func(n int)) (string, error) {
	if len(x.pieces) > 0 { // the pieces may not be in the order of the file
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
