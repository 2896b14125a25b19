package inspect

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

	"github.com/ringo-ml/ringo/ckpt/internal/disk"
	"github.com/ringo-ml/ringo/ckpt/internal/shard"
	"github.com/ringo-ml/ringo/ckpt/internal/storage"
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
	if err := convert(ctx, disk.OS{}, from, to, c); err != nil {
		return fmt.Errorf("ckpt: converting %s: %w", from, err)
	}
	return nil
}

func convert(ctx context.Context, fsys disk.FS, from, to string, c ConvertConfig) error {
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
	if strings.HasSuffix(to, storage.FileSuffix) {
		return fmt.Errorf("%s is to be a folder, and a name that ends in %s is that of a file: choose another name", to, storage.FileSuffix)
	}
	p, err := convertPlan(src, c)
	if err != nil {
		return err
	}
	tmp := filepath.Join(filepath.Dir(to), storage.TmpPrefix+filepath.Base(to)+"-"+rand.Text()[:8])
	if err := fsys.Mkdir(tmp); err != nil {
		return err
	}
	err = p.Create(fsys, tmp)
	if err == nil {
		err = copyAll(ctx, fsys, p, src, tmp, c.Progress)
	}
	if err == nil {
		err = p.Commit(fsys, tmp, to)
	}
	if err != nil {
		return errors.Join(err, fsys.RemoveAll(tmp))
	}
	return nil
}

// openAny opens a checkpoint of this package or of PyTorch.
func openAny(fsys disk.FS, from string, c ConvertConfig) (*storage.Reader, []string, error) {
	if torch.Is(from) {
		return openTorch(from, c.ModelOnly)
	}
	src, err := storage.Open(fsys, from)
	return src, nil, err
}

// convertPlan plans one piece for every tensor.
func convertPlan(src *storage.Reader, c ConvertConfig) (*storage.Draft, error) {
	limit := c.FileBytes
	if limit <= 0 {
		limit = 1 << 62
	}
	p := storage.NewDraft(1)
	beside, err := src.Besides()
	if err != nil {
		return nil, err
	}
	p.SetBeside(beside)
	entries := func(list []*storage.Tensor) (out []storage.TensorEntry) {
		for _, x := range list {
			d := x.DType
			if x.Model && c.DType != nil && isFloat(d) {
				d = storage.DTypes[*c.DType]
			}
			out = append(out, storage.TensorEntry{Name: x.Name, DType: d, Shape: x.Shape, Transposed: x.Transposed, TP: x.Rule, Expert: x.Expert, Pieces: []storage.PieceEntry{{}}})
		}
		return out
	}
	if p.Manifest.Model, err = p.LayOut("model", entries(src.Model), limit); err != nil || src.Manifest == nil {
		return p, err
	}
	p.Manifest.Step, p.Manifest.Random, p.Manifest.Extra, p.Manifest.Base = src.Manifest.Step, src.Manifest.Random, src.Manifest.Extra, src.Manifest.Base
	if o := src.Manifest.Optimizer; o != nil && !c.ModelOnly {
		p.Manifest.Optimizer = &storage.OptimizerEntry{Steps: o.Steps, LR: o.LR, Scaler: o.Scaler, Counts: o.Counts}
		p.Manifest.Optimizer.Tensors, err = p.LayOut("optimizer", entries(src.Optimizer), limit)
	}
	return p, err
}

// copyAll copies all tensors, several at a time, and stores their hashes in the plan.
func copyAll(ctx context.Context, fsys disk.FS, p *storage.Draft, src *storage.Reader, dir string, progress func(done, total int64)) error {
	files := make([]disk.File, len(p.Files))
	for i, f := range p.Files {
		var err error
		if files[i], err = fsys.Open(filepath.Join(dir, f.Name), true); err != nil {
			return errors.Join(err, disk.CloseAll(files[:i]))
		}
	}
	type job struct {
		x    *storage.Tensor
		e    *storage.TensorEntry
		hash *string
	}
	var jobs []job
	total := int64(0)
	p.EachPiece(func(model bool, e *storage.TensorEntry, k int) {
		s := src.Tensors[storage.ItemKey(model, e.Name)]
		jobs = append(jobs, job{s, e, &e.Pieces[k].SHA256})
		total += s.End - s.Start
	})
	var done atomic.Int64
	err := storage.Parallel(len(jobs), func(i int) error {
		j := jobs[i]
		at := p.At[storage.ItemKey(j.x.Model, j.e.Name)]
		var err error
		*j.hash, err = copyTo(ctx, j.x, files[at.File], at.Offset, j.e.DType, func(n int) {
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
	return errors.Join(err, disk.CloseAll(files))
}

// copyTo writes a tensor with the type d to a file at off, and returns the SHA-256 of the written bytes.
func copyTo(ctx context.Context, x *storage.Tensor, f disk.File, off int64, d safetensors.DType, progress func(n int)) (string, error) {
	if len(x.Pieces) > 0 { // the pieces may not be in the order of the file
		if err := x.Scan(ctx, func([]byte) {}); err != nil {
			return "", err
		}
	}
	cast := func(b []byte) []byte { return b }
	if d != x.DType {
		from, _ := storage.DTypeOf(x.DType)
		to, _ := storage.DTypeOf(d)
		c := storage.NewCaster(from, to)
		defer c.Close()
		cast = c.Cast
	}
	h := sha256.New()
	err := x.Stream(ctx, shard.WholePart(x.Shape), func(b []byte) error {
		progress(len(b))
		out := cast(b)
		h.Write(out)
		_, err := f.WriteAt(out, off)
		off += int64(len(out))
		return err
	})
	return hex.EncodeToString(h.Sum(nil)), err
}
