package groups

import (
	"fmt"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/tensor"
)

// holder is what a rank has of a parameter: elements Lo to Hi-1 of the boxes.
type holder struct {
	Boxes  []tensor.Box
	Lo, Hi int
}

// Whole makes the model's tensor of what ranks hold of a parameter. It is collective.
func (o *Ranks) Whole(p *tensor.Param, dev tensor.Device, mine tensor.Tensor) (tensor.Tensor, error) {
	g := o.Gathers
	lo, hi := p.Placement().Range()
	holders, err := dist.AllGatherObject(g, holder{p.Placement().Boxes(), lo, hi})
	if err != nil {
		return tensor.Tensor{}, err
	}
	held, counts, sum := make([]layout.Held[string], g.Size()), make([]int, g.Size()), 0
	for r, h := range holders {
		held[r] = layout.Held[string]{Of: fmt.Sprint(h.Boxes), Lo: h.Lo, Hi: h.Hi}
	}
	for r, counted := range layout.Counted(held) { // one of those that hold the same sends it
		if counted {
			counts[r] = held[r].Hi - held[r].Lo
			sum += counts[r]
		}
	}
	x := tensor.New(dev, mine.DType(), p.Global()...)
	if sum != x.Len() {
		return tensor.Tensor{},
			fmt.Errorf("fsdp: %s: the ranks of Config.Shard hold %d of the %d elements of %v; for the others, save a checkpoint",
				p.Name(), sum, x.Len(), p.Global())
	}
	flat := x.View(sum)
	parts := flat
	if p.IsCut() {
		parts = tensor.New(dev, mine.DType(), sum)
	}
	if err := g.AllGatherV(parts, mine.Range(0, counts[g.Rank()]), counts).Wait(); err != nil {
		return tensor.Tensor{}, fmt.Errorf("fsdp: gathering %s: %w", p.Name(), err)
	}
	if !p.IsCut() {
		return x, nil
	}
	at := 0
	for r, h := range holders {
		for first, n := range layout.Runs(p.Global(), h.Boxes, h.Lo, h.Lo+counts[r]) {
			tensor.Copy(flat.Range(first, first+n), parts.Range(at, at+n))
			at += n
		}
	}
	return x, nil
}
