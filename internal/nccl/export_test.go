package nccl

import "github.com/ringo-ml/ringo/internal/cuda"

// Open opens a library at a path.
func Open(path string) (*Lib, error) {
	q := cuda.LibNCCL.Query(13)
	q.Env, q.Names, q.Wheels = "", []string{path}, nil
	return open(q)
}
