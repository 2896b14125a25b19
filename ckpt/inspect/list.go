package inspect

import (
	"fmt"

	"github.com/ringo-ml/ringo/ckpt/internal/disk"
	"github.com/ringo-ml/ringo/ckpt/internal/storage"
)

// Info describes a tensor of a checkpoint.
type Info struct {
	Name   string `json:"name"`
	Kind   string `json:"kind"` // model or optimizer
	DType  string `json:"dtype"`
	Shape  []int  `json:"shape"`
	File   string `json:"file"`
	Bytes  int64  `json:"bytes"`
	Shards int    `json:"shards"` // number of pieces, each with its own hash
}

// List returns the tensors of a checkpoint (any that Load reads) and its step, or 0 if the checkpoint has none. It does
// not read the data.
func List(path string) (step int, list []Info, err error) {
	src, err := storage.Open(disk.OS{}, path)
	if err != nil {
		return 0, nil, fmt.Errorf("ckpt: %w", err)
	}
	list = []Info{}
	for _, x := range src.Each() {
		kind := "optimizer"
		if x.Model {
			kind = "model"
		}
		list = append(list, Info{x.Name, kind, string(x.DType), x.Shape, x.File.Name, x.End - x.Start, len(x.Pieces)})
	}
	return src.Step(), list, src.Close()
}
