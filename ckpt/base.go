package ckpt

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/ckpt/internal/disk"
	"github.com/ringo-ml/ringo/ckpt/internal/shard"
	"github.com/ringo-ml/ringo/ckpt/internal/storage"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
)

// Base identifies the frozen parameters that adapters were trained with: Path is where they were loaded from (the folder
// may have moved since), and SHA256 the hash of their tensors as stored, with names, types and shapes. A checkpoint of
// adapters does not contain them.
type Base = storage.Base

// BaseOf returns the Base of the frozen parameters that Load reads from path with c. Store it in State.Base. The hash
// does not depend on the layout, on the parameters' types in memory, or on how the folder divides its tensors into
// files. BaseOf reads each of these tensors once. The ranks share the reading; with the strategy Broadcast, rank 0
// reads everything. It is collective.
func BaseOf(ctx context.Context, g *dist.Group, path string, frozen nn.Params, c LoadConfig) (*Base, error) {
	hash, err := fingerprint(ctx, g, path, frozen, c)
	b := &Base{Path: path, SHA256: hash}
	if err == nil {
		b, err = dist.BroadcastObject(g, b, 0) // the path may differ between hosts
	}
	if err != nil {
		return nil, fmt.Errorf("ckpt: reading the base %s: %w", path, err)
	}
	return b, nil
}

func fingerprint(ctx context.Context, g *dist.Group, path string, frozen nn.Params, c LoadConfig) (string, error) {
	all, err := allNames(g, frozen)
	if err != nil {
		return "", err
	}
	readers := g.Size()
	if c.Strategy == Broadcast {
		readers = 1
	}
	var mine []string
	if g.Rank() < readers {
		mine, err = tensorHashes(ctx, path, c.Rename, all, g.Rank(), readers)
	}
	if err := gatherErrors(g, err); err != nil {
		return "", err
	}
	parts, err := dist.AllGatherObject(g, mine)
	if err != nil {
		return "", err
	}
	lines := slices.Concat(parts...)
	slices.Sort(lines)
	return storage.Sum([]byte(strings.Join(lines, ""))), nil
}

// allNames returns the stored names of the parameters of all ranks, sorted, each name once.
func allNames(g *dist.Group, params nn.Params) (names []string, err error) {
	for _, p := range params {
		names = append(names, storedNames(p)...)
	}
	all, err := dist.AllGatherObject(g, names)
	names = slices.Concat(all...)
	slices.Sort(names)
	return slices.Compact(names), err
}

// tensorHashes returns a line with the name and hash of each tensor that this reader has to read.
func tensorHashes(ctx context.Context, path string, as func(string) string, names []string, reader, readers int) ([]string, error) {
	src, err := storage.Open(disk.OS{}, path)
	if err != nil {
		return nil, err
	}
	defer src.Close() // opened for reading only
	if err := src.Rename(as); err != nil {
		return nil, err
	}
	var todo []*storage.Tensor
	load := make([]int64, readers)
	for _, name := range names {
		x := src.Tensors[storage.ItemKey(true, name)]
		if x == nil {
			return nil, fmt.Errorf("there is no tensor %q", name)
		}
		rank := least(load)
		load[rank] += x.End - x.Start
		if rank == reader {
			todo = append(todo, x)
		}
	}
	lines := make([]string, len(todo))
	err = storage.Parallel(len(todo), func(i int) error {
		x, h := todo[i], sha256.New()
		err := x.Stream(ctx, shard.WholePart(x.Shape), func(b []byte) error {
			_, err := h.Write(b)
			return err
		})
		lines[i] = fmt.Sprintf("%q %s %v %s\n", x.Name, x.DType, x.Shape, hex.EncodeToString(h.Sum(nil)))
		return err
	})
	return lines, err
}

// matchBase refuses adapters that were trained with another base.
func (l *loader) matchBase() error {
	mine, theirs := l.st.Base, l.cat.Base
	switch {
	case mine == nil:
		return nil
	case theirs == nil:
		l.report.Missing = append(l.report.Missing, "the base")
		return nil
	case mine.SHA256 == theirs.SHA256:
		return nil
	case mine.Path == theirs.Path:
		return fmt.Errorf("its adapters were trained above tensors of the base %v, and those below them now have the SHA-256 %.16s…: the files "+
			"have changed since, or BaseOf got other parameters then", theirs, mine.SHA256)
	}
	return fmt.Errorf("its adapters were trained above the base %v, which is not the base %v that is below them now", theirs, mine)
}
