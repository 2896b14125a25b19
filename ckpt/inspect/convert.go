package inspect

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

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
// files: State.Files, or the settings and vocabularies in a Hugging Face folder, with those of sentence-transformers'
// modules; tensors of a module are an error.
//
// It also reads PyTorch's checkpoints (package torch): a file of torch.save, named .pt, .pth, .bin or .ckpt, or a
// folder of torch.distributed.checkpoint. Load can resume from the result, which has the moments, step counts and
// learning rate of AdamW, Adam or SGD. Step is the largest step count of any parameter. SGD counts no steps; its
// parameters with momentum get a count of 1. Other numbers and texts of the checkpoint, and param_groups, become the
// extra state "torch".
func Convert(ctx context.Context, from, to string, c ConvertConfig) error {
	if err := convert(ctx, from, to, c); err != nil {
		return fmt.Errorf("ckpt: converting %s: %w", from, err)
	}
	return nil
}

func convert(ctx context.Context, from, to string, c ConvertConfig) error {
	if c.DType != nil && !c.DType.IsFloat() {
		return fmt.Errorf("%v is not a floating-point type", *c.DType)
	}
	open := func() (*storage.Reader, error) { return storage.Open(disk.OS{}, from) }
	if torch.Is(from) {
		open = func() (*storage.Reader, error) { return openTorch(from, c) }
	}
	src, err := open()
	if err != nil {
		return err
	}
	defer src.Close() // opened for reading only
	if _, err := os.Lstat(to); err == nil {
		return fmt.Errorf("%s exists already", to)
	}
	if strings.HasSuffix(to, storage.FileSuffix) {
		return fmt.Errorf("%s is to be a folder, and a name that ends in %s is that of a file: choose another name", to, storage.FileSuffix)
	}
	if inside, err := within(from, to); inside || err != nil {
		return cmp.Or(err, fmt.Errorf("%s is inside of it, and would be a foreign file there: choose another folder", to))
	}
	p, err := convertPlan(src, c)
	if err != nil {
		return err
	}
	fsys, tmp := disk.OS{}, filepath.Join(filepath.Dir(to), storage.TmpName(filepath.Base(to)))
	if err := fsys.Mkdir(tmp); err != nil {
		return err
	}
	err = p.Create(fsys, tmp)
	if err == nil {
		err = disk.Fill(fsys, tmp, p.Names(), nil, func(files []disk.File) error { return copyAll(ctx, p, src, files, c.Progress) })
	}
	if err == nil {
		err = p.Commit(fsys, tmp, to)
	}
	if err != nil {
		return errors.Join(err, fsys.RemoveAll(tmp))
	}
	return nil
}

// within reports whether the new folder to would be in the folder from.
func within(from, to string) (bool, error) {
	parent, err := os.Stat(from)
	if err != nil || !parent.IsDir() {
		return false, err
	}
	to, err = filepath.Abs(to)
	if err != nil {
		return false, err
	}
	for dir := filepath.Dir(to); ; dir = filepath.Dir(dir) {
		if at, err := os.Stat(dir); err == nil && os.SameFile(parent, at) {
			return true, nil
		}
		if dir == filepath.Dir(dir) {
			return false, nil
		}
	}
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
	p.Beside, p.Manifest.Beside = beside, storage.Hashes(beside)
	entries := func(list []*storage.Tensor) (out []storage.TensorEntry) {
		for _, x := range list {
			d := x.DType
			if x.Model && c.DType != nil && isFloat(d) {
				d = storage.DTypes[*c.DType]
			}
			out = append(out, storage.TensorEntry{Name: x.Name, DType: d, Shape: x.Shape, Transposed: x.Transposed, TP: x.Rule, Expert: x.Expert,
				Pieces: []storage.PieceEntry{{}}})
		}
		return out
	}
	if p.Manifest.Model, err = p.LayOut("model", entries(src.Model), limit); err != nil || src.Manifest == nil {
		return p, err
	}
	p.Manifest.Training = src.Manifest.Training
	if c.ModelOnly {
		p.Manifest.Optimizer = nil
	}
	if o := p.Manifest.Optimizer; o != nil {
		o.Tensors, err = p.LayOut("optimizer", entries(src.Optimizer), limit)
	}
	return p, err
}

// copyAll copies all tensors, several at a time, and stores their hashes in the plan.
func copyAll(ctx context.Context, p *storage.Draft, src *storage.Reader, files []disk.File, progress func(done, total int64)) error {
	var entries []*storage.TensorEntry
	done := counter{report: progress}
	all := src.Each() // in the order of the entries
	for _, e := range p.Manifest.Entries() {
		done.total += all[len(entries)].End - all[len(entries)].Start
		entries = append(entries, e)
	}
	return storage.Parallel(len(entries), func(i int) (err error) {
		at := p.At[storage.ItemKey(all[i].Model, entries[i].Name)]
		entries[i].Pieces[0].SHA256, err = copyTo(ctx, all[i], files[at.File], at.Offset, entries[i].DType, done.add)
		return err
	})
}

// copyTo writes a tensor with the type d to a file at off, and returns the SHA-256 of the written bytes.
func copyTo(ctx context.Context, x *storage.Tensor, f disk.File, off int64, d safetensors.DType, progress func(n int)) (string, error) {
	if len(x.Pieces) > 0 { // the pieces may not be in the order of the file
		if err := x.Scan(ctx, func([]byte) {}); err != nil {
			return "", err
		}
	}
	cast := func(b []byte) ([]byte, error) { return b, nil }
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
		out, err := cast(b)
		if err != nil {
			return err // with the tensor's name, from Stream
		}
		h.Write(out)
		_, err = f.WriteAt(out, off)
		off += int64(len(out))
		return err
	})
	return hex.EncodeToString(h.Sum(nil)), err
}
