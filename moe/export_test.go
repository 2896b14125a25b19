package moe

import "github.com/ringo-ml/ringo/tensor"

// SetRanks changes the Functions with which a layer communicates.
func (l *Layer) SetRanks(change func(tally, places, home, in, out *tensor.Function)) {
	r := &l.ranks
	change(&r.tally, &r.places, &r.home, &r.in, &r.out)
}
