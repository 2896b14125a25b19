package inspect

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ringo-ml/ringo/ckpt/internal/disk"
	"github.com/ringo-ml/ringo/ckpt/internal/shard"
	"github.com/ringo-ml/ringo/ckpt/internal/storage"
)

// VerifyConfig has the options of Verify.
type VerifyConfig struct {
	Layout string      // such as "tp=2,fsdp=4": also read what every rank of such a job would read; "": none
	Rules  shard.Rules // of tensor parallelism, for tensors that have no rule in the checkpoint; each must fit a tensor
	// Progress, if not nil, is called with the bytes read so far and the total, from several goroutines.
	Progress func(done, total int64)
}

// Verdict is the result of Verify.
type Verdict struct {
	OK        bool        `json:"ok"`
	Path      string      `json:"path"`
	Step      int         `json:"step"`
	Tensors   int         `json:"tensors"`           // number, with the optimizer's
	Shards    int         `json:"shards"`            // number of pieces, each with its own hash
	Bytes     int64       `json:"bytes"`             // of tensor data
	Errors    []string    `json:"errors"`            // each names file, tensor and reason
	Unchecked []string    `json:"unchecked"`         // what cannot be verified without ringo.json
	NaN       int64       `json:"nan"`               // number of elements; each tensor that has some is an error
	Inf       int64       `json:"inf"`               // number of elements, which is no error: masks have some
	Ranks     []RankBytes `json:"ranks,omitempty"`   // of the layout
	Misfits   []string    `json:"misfits,omitempty"` // why the layout or rules do not fit; without Errors, the checkpoint is sound
}

// RankBytes is how much a rank of a layout reads, if fsdp cuts every tensor evenly.
type RankBytes struct {
	Rank  int    `json:"rank"`
	Place string `json:"place"` // such as "tp=1,fsdp=0"
	Bytes int64  `json:"bytes"`
}

// verifier is one call of Verify.
type verifier struct {
	c        VerifyConfig
	src      *storage.Reader
	v        *Verdict
	mu       sync.Mutex // of v.Errors
	read     counter
	nan, inf atomic.Int64
}

// Verify reads a checkpoint (any that Load reads) and checks that it is complete and undamaged: its files, names and
// hashes, and that every element is there exactly once. A folder without ringo.json has no hashes; Verdict.Unchecked
// says what could not be verified. Verify needs a few MiB of memory, whatever the size of the checkpoint. It returns an
// error only if ctx ends or c is invalid. Problems of the checkpoint are in the Verdict.
func Verify(ctx context.Context, path string, c VerifyConfig) (*Verdict, error) {
	mesh, err := storage.ParseLayout(c.Layout)
	if err != nil {
		return nil, fmt.Errorf("ckpt: %w", err)
	}
	if mesh == nil && len(c.Rules) > 0 {
		return nil, fmt.Errorf("ckpt: rules of tensor parallelism say nothing without a layout, such as tp=2")
	}
	src := storage.Examine(disk.OS{}, path)
	defer src.Close() // opened for reading only
	f := &verifier{c: c, src: src, v: &Verdict{Path: path, Errors: []string{}, Unchecked: []string{}}}
	for _, err := range append(src.Problems, src.Unlisted()...) {
		f.fail(err)
	}
	f.v.Step = src.Step()
	all := src.Each()
	for _, x := range all {
		f.v.Tensors++
		f.v.Shards += len(x.Pieces)
		f.v.Bytes += x.End - x.Start
	}
	f.read = counter{total: f.v.Bytes, report: c.Progress}
	if mesh != nil {
		f.read.total *= 2
	}
	err = storage.Parallel(len(all), func(i int) error {
		f.scan(ctx, all[i])
		return ctx.Err()
	})
	if err == nil && mesh != nil && len(f.v.Errors) == 0 {
		err = f.layout(ctx, mesh, all)
	}
	if err != nil {
		return nil, fmt.Errorf("ckpt: %w", err)
	}
	f.v.NaN, f.v.Inf = f.nan.Load(), f.inf.Load()
	if src.Manifest == nil {
		f.v.Unchecked = append(f.v.Unchecked, "the values of all tensors: there is no ringo.json with hashes",
			"whether tensors are missing that no list names")
	}
	slices.Sort(f.v.Errors)
	if f.v.OK = len(f.v.Errors)+len(f.v.Misfits) == 0; len(f.v.Misfits) > 0 {
		f.v.Ranks = nil
	}
	return f.v, nil
}

func (f *verifier) misfit(format string, a ...any) {
	f.v.Misfits = append(f.v.Misfits, fmt.Errorf(format, a...).Error())
}

func (f *verifier) fail(err error) {
	f.mu.Lock()
	f.v.Errors = append(f.v.Errors, err.Error())
	f.mu.Unlock()
}

// counter reports how many bytes have been read. report may be nil.
type counter struct {
	done   atomic.Int64
	total  int64
	report func(done, total int64)
}

func (c *counter) add(n int) {
	if done := c.done.Add(int64(n)); c.report != nil {
		c.report(done, c.total)
	}
}

// scan reads a tensor. It counts progress, and NaN and infinite elements.
func (f *verifier) scan(ctx context.Context, x *storage.Tensor) {
	d, known := storage.DTypeOf(x.DType)
	var nan, inf int64
	err := x.Scan(ctx, func(b []byte) {
		f.read.add(len(b))
		if known {
			n, i := storage.Nonfinite(d, b)
			nan, inf = nan+n, inf+i
		}
	})
	if err == nil && nan > 0 {
		err = fmt.Errorf("%s: tensor %q: %d elements are NaN", x.File.Name, x.Name, nan)
	}
	if err != nil {
		f.fail(err)
	}
	f.nan.Add(nan)
	f.inf.Add(inf)
}
