package inspect

import (
	"encoding/json"
	"errors"
	"path/filepath"

	"github.com/ringo-ml/ringo/ckpt/internal/storage"
	"github.com/ringo-ml/ringo/ckpt/safetensors"
	"github.com/ringo-ml/ringo/ckpt/torch"
)

// torchFile is a PyTorch tensor as a file that contains only its elements.
type torchFile struct{ *torch.Tensor }

func (f torchFile) Size() (int64, error) { return f.Bytes(), nil }

func (torchFile) WriteAt([]byte, int64) (int, error) { return 0, errors.ErrUnsupported }

func (torchFile) Sync() error { return errors.ErrUnsupported }

func (torchFile) Close() error { return nil }

// torchFiles closes the PyTorch checkpoint after the last tensor.
type torchFiles struct {
	torchFile
	c *torch.Checkpoint
}

func (f torchFiles) Close() error { return f.c.Close() }

// openTorch opens a PyTorch checkpoint as a checkpoint without hashes.
func openTorch(path string, config ConvertConfig) (*storage.Reader, error) {
	c, err := torch.Open(path)
	if err != nil {
		return nil, err
	}
	p, err := c.Parts(config.ModelOnly)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	s := storage.NewReader(nil, path)
	s.Manifest, s.Files = &storage.Manifest{}, map[string]*storage.File{"": {Content: torchFiles{c: c}}}
	for _, x := range p.Model {
		addTorch(s, true, x)
	}
	if o := p.Optimizer; o != nil {
		s.Manifest.Step = o.Steps
		s.Manifest.Optimizer = &storage.OptimizerEntry{Steps: o.Steps, LR: o.LR, Counts: o.Counts}
		for _, x := range o.Tensors {
			addTorch(s, false, x)
		}
	}
	if len(p.Extra) > 0 {
		text, err := json.Marshal(p.Extra)
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		s.Manifest.Extra = map[string]json.RawMessage{"torch": text}
	}
	if config.LeftOut != nil && len(p.LeftOut) > 0 {
		config.LeftOut(p.LeftOut)
	}
	return s, nil
}

func addTorch(s *storage.Reader, model bool, x torch.Named) {
	f := &storage.File{Name: filepath.Base(s.Path), Content: torchFile{x.Tensor}, Header: &safetensors.Header{}}
	s.Add(model, f, safetensors.Tensor{Name: x.Name, DType: x.DType, Shape: x.Shape, End: x.Bytes()})
}
