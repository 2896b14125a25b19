package dist

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/dist/backend"
)

// algos is the algorithm that is forced for each kind of operation; "" leaves the choice to the engine.
type algos [backend.NumKinds]string

// parse reads a list such as "direct" or "allreduce:ring,broadcast:linear": a name for all collectives, or kind:name. It
// begins with what is already set. A collective that the algorithm cannot do is an error when it is called. Messages
// between two ranks are no collectives.
func (a algos) parse(list string) (algos, error) {
	for _, item := range strings.Split(list, ",") {
		kind, name, one := strings.Cut(strings.TrimSpace(item), ":")
		if !one {
			for k := range a {
				if k := backend.Kind(k); k != backend.Send && k != backend.Recv && k != backend.Batch {
					a[k] = kind
				}
			}
			continue
		}
		found := false
		for k := range a {
			if backend.Kind(k).String() == kind {
				a[k], found = name, true
			}
		}
		if !found {
			return a, fmt.Errorf("algorithm %q: no operation is called %q", item, kind)
		}
	}
	return a, nil
}

// check compares the names with what the engine offers.
func (a algos) check(be backend.Backend) error {
	names := []string{}
	if x, ok := be.(backend.Algorithms); ok {
		names = x.Algorithms()
	}
	for _, name := range a {
		if name != "" && !slices.Contains(names, name) {
			return fmt.Errorf("unknown algorithm %q; this engine has: %s", name, strings.Join(names, ", "))
		}
	}
	return nil
}
