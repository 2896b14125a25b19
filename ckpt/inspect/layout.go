package inspect

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/ringo-ml/ringo/ckpt/internal/shard"
	"github.com/ringo-ml/ringo/ckpt/internal/storage"
)

// layout reads what every rank of a layout would load, and verifies that the ranks together get every element.
func (f *verifier) layout(ctx context.Context, c *storage.Layout, all []*storage.Tensor) error {
	ruled, experts := 0, 0
	for i := range c.Ranks {
		_, name := c.Coordinates(i)
		f.v.Ranks = append(f.v.Ranks, RankBytes{Rank: i, Place: name})
	}
	for _, x := range all {
		if x.Rule == nil {
			x.Rule = f.c.Rules.Find(storage.ParamName(x.Model, x.Name))
		}
		if x.Rule != nil {
			ruled++
		}
		if x.Expert != nil {
			experts++
		}
	}
	f.unusedRules(all)
	if err := c.SetLayers(all); err != nil {
		f.misfit("%w", err)
		return nil
	}
	for _, x := range all {
		if err := f.layoutTensor(ctx, c, x); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			f.misfit("%w", err)
		}
	}
	if c.Sizes["tp"] > 1 && ruled == 0 {
		f.misfit("it is not known how tensor parallelism divides the tensors: the checkpoint has no rules, and none were given (by " +
			"ringo ckpt verify -rules FILE, or VerifyConfig.Rules)")
	}
	if c.Sizes["ep"] > 1 && experts == 0 {
		f.misfit("it is not known which tensors are experts: ep needs a checkpoint that stores the experts of a stack one by one")
	}
	return nil
}

// unusedRules finds each rule that fits no tensor: with a name that is wrong, the tensor would be taken for whole.
func (f *verifier) unusedRules(all []*storage.Tensor) {
	for _, name := range slices.Sorted(maps.Keys(f.c.Rules)) {
		one := shard.Rules{name: f.c.Rules[name]}
		if !slices.ContainsFunc(all, func(x *storage.Tensor) bool { return one.Find(storage.ParamName(x.Model, x.Name)) != nil }) {
			f.misfit("the rule %q fits no tensor", name)
		}
	}
}

// layoutTensor is layout for one tensor. It reads once what several ranks hold.
func (f *verifier) layoutTensor(ctx context.Context, c *storage.Layout, x *storage.Tensor) error {
	if x.ElementSize() == 0 {
		return x.Failed(fmt.Errorf("%s cannot be cut", x.DType))
	}
	parts := map[int][]shard.Part{} // by group of ranks whose parts make up the tensor; without a rule, each index of tp is a group
	for rank := range f.v.Ranks {
		at, _ := c.Coordinates(rank)
		p, err := c.Part(x, at)
		if err != nil {
			return x.Failed(err)
		}
		f.v.Ranks[rank].Bytes += int64(p.Len()) * int64(x.ElementSize())
		if at["dp"] > 0 || x.Expert == nil && at["ep"] > 0 {
			continue
		}
		group := at["tp"]
		if x.Rule != nil {
			group = 0
		}
		if slices.ContainsFunc(parts[group], p.Equal) { // another rank holds the same unit
			continue
		}
		parts[group] = append(parts[group], p)
		if group > 0 {
			continue
		}
		err = x.Stream(ctx, p, func(b []byte) error {
			f.read.add(len(b))
			return nil
		})
		if err != nil {
			f.fail(err)
			return ctx.Err()
		}
	}
	for _, list := range parts {
		if err := shard.Tile(x.Shape, list); err != nil {
			return x.Failed(err)
		}
	}
	return nil
}
