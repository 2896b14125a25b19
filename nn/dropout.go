package nn

import (
	"log/slog"
	"sync/atomic"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// Dropout zeroes elements with probability P on a tape in training, and divides the others by 1−P. Which ones depends
// on the tape's seed and step, the number of the microbatch in it, the layer's name and an element's place in the global
// batch. A Dropout that is used twice in a microbatch drops the same places twice, and warns of it, unless it has At.
type Dropout struct {
	P    float64
	At   func(x T) tensor.Region `nn:"-"` // the part of the whole that x is; nil: x is whole. Packages that cut activations set it
	name string
	key  uint64

	last   atomic.Uint64 // the microbatch of the last use
	warned atomic.Bool
}

// NewDropout returns a layer that drops with probability p, 0 ≤ p < 1.
func NewDropout(p float64) *Dropout {
	if !(p >= 0 && p < 1) {
		fail("NewDropout", "probability %v is not in [0,1)", p)
	}
	return &Dropout{P: p}
}

func (d *Dropout) setName(name string) { d.name, d.key = name, tensor.HashName(name) }

// Forward returns x, thinned out in training. The leading dimension of x is the batch's, but for At. It panics if the layer has no
// name yet: Init, ParamsOf and each Attach give one.
func (d *Dropout) Forward(x T) T {
	d.check(x)
	d.note(tapeOf(x))
	return ops.DropoutAt(x, d.P, d.key, d.region(x))
}

func (d *Dropout) region(x T) tensor.Region {
	if d.At == nil {
		return tensor.Region{}
	}
	return d.At(x)
}

// check panics if the layer is to drop elements of x and has no name.
func (d *Dropout) check(x T) {
	if d.P != 0 && d.key == 0 && tapeOf(x).Training() {
		fail("Dropout", "has no name, and so no random numbers: call nn.Init or ParamsOf on the model first")
	}
}

// note warns once if the layer drops again what it has dropped in this microbatch. Parts of one x, which At tells apart, are other places.
func (d *Dropout) note(t *tensor.Tape) {
	if d.P == 0 || d.At != nil || !t.Training() || t.Recomputing() {
		return
	}
	s := t.State()
	now := tensor.RandomKey(s.Seed, uint64(s.Step), uint64(s.Micro))
	if d.last.Swap(now) == now && !d.warned.Swap(true) {
		slog.Warn("nn: a Dropout drops the same elements again: it is used twice in a microbatch, or each step has a new tape; for two masks "+
			"of one batch, make rows of both (Concat), or call Backward with More between them; all steps use one tape", "layer", d.name)
	}
}
