package ckpt

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// VerifyConfig changes Verify.
type VerifyConfig struct {
	NaN    bool   // count NaN and infinite elements
	Layout string // such as "tp=2,fsdp=4": also read what every rank of such a job would; "": do not
	Rules  Rules  // of tensor parallelism, for tensors for which the checkpoint has none
	// Progress is told how many bytes of all are read, from several goroutines; nil: nobody.
	Progress func(done, total int64)
}

// Verdict is the result of Verify.
type Verdict struct {
	OK        bool        `json:"ok"`
	Path      string      `json:"path"`
	Step      int         `json:"step"`
	Tensors   int         `json:"tensors"`   // the optimizer's included
	Shards    int         `json:"shards"`    // pieces with a hash of their own
	Bytes     int64       `json:"bytes"`     // of tensor data
	Errors    []string    `json:"errors"`    // each names file, tensor and reason
	Unchecked []string    `json:"unchecked"` // what a folder without ringo.json cannot prove
	NaN       int64       `json:"nan"`       // elements, if asked for
	Inf       int64       `json:"inf"`
	Ranks     []RankBytes `json:"ranks,omitempty"` // of the layout
}

// RankBytes is what a rank of a layout reads, if fsdp cuts every tensor evenly.
type RankBytes struct {
	Rank  int    `json:"rank"`
	Place string `json:"place"` // such as "tp=1,fsdp=0"
	Bytes int64  `json:"bytes"`
}

// verifier is one Verify.
type verifier struct {
	c        VerifyConfig
	src      *storageReader
	v        *Verdict
	mu       sync.Mutex // of v.Errors
	done     atomic.Int64
	total    int64
	nan, inf atomic.Int64
}

// Verify reads a checkpoint (as Load takes) and finds out whether all of it is as it was written: files, names, hashes, and
// that every element is there once. A folder without ringo.json has no hashes; Verdict.Unchecked says what that means. It
// needs a few MiB of memory, however large the checkpoint is. The error is ctx's, or that of a wrong configuration;
// what is wrong with the checkpoint is in the Verdict.
func Verify(ctx context.Context, path string, c VerifyConfig) (*Verdict, error) {
	return verify(ctx, disk{}, path, c)
}

func verify(ctx context.Context, fsys fileSystem, path string, c VerifyConfig) (*Verdict, error) {
	mesh, err := parseLayout(c.Layout)
	if err != nil {
		return nil, fmt.Errorf("ckpt: %w", err)
	}
	src := examine(fsys, path)
	defer src.Close() // opened for reading only
	f := &verifier{c: c, src: src, v: &Verdict{Path: path, Errors: []string{}, Unchecked: []string{}}}
	for _, err := range src.problems {
		f.fail(err)
	}
	if src.man != nil {
		f.v.Step = src.man.Step
	}
	if err := f.unlisted(path); err != nil {
		f.fail(err)
	}
	all := src.each()
	for _, x := range all {
		f.v.Tensors++
		f.v.Shards += len(x.pieces)
		f.v.Bytes += x.End - x.Start
	}
	f.total = f.v.Bytes
	if mesh != nil {
		f.total *= 2
	}
	err = parallel(len(all), func(i int) error {
		if err := all[i].scan(ctx, f.look(all[i])); err != nil {
			f.fail(err)
		}
		return ctx.Err()
	})
	if err == nil && mesh != nil && len(f.v.Errors) == 0 {
		err = f.layout(ctx, mesh, all)
	}
	if err != nil {
		return nil, fmt.Errorf("ckpt: %w", err)
	}
	f.v.NaN, f.v.Inf = f.nan.Load(), f.inf.Load()
	if src.man == nil {
		f.v.Unchecked = append(f.v.Unchecked, "the values of all tensors: there is no ringo.json with hashes",
			"whether tensors are missing that no list names")
	}
	slices.Sort(f.v.Errors)
	f.v.OK = len(f.v.Errors) == 0
	return f.v, nil
}

func (f *verifier) fail(err error) {
	f.mu.Lock()
	f.v.Errors = append(f.v.Errors, err.Error())
	f.mu.Unlock()
}

func (f *verifier) progress(n int) {
	if done := f.done.Add(int64(n)); f.c.Progress != nil {
		f.c.Progress(done, f.total)
	}
}

// look returns what is done with the bytes of a tensor besides hashing.
func (f *verifier) look(x *stored) func(b []byte) {
	if !f.c.NaN || !isFloat(x.DType) {
		return func(b []byte) { f.progress(len(b)) }
	}
	var values []float64
	return func(b []byte) {
		f.progress(len(b))
		values, _ = decode(x.DType, b, values)
		nan, inf := int64(0), int64(0)
		for _, v := range values {
			if math.IsNaN(v) {
				nan++
			} else if math.IsInf(v, 0) {
				inf++
			}
		}
		f.nan.Add(nan)
		f.inf.Add(inf)
	}
}

// config is what Hugging Face's readers want to find beside the tensors. Where it is not of State.Files it has no hash.
const config = "config.json"

// unlisted finds files that do not belong to the folder. Folders of others have further files, but no further tensors.
func (f *verifier) unlisted(path string) error {
	if f.src.path != path || len(f.src.listed) == 0 {
		return nil // one file, or nothing that could be read
	}
	names, err := f.src.fs.ReadDir(path)
	for _, name := range names {
		if !f.src.listed[name] && (f.src.man != nil && name != config || strings.HasSuffix(name, ".safetensors")) {
			f.fail(fmt.Errorf("%s: the file is not part of the checkpoint", filepath.Base(name)))
		}
	}
	return err
}
