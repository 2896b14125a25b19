package nccl

import "github.com/ringo-ml/ringo/internal/dl"

// Open opens a library at a path.
func Open(path string) (*Lib, error) { return open(dl.Query{What: "NCCL", Names: []string{path}}) }
