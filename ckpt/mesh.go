package ckpt

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/tensor"
)

// axis is a named dimension of a device mesh.
type axis struct {
	name string
	size int
}

// parseLayout reads a layout such as "tp=2,fsdp=4", in the notation of dist.Rank.Mesh. It returns nil for "".
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
		if name != "dp" && name != "fsdp" && name != "tp" && name != "ep" {
			return nil, fmt.Errorf("layout %q: the axes are dp, ep, fsdp and tp, not %q", s, name)
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

// coordinates returns the rank's index on every axis, and its name, such as "tp=1,fsdp=0". The last axis varies
// fastest.
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

// cutter computes what each rank of a layout holds.
type cutter struct {
	mesh  []axis
	sizes map[string]int
}

func newCutter(mesh []axis) *cutter {
	c := &cutter{mesh: mesh, sizes: map[string]int{"tp": 1, "ep": 1, "fsdp": 1, "dp": 1}}
	for _, a := range mesh {
		c.sizes[a.name] = a.size
	}
	return c
}

// layout reads what every rank of a layout would load, and verifies that the ranks together get every element.
func (f *verifier) layout(ctx context.Context, mesh []axis, all []*stored) error {
	c := newCutter(mesh)
	ranks, ruled, experts := c.sizes["tp"]*c.sizes["ep"]*c.sizes["fsdp"]*c.sizes["dp"], 0, 0
	for i := range ranks {
		_, name := coordinates(mesh, i)
		f.v.Ranks = append(f.v.Ranks, RankBytes{Rank: i, Place: name})
	}
	for _, x := range all {
		if x.rule == nil {
			x.rule = f.c.Rules.find((&writeItem{Model: x.model, Name: x.Name}).paramName())
		}
		if x.rule != nil {
			ruled++
		}
		if x.expert != nil {
			experts++
		}
	}
	for _, x := range all {
		if err := f.layoutTensor(ctx, c, x); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			f.fail(err)
		}
	}
	if c.sizes["tp"] > 1 && ruled == 0 {
		f.fail(fmt.Errorf("it is not known how tensor parallelism divides the tensors: the checkpoint has no rules, and none were given"))
	}
	if c.sizes["ep"] > 1 && experts == 0 {
		f.fail(fmt.Errorf("it is not known which tensors are experts: ep needs a checkpoint that stores the experts of a stack one by one"))
	}
	return nil
}

// layoutTensor is layout for one tensor. It reads once what several ranks hold.
func (f *verifier) layoutTensor(ctx context.Context, c *cutter, x *stored) error {
	if x.elementSize() == 0 {
		return x.error(fmt.Errorf("%s cannot be cut", x.DType))
	}
	parts := map[int][]part{} // by group of ranks whose parts make up the tensor; without a rule, each index of tp is a group
	for rank := range f.v.Ranks {
		at, _ := coordinates(c.mesh, rank)
		p, err := c.part(x, at)
		if err != nil {
			return x.error(err)
		}
		f.v.Ranks[rank].Bytes += int64(p.len()) * int64(x.elementSize())
		if at["dp"] > 0 || x.expert == nil && at["ep"] > 0 {
			continue
		}
		group := at["tp"]
		if x.rule != nil {
			group = 0
		}
		if slices.ContainsFunc(parts[group], p.equal) { // another rank holds the same unit
			continue
		}
		parts[group] = append(parts[group], p)
		if group > 0 {
			continue
		}
		err = x.stream(ctx, p, func(b []byte) error {
			f.progress(len(b))
			return nil
		})
		if err != nil {
			return err
		}
	}
	for _, list := range parts {
		if err := tile(x.Shape, list); err != nil {
			return x.error(err)
		}
	}
	return nil
}

func (x *stored) error(err error) error {
	return fmt.Errorf("%s: tensor %q: %w", x.file.name, x.Name, err)
}

// inMemory returns the part of a tensor, in the order in memory, that a rank at index tp of tensor parallelism holds.
func (c *cutter) inMemory(x *stored, tp int) (part, error) {
	shape, rule := x.Shape, x.rule
	if x.transposed {
		shape = []int{shape[1], shape[0]}
		if rule != nil {
			rule = rule.transposed()
		}
	}
	var boxes []tensor.Box
	if rule != nil {
		var err error
		if boxes, err = rule.Boxes(shape, tp, c.sizes["tp"]); err != nil {
			return part{}, err
		}
	}
	return newPart(shape, boxes, [2]int{})
}

// part returns what a rank loads of a tensor: its fsdp share of the boxes that the rule gives it. For an expert of
// another rank, the part is empty.
func (c *cutter) part(x *stored, at map[string]int) (part, error) {
	p, err := c.inMemory(x, at["tp"])
	if err != nil {
		return p, err
	}
	if n := c.sizes["ep"]; x.expert != nil {
		if x.expert.Of%n != 0 {
			return p, fmt.Errorf("%d experts do not divide over %d ranks: the number of ranks must divide %d", x.expert.Of, n, x.expert.Of)
		}
		if x.expert.Index/(x.expert.Of/n) != at["ep"] {
			p.hi = 0 // an expert of another rank
			return p, nil
		}
	}
	n := p.len()
	p.lo, p.hi = share(n, at["fsdp"], c.sizes["fsdp"]), share(n, at["fsdp"]+1, c.sizes["fsdp"])
	if x.transposed {
		p = p.transposed()
	}
	return p, nil
}
