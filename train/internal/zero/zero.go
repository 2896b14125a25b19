package zero

import (
	"errors"

	"github.com/ringo-ml/ringo/dist"
)

// Do calls f on rank 0. All ranks get what it returns, an error by its text. It is collective.
func Do[V any](g *dist.Group, f func() (V, error)) (V, error) {
	var got struct {
		V   V
		Err string
	}
	var mine error
	if g.Rank() == 0 {
		if got.V, mine = f(); mine != nil {
			got.Err = mine.Error()
		}
	}
	got, err := dist.BroadcastObject(g, got, 0)
	if mine == nil && got.Err != "" {
		mine = errors.New(got.Err)
	}
	return got.V, errors.Join(mine, err)
}
