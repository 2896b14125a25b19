package moe

import (
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// SetRanks changes the Functions with which a layer communicates.
func (l *Layer) SetRanks(change func(tally, home, in, out *tensor.Function)) {
	r := &l.ranks
	change(&r.tally, &r.home, &r.in, &r.out)
}

// ForgetPlaces has each rank fill the places as if it were the first one.
func (l *Layer) ForgetPlaces(r *dist.Group) { l.ranks.places = &places{group: r} }
