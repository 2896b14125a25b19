package algo

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/ringo-ml/ringo/dist/backend"
)

// Tuner chooses the algorithms of a group: by the committed Table if its ranks and hosts were measured, otherwise by the Cost of each
// algorithm. For large buffers it takes one that sends few bytes from host to host. The choice depends only on layout and operation,
// so all ranks choose the same.
type Tuner struct {
	at    Layout
	hosts int
	ranks func() [][]int // of each host, in order
	kinds [backend.NumKinds]struct {
		once sync.Once
		list []Candidate
	}
}

// Candidate is an algorithm that may run an operation, and what it costs.
type Candidate struct {
	Algo string
	Cost Cost
}

// Choice says which algorithm runs an operation, and why.
type Choice struct {
	Algo       string
	Measured   bool        // chosen by the table; otherwise it is the first of the cheapest Candidates
	Candidates []Candidate // empty: there is only one algorithm
}

// NewTuner returns a Tuner for a group with layout l.
func NewTuner(l Layout) *Tuner {
	return &Tuner{at: l, hosts: l.Hosts(), ranks: sync.OnceValue(l.ranks)}
}

// Choose returns the name of the algorithm that runs op: Op.Algo if it names one. backend.RankOrder means the best of those that combine
// elements in rank order. Inside a host all algorithms do so, so that the bits do not depend on the engine.
func (t *Tuner) Choose(op *backend.Op) string {
	ranked := op.Algo == backend.RankOrder
	if op.Algo != "" && !ranked {
		return op.Algo
	}
	return t.choose(op.Kind, Bytes(op, len(t.at)), ranked).Algo
}

// Explain returns how an operation of so many bytes (see Bytes) runs, and why.
func (t *Tuner) Explain(k backend.Kind, bytes int) Choice {
	if sizeless(k) {
		bytes = 0
	}
	return t.choose(k, bytes, false)
}

func (t *Tuner) choose(k backend.Kind, bytes int, ranked bool) Choice {
	c := Choice{Candidates: t.candidates(k)}
	if len(c.Candidates) == 0 {
		c.Algo = "linear"
		return c
	}
	hosts := t.hosts
	if ranked {
		hosts = 1
	}
	if c.Algo, c.Measured = committed.Choose(k, bytes, len(t.at), hosts); c.Measured {
		return c
	}
	least := 0.0
	for i := range c.Candidates {
		x := &c.Candidates[i]
		if ranked && !InRankOrder(x.Algo) || bytes >= manyBytes && !x.frugal(c.Candidates, ranked) {
			continue
		}
		if cost := x.Cost.Nanoseconds(bytes); c.Algo == "" || cost < least {
			c.Algo, least = x.Algo, cost
		}
	}
	return c
}

// manyBytes is the size from which on algorithms must be frugal.
const manyBytes = 1 << 20

// frugal reports whether x sends at most a tenth more from host to host than any other one, except those whose busiest host has a tenth
// more to do. The network between hosts may have other users, or less bandwidth than the model has.
func (x *Candidate) frugal(all []Candidate, ranked bool) bool {
	return !slices.ContainsFunc(all, func(y Candidate) bool {
		return (!ranked || InRankOrder(y.Algo)) && x.Cost.Network > 1.1*y.Cost.Network && y.Cost.Host <= 1.1*x.Cost.Host
	})
}

// candidates returns the algorithms of a kind, in the order of Names, or nothing if all of them are the same over messages.
func (t *Tuner) candidates(k backend.Kind) []Candidate {
	x := &t.kinds[k]
	x.once.Do(func() {
		if formulas[k] == nil {
			return
		}
		s := newShape(t.at)
		for _, name := range Names(k) {
			if f := formulas[k][name]; f != nil && (t.hosts > 1 || !k.Reduces() || InRankOrder(name)) {
				x.list = append(x.list, Candidate{name, f(s)})
			}
		}
	})
	return x.list
}

// Check returns an error if op names an algorithm that cannot do it. The error names those that can.
func (t *Tuner) Check(op *backend.Op) error {
	if find(op.Kind, t.Choose(op)) != nil {
		return nil
	}
	return fmt.Errorf("algorithm %q cannot do %v, which has: %s", op.Algo, op.Kind, strings.Join(Names(op.Kind), ", "))
}
