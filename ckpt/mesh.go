package ckpt

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/tensor"
)

// axis is a named axis of a layout.
type axis struct {
	name string
	size int
}

// parseLayout reads "tp=2,fsdp=4", which dist.Rank.Mesh understands too; nil for "".
func parseLayout(s string) ([]axis, error) {
	if s == "" {
		return nil, nil
	}
	var mesh []axis
	ranks := 1
	for _, field := range strings.Split(s, ",") {
		name, number, _ := strings.Cut(field, "=")
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 || n > 1<<16/ranks {
			return nil, fmt.Errorf("layout %q: %q should be an axis with a size, such as tp=2", s, field)
		}
		if name != "dp" && name != "fsdp" && name != "tp" {
			return nil, fmt.Errorf("layout %q: the axes are dp, fsdp and tp, not %q", s, name)
		}
		for _, a := range mesh {
			if a.name == name {
				return nil, fmt.Errorf("layout %q: %s is there twice", s, name)
			}
		}
		mesh = append(mesh, axis{name, n})
		ranks *= n
	}
	return mesh, nil
}

// coordinates returns the place of a rank on every axis and its name. The last axis varies fastest.
func coordinates(mesh []axis, rank int) (at map[string]int, name string) {
	at = map[string]int{}
	words := make([]string, len(mesh))
	for i := len(mesh) - 1; i >= 0; i-- {
		at[mesh[i].name] = rank % mesh[i].size
		words[i] = fmt.Sprintf("%s=%d", mesh[i].name, rank%mesh[i].size)
		rank /= mesh[i].size
	}
	return at, strings.Join(words, ",")
}

// layout reads what every rank of a layout would load, and verifies that the ranks get every element.
func (f *verifier) layout(ctx context.Context, mesh []axis, all []*stored) error {
	sizes := map[string]int{"tp": 1, "fsdp": 1, "dp": 1}
	ranks, ruled := 1, 0
	for _, a := range mesh {
		sizes[a.name] = a.size
		ranks *= a.size
	}
	for i := range ranks {
		_, name := coordinates(mesh, i)
		f.v.Ranks = append(f.v.Ranks, RankBytes{Rank: i, Place: name})
	}
	for _, x := range all {
		if x.rule == nil {
			x.rule = f.c.Rules.find(claimItem{Model: x.model, Name: x.Name}.paramName())
		}
		if x.rule != nil {
			ruled++
		}
		if err := f.layoutTensor(ctx, mesh, sizes, x); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			f.fail(err)
		}
	}
	if sizes["tp"] > 1 && ruled == 0 {
		f.fail(fmt.Errorf("nobody says how tensor parallelism cuts the tensors: the checkpoint has no rules, and none were given"))
	}
	return nil
}

// layoutTensor is layout for one tensor. Ranks that differ in dp load the same.
func (f *verifier) layoutTensor(ctx context.Context, mesh []axis, sizes map[string]int, x *stored) error {
	if x.elementSize() == 0 {
		return fmt.Errorf("%s: tensor %q: %s cannot be cut", x.file.name, x.Name, x.DType)
	}
	var parts []part
	for rank := range f.v.Ranks {
		at, _ := coordinates(mesh, rank)
		p, err := x.rankPart(at, sizes)
		if err != nil {
			return fmt.Errorf("%s: tensor %q: %w", x.file.name, x.Name, err)
		}
		f.v.Ranks[rank].Bytes += int64(p.len()) * int64(x.elementSize())
		if at["dp"] > 0 || x.rule == nil && at["tp"] > 0 {
			continue
		}
		parts = append(parts, p)
		err = x.stream(ctx, p, func(b []byte) error {
			f.progress(len(b))
			return nil
		})
		if err != nil {
			return err
		}
	}
	if err := tile(x.Shape, parts); err != nil {
		return fmt.Errorf("%s: tensor %q: %w", x.file.name, x.Name, err)
	}
	return nil
}

// rankPart returns what a rank holds of a tensor: its boxes by the rule, of these its flat share.
func (x *stored) rankPart(at, sizes map[string]int) (part, error) {
	var boxes []tensor.Box
	if x.rule != nil {
		var err error
		if boxes, err = x.rule.Boxes(x.Shape, at["tp"], sizes["tp"]); err != nil {
			return part{}, err
		}
	}
	p, err := newPart(x.Shape, boxes, [2]int{})
	if err != nil {
		return part{}, err
	}
	n := p.len()
	p.lo, p.hi = share(n, at["fsdp"], sizes["fsdp"]), share(n, at["fsdp"]+1, sizes["fsdp"])
	return p, nil
}
