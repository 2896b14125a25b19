package storage

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/ckpt/internal/shard"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/tensor"
)

// Layout is a layout such as "tp=2,fsdp=4", in the notation of dist.Rank.Mesh.
type Layout struct {
	Ranks int
	axes  []string
	Sizes map[string]int // of all axes; 1 if the layout does not have it

	layers int  // of the model, which stages of pp divide
	tied   bool // the last stage has the table of tokens, too
}

// ParseLayout reads a layout. It returns nil for "".
func ParseLayout(s string) (*Layout, error) {
	if s == "" {
		return nil, nil
	}
	l := &Layout{Ranks: 1, Sizes: map[string]int{"cp": 1, "dp": 1, "ep": 1, "fsdp": 1, "pp": 1, "ring": 1, "tp": 1}}
	for _, field := range strings.Split(s, ",") {
		name, number, _ := strings.Cut(field, "=")
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 || n > 1<<16/l.Ranks {
			return nil, fmt.Errorf("layout %q: %q should be an axis with a size, such as tp=2", s, field)
		}
		if l.Sizes[name] == 0 {
			return nil, fmt.Errorf("layout %q: the axes are cp, dp, ep, fsdp, pp, ring and tp, not %q", s, name)
		}
		if slices.Contains(l.axes, name) {
			return nil, fmt.Errorf("layout %q: %s is there twice", s, name)
		}
		l.axes, l.Sizes[name], l.Ranks = append(l.axes, name), n, l.Ranks*n
	}
	return l, nil
}

// Coordinates returns the rank's index on every axis, and its name, such as "tp=1,fsdp=0". The last axis varies
// fastest.
func (l *Layout) Coordinates(rank int) (at map[string]int, name string) {
	at = map[string]int{}
	words := make([]string, len(l.axes))
	for i, axis := range slices.Backward(l.axes) {
		at[axis] = rank % l.Sizes[axis]
		words[i] = fmt.Sprintf("%s=%d", axis, at[axis])
		rank /= l.Sizes[axis]
	}
	return at, strings.Join(words, ",")
}

// What names say: the number of a layer is the first one, as in blocks.3.attn.q.weight or h.3.attn.c_attn.weight. Outside of layers, tables
// are on the first stage, and the rest on the last one.
var (
	layerNumber = regexp.MustCompile(`(?:^|\.)(\d{1,6})\.`)
	positions   = regexp.MustCompile(`pos|wpe`)
	tables      = regexp.MustCompile(`tok|emb|wte`)
	head        = regexp.MustCompile(`head`)
)

// layerOf returns the number of the layer that a tensor is in, or −1.
func layerOf(x *Tensor) int {
	if m := layerNumber.FindStringSubmatch(x.Name); m != nil {
		n, _ := strconv.Atoi(m[1])
		return n
	}
	return -1
}

// SetLayers finds the layers that stages of pp divide: call it before Part.
func (l *Layout) SetLayers(all []*Tensor) error {
	l.layers, l.tied = 0, true
	for _, x := range all {
		n := layerOf(x)
		l.layers, l.tied = max(l.layers, n+1), l.tied && (n >= 0 || !head.MatchString(x.Name))
	}
	if n := l.Sizes["pp"]; n > 1 && l.layers < n {
		return fmt.Errorf("%d stages of pp need a layer each, and names of tensors have %d, by numbers as in blocks.0.norm.weight", n, l.layers)
	}
	return nil
}

// onStage reports whether a stage of pp has a tensor. Stages have equally many layers, or some of the first ones have one more.
func (l *Layout) onStage(x *Tensor, stage int) bool {
	first, last, name := stage == 0, stage == l.Sizes["pp"]-1, x.Name
	switch i := layerOf(x); {
	case first && last:
		return true
	case i >= 0:
		lo, hi := layout.Share(l.layers, stage, l.Sizes["pp"])
		return i >= lo && i < hi
	case positions.MatchString(name):
		return first
	case tables.MatchString(name):
		return first || last && l.tied
	}
	return last
}

// inMemory returns the part of a tensor, in the order in memory, that a rank at index tp of tensor parallelism holds.
func (l *Layout) inMemory(x *Tensor, tp int) (shard.Part, error) {
	shape, rule := x.Shape, x.Rule
	if x.Transposed {
		shape = []int{shape[1], shape[0]}
		if rule != nil {
			rule = rule.Transposed()
		}
	}
	var boxes []tensor.Box
	if rule != nil {
		err := divides(rule, shape, l.Sizes["tp"])
		if err != nil {
			return shard.Part{}, err
		}
		if boxes, err = rule.Boxes(shape, tp, l.Sizes["tp"]); err != nil {
			return shard.Part{}, err
		}
	}
	return shard.NewPart(shape, boxes, [2]int{})
}

// divides returns an error unless units can be divided as package tp does: evenly, or several ranks have the same.
func divides(rule *layout.Division, shape []int, ranks int) error {
	if rule.Unit < 1 || rule.Dim < 0 || rule.Dim >= len(shape) { // Boxes says what is wrong with it
		return nil
	}
	for _, width := range rule.Widths(shape) {
		if n := width / rule.Unit; n%ranks != 0 && (n == 0 || ranks%n != 0) {
			return fmt.Errorf("%d units of %d do not divide over %d ranks: the number of ranks must divide %d, or be a multiple of it",
				n, rule.Unit, ranks, n)
		}
	}
	return nil
}

// Part returns what a rank loads of a tensor: its fsdp share of the boxes that the rule gives it. For a layer of another
// stage, and an expert of another rank, the part is empty.
func (l *Layout) Part(x *Tensor, at map[string]int) (shard.Part, error) {
	p, err := l.inMemory(x, at["tp"])
	if err != nil {
		return p, err
	}
	if !l.onStage(x, at["pp"]) {
		p.Hi = 0
		return p, nil
	}
	if n := l.Sizes["ep"]; x.Expert != nil {
		if x.Expert.Of%n != 0 {
			return p, fmt.Errorf("%d experts do not divide over %d ranks: the number of ranks must divide %d", x.Expert.Of, n, x.Expert.Of)
		}
		if x.Expert.Index/(x.Expert.Of/n) != at["ep"] {
			p.Hi = 0 // an expert of another rank
			return p, nil
		}
	}
	rank, ranks := l.sharing(at)
	p.Lo, p.Hi = layout.Share(p.Len(), rank, ranks)
	if x.Transposed {
		p = p.Transposed()
	}
	return p, nil
}

// sharing returns a rank's number among the ranks that share a tensor under fsdp, and theirs. Those with other positions (cp, ring) are
// among them; without fsdp, all have it whole.
func (l *Layout) sharing(at map[string]int) (rank, ranks int) {
	if l.Sizes["fsdp"] == 1 {
		return 0, 1
	}
	rank, ranks = at["fsdp"], l.Sizes["fsdp"]
	for _, axis := range [2]string{"ring", "cp"} {
		rank, ranks = rank*l.Sizes[axis]+at[axis], ranks*l.Sizes[axis]
	}
	return rank, ranks
}
