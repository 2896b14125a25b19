package gpt

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/ringo-ml/ringo/ckpt/safetensors"
	"github.com/ringo-ml/ringo/internal/bounded"
)

const (
	modelName  = "model.safetensors"
	indexName  = modelName + ".index.json"
	maxIndex   = 256 << 20
	indexBytes = 256 // of memory, for a tensor in the index
)

// ownHead reports whether the files in a folder have a head's weight other than the table of tokens. Then the model is not
// tied, whatever its config says. What is wrong with the files is for ckpt.Load to say.
func (k Kind) ownHead(dir string) bool {
	var index struct {
		Files map[string]string `json:"weight_map"`
	}
	text, err := bounded.ReadFile(filepath.Join(dir, indexName), maxIndex)
	if err == nil && bounded.JSON(text, indexBytes) == nil {
		_ = json.Unmarshal(text, &index) // without the index, the model is one file
	}
	find := func(name string) *section {
		file := modelName
		if index.Files != nil {
			file = index.Files[name]
		}
		return openSection(dir, file, name)
	}
	head := find(kinds[k].names["head"] + ".weight")
	if head == nil {
		return false
	}
	defer head.Close()
	for _, prefix := range []string{"", "transformer."} {
		if table := find(prefix + kinds[k].names["tok"] + ".weight"); table != nil {
			defer table.Close()
			return !head.equal(table)
		}
	}
	return false
}

// section is a tensor in an open file.
type section struct {
	*os.File
	safetensors.Tensor
	content io.Reader
}

// openSection returns nil if a file does not have the tensor.
func openSection(dir, file, name string) *section {
	if file == "" || filepath.Base(file) != file {
		return nil
	}
	f, size, err := bounded.Open(filepath.Join(dir, file))
	if err != nil {
		return nil
	}
	h, err := safetensors.Read(file, f, size)
	if err == nil {
		if i := slices.IndexFunc(h.Tensors, func(t safetensors.Tensor) bool { return t.Name == name }); i >= 0 {
			t := h.Tensors[i]
			return &section{f, t, io.NewSectionReader(f, h.Size+t.Start, t.End-t.Start)}
		}
	}
	_ = f.Close() // opened for reading only
	return nil
}

func (s *section) equal(to *section) bool {
	if s.DType != to.DType || !slices.Equal(s.Shape, to.Shape) {
		return false
	}
	a, b := make([]byte, 1<<20), make([]byte, 1<<20)
	for {
		n, err := io.ReadFull(s.content, a)
		m, _ := io.ReadFull(to.content, b)
		if n != m || !bytes.Equal(a[:n], b[:m]) {
			return false
		}
		if err != nil {
			return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		}
	}
}
