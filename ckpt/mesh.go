package ckpt

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/tensor"
)

// jobLayout is a layout such as "tp=2,fsdp=4", in the notation of dist.Rank.Mesh.
type jobLayout struct {
	ranks int
	axes  []string
	sizes map[string]int // of all axes; 1 if the layout does not have it
}

// parseLayout reads a layout. It returns nil for "".
func parseLayout(s string) (*jobLayout, error) {
	if s == "" {
		return nil, nil
	}
	l := &jobLayout{ranks: 1, sizes: map[string]int{"dp": 1, "ep": 1, "fsdp": 1, "tp": 1}}
	for _, field := range strings.Split(s, ",") {
		name, number, _ := strings.Cut(field, "=")
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 || n > 1<<16/l.ranks {
			return nil, fmt.Errorf("layout %q: %q should be an axis with a size, such as tp=2", s, field)
		}
		if l.sizes[name] == 0 {
			return nil, fmt.Errorf("layout %q: the axes are dp, ep, fsdp and tp, not %q", s, name)
		}
		if slices.Contains(l.axes, name) {
			return nil, fmt.Errorf("layout %q: %s is there twice", s, name)
		}
		l.axes, l.sizes[name], l.ranks = append(l.axes, name), n, l.ranks*n
	}
	return l, nil
}

// coordinates returns the rank's index on every axis, and its name, such as "tp=1,fsdp=0". The last axis varies
// fastest.
func (l *jobLayout) coordinates(rank int) (at map[string]int, name string) {
	at = map[string]int{}
	words := make([]string, len(l.axes))
	for i, axis := range slices.Backward(l.axes) {
		at[axis] = rank % l.sizes[axis]
		words[i] = fmt.Sprintf("%s=%d", axis, at[axis])
		rank /= l.sizes[axis]
	}
	return at, strings.Join(words, ",")
}

// layout reads what every rank of a layout would load, and verifies that the ranks together get every element.
func (f *verifier) layout(ctx context.Context, c *jobLayout, all []*stored) error {
	ruled, experts := 0, 0
	for i := range c.ranks {
		_, name := c.coordinates(i)
		f.v.Ranks = append(f.v.Ranks, RankBytes{Rank: i, Place: name})
	}
	for _, x := range all {
		if x.rule == nil {
			x.rule = f.c.Rules.find(paramName(x.model, x.Name))
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
func (f *verifier) layoutTensor(ctx context.Context, c *jobLayout, x *stored) error {
	if x.elementSize() == 0 {
		return x.failed(fmt.Errorf("%s cannot be cut", x.DType))
	}
	parts := map[int][]part{} // by group of ranks whose parts make up the tensor; without a rule, each index of tp is a group
	for rank := range f.v.Ranks {
		at, _ := c.coordinates(rank)
		p, err := c.part(x, at)
		if err != nil {
			return x.failed(err)
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
			return x.failed(err)
		}
	}
	return nil
}

// inMemory returns the part of a tensor, in the order in memory, that a rank at index tp of tensor parallelism holds.
func (c *jobLayout) inMemory(x *stored, tp int) (part, error) {
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
func (c *jobLayout) part(x *stored, at map[string]int) (part, error) {
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
