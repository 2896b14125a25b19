package plan

import (
	"fmt"
	"strconv"
	"strings"
)

const maxRanks = 1 << 16

// Layout says how many ranks share the work, and in which way. An axis of size 0 is not in the layout. So FSDP: 1 means package fsdp on one
// rank, and 0 package ddp; in parallel.Layout 0 and 1 are the same. What Megatron calls context parallelism is Ring·CP.
type Layout struct {
	PP   int `json:"pp,omitempty"`   // ranks with other layers
	DP   int `json:"dp,omitempty"`   // copies of the model: for package ddp, or with FSDP the group over which fsdp replicates
	FSDP int `json:"fsdp,omitempty"` // ranks over which a copy is sharded; 0: it is whole, and ddp sums its gradients
	EP   int `json:"ep,omitempty"`   // ranks that share the experts, and have different rows of the batch
	Ring int `json:"ring,omitempty"` // ranks with other positions of each sequence, around which keys and values go
	CP   int `json:"cp,omitempty"`   // Ulysses: ranks with other positions of each sequence, which exchange heads
	TP   int `json:"tp,omitempty"`   // ranks that compute a layer together
}

// ParseLayout reads a layout such as "dp=8,fsdp=8,tp=2", in the form of dist.Rank.Mesh.
func ParseLayout(s string) (Layout, error) {
	var l Layout
	axes := map[string]*int{"pp": &l.PP, "dp": &l.DP, "fsdp": &l.FSDP, "ep": &l.EP, "ring": &l.Ring, "cp": &l.CP, "tp": &l.TP}
	for _, item := range strings.Split(s, ",") {
		name, size, _ := strings.Cut(strings.TrimSpace(item), "=")
		axis := axes[name]
		n, err := strconv.Atoi(size)
		switch {
		case axis == nil:
			return l, fmt.Errorf("layout %q: the axes are pp, dp, fsdp, ep, ring, cp and tp, not %q", s, name)
		case err != nil || n < 1:
			return l, fmt.Errorf("layout %q: %q should be an axis with a size, such as tp=2", s, item)
		case *axis != 0:
			return l, fmt.Errorf("layout %q: %s is there twice", s, name)
		}
		*axis = n
	}
	return l, l.check()
}

func (l Layout) check() error {
	ranks := 1
	for _, n := range []int{l.PP, l.DP, l.FSDP, l.EP, l.Ring, l.CP, l.TP} {
		if n < 0 || n > maxRanks/ranks {
			return fmt.Errorf("layout %v is not one of 1 to %d ranks", l, maxRanks)
		}
		ranks *= max(n, 1)
	}
	return nil
}

// String returns the layout in the form of ParseLayout.
func (l Layout) String() string {
	var items []string
	for _, a := range []struct {
		name string
		n    int
	}{{"pp", l.PP}, {"dp", l.DP}, {"fsdp", l.FSDP}, {"ep", l.EP}, {"ring", l.Ring}, {"cp", l.CP}, {"tp", l.TP}} {
		if a.n != 0 {
			items = append(items, fmt.Sprintf("%s=%d", a.name, a.n))
		}
	}
	if items == nil {
		return "dp=1"
	}
	return strings.Join(items, ",")
}

// pp, dp, fsdp, ep, ring, cp and tp are the sizes of the axes. shards is the number of ranks that divide the rows of a batch, and positions
// that of those that divide each sequence.
func (l Layout) pp() int        { return max(l.PP, 1) }
func (l Layout) dp() int        { return max(l.DP, 1) }
func (l Layout) fsdp() int      { return max(l.FSDP, 1) }
func (l Layout) tp() int        { return max(l.TP, 1) }
func (l Layout) ep() int        { return max(l.EP, 1) }
func (l Layout) ring() int      { return max(l.Ring, 1) }
func (l Layout) cp() int        { return max(l.CP, 1) }
func (l Layout) shards() int    { return l.dp() * l.fsdp() * l.ep() }
func (l Layout) positions() int { return l.ring() * l.cp() }

// Ranks returns the number of ranks.
func (l Layout) Ranks() int { return l.pp() * l.shards() * l.positions() * l.tp() }

// with returns the name of a group of several axes: axis, joined by × with those of ep, ring and cp that have several ranks.
func (l Layout) with(axis string) string {
	for _, a := range []struct {
		name string
		n    int
	}{{"ep", l.EP}, {"ring", l.Ring}, {"cp", l.CP}} {
		if a.n > 1 {
			axis += "×" + a.name
		}
	}
	return axis
}
