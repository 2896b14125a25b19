package ckpt

import (
	"encoding/json"
	"errors"
	"path/filepath"

	"github.com/ringo-ml/ringo/ckpt/safetensors"
	"github.com/ringo-ml/ringo/ckpt/torch"
)

// torchFile is a tensor of PyTorch's as a file that has its elements alone.
type torchFile struct{ *torch.Tensor }

func (f torchFile) Size() (int64, error)             { return f.Bytes(), nil }
func (torchFile) WriteAt([]byte, int64) (int, error) { return 0, errors.ErrUnsupported }
func (torchFile) Sync() error                        { return errors.ErrUnsupported }
func (torchFile) Close() error                       { return nil }

// torchFiles is what is to be closed after the last tensor.
type torchFiles struct {
	torchFile
	c *torch.Checkpoint
}

func (f torchFiles) Close() error { return f.c.Close() }

// openTorch opens a checkpoint of PyTorch's as one of this package that has no hashes. It returns what has no place in it.
func openTorch(path string, modelOnly bool) (*storageReader, []string, error) {
	c, err := torch.Open(path)
	if err != nil {
		return nil, nil, err
	}
	p, err := c.Parts(modelOnly)
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	s := &storageReader{path: path, man: &manifest{}, tensors: map[string]*stored{}, files: map[string]*openedFile{"": {f: torchFiles{c: c}}}}
	for _, x := range p.Model {
		s.addTorch(true, x)
	}
	if o := p.Optimizer; o != nil {
		s.man.Step = o.Steps
		s.man.Optimizer = &optimizerEntry{Steps: o.Steps, LR: o.LR, Counts: o.Counts}
		for _, x := range o.Tensors {
			s.addTorch(false, x)
		}
	}
	if len(p.Extra) > 0 {
		text, err := json.Marshal(p.Extra)
		if err != nil {
			return nil, nil, errors.Join(err, c.Close())
		}
		s.man.Extra = map[string]json.RawMessage{"torch": text}
	}
	return s, p.LeftOut, nil
}

func (s *storageReader) addTorch(model bool, x torch.Named) {
	f := &openedFile{name: filepath.Base(s.path), f: torchFile{x.Tensor}, header: &safetensors.Header{}}
	s.add(model, f, safetensors.Tensor{Name: x.Name, DType: x.DType, Shape: x.Shape, End: x.Bytes()})
}
