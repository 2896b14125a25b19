package dist

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
)

// algos says which algorithms are forced.
type algos struct {
	names  [backend.NumKinds]string // for each kind of operation; "" leaves the choice to the engine
	ranked bool                     // RINGO_BITS=rank: only algorithms that add in rank order
}

// algosFromEnv reads RINGO_BITS and RINGO_ALGO.
func algosFromEnv() (algos, error) {
	var a algos
	switch bits := os.Getenv("RINGO_BITS"); bits {
	case "":
	case "rank":
		a.ranked = true
		for k := range a.names {
			if backend.Kind(k).Reduces() {
				a.names[k] = backend.RankOrder
			}
		}
	default:
		return a, fmt.Errorf("dist: RINGO_BITS=%s: it is rank, or not set", bits)
	}
	if list := os.Getenv("RINGO_ALGO"); list != "" {
		var err error
		if a, err = a.parse(list); err != nil {
			return a, fmt.Errorf("dist: RINGO_ALGO: %w", err)
		}
	}
	return a, nil
}

// parse reads a list such as "direct" or "allreduce:ring,broadcast:linear": a name for all collectives, or kind:name. It adds to what is
// set already. If the algorithm cannot do a collective, the call of that collective is an error. Send and Recv have no algorithm.
func (a algos) parse(list string) (algos, error) {
	for _, item := range strings.Split(list, ",") {
		kind, name, one := strings.Cut(strings.TrimSpace(item), ":")
		if !one {
			name = kind
		}
		found := false
		for k := range backend.Kind(backend.NumKinds) {
			collective := k != backend.Send && k != backend.Recv && k != backend.Batch
			if one && k.String() != kind || !one && !collective {
				continue
			}
			if a.ranked && k.Reduces() && !algo.InRankOrder(name) {
				return a, fmt.Errorf("algorithm %q contradicts RINGO_BITS=rank: %s may be linear, direct or %s", item, k, backend.RankOrder)
			}
			a.names[k], found = name, true
		}
		if !found {
			return a, fmt.Errorf("algorithm %q: no operation is called %q", item, kind)
		}
	}
	return a, nil
}

// check compares the names with what the engine offers. Every engine has algorithms in rank order.
func (a algos) check(be backend.Backend) error {
	names := []string{}
	if x, ok := be.(backend.Algorithms); ok {
		names = x.Algorithms()
	}
	for _, name := range a.names {
		switch {
		case name == "" || name == backend.RankOrder || slices.Contains(names, name):
		case slices.Contains(algo.Names(), name): // an algorithm over messages
			return fmt.Errorf("algorithm %q is for ranks that are processes; the engine of these ranks, goroutines, has: %s",
				name, strings.Join(names, ", "))
		default:
			return fmt.Errorf("unknown algorithm %q; this engine has: %s", name, strings.Join(names, ", "))
		}
	}
	return nil
}

// algoCalls counts the operations of one kind that one algorithm did.
type algoCalls struct {
	kind  backend.Kind
	algo  string
	name  string // "allreduce:ring"
	calls uint64
}

// choose returns the counter of the algorithm that runs op on this lane, and counts op; nil if the engine does not say which one runs.
func (l *lane) choose(op *backend.Op) *algoCalls {
	x, ok := l.be.(backend.Algorithms)
	if !ok {
		return nil
	}
	name, g := x.Choice(op), l.g
	i := slices.IndexFunc(g.algoCalls, func(r algoCalls) bool { return r.kind == op.Kind && r.algo == name })
	if i < 0 {
		i = len(g.algoCalls)
		g.algoCalls = append(g.algoCalls, algoCalls{op.Kind, name, op.Kind.String() + ":" + name, 0})
	}
	g.algoCalls[i].calls++
	return &g.algoCalls[i]
}

// overMessages returns the first forced algorithm that needs messages between ranks, such as "allreduce:ring"; "" if there is none.
func (a algos) overMessages() string {
	for k, name := range a.names {
		if name != "" && name != "direct" && name != backend.RankOrder {
			return backend.Kind(k).String() + ":" + name
		}
	}
	return ""
}
