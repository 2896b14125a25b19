package moe

import (
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/moe/dispatch"
	"github.com/ringo-ml/ringo/tensor"
)

// SetRanks changes the Functions with which a layer communicates.
func (l *Layer) SetRanks(change func(sumTokens, toHidden, fromHidden *tensor.Function)) {
	r := &l.ranks
	change(&r.sumTokens, &r.toHidden, &r.fromHidden)
}

// ForgetPlaces has each rank fill the places as if it were the first one: alone has no other rank.
func (l *Layer) ForgetPlaces(alone *dist.Group) {
	l.dispatcher = dispatch.New(dispatch.Config{Tokens: alone, Experts: l.ranks.Experts, Capacity: l.c.Capacity})
}
