package disttest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// Program is a random job: ranks make groups and run collectives and messages on them, some in flight together, at random times. In some
// programs one rank does something wrong. The seed decides everything.
type Program struct {
	Seed    uint64
	Ranks   int
	Timeout time.Duration // of operations, and the longest time without progress
	Mishap  Mishap
	Who, At int // the rank of the mishap, and the step before which it happens
	mesh    [2]int
	ways    int // of the split
	depth   int // operations in flight
	steps   []step
	hurry   time.Duration // sleeps are shorter by this factor
}

// realTime makes a program short enough to run outside a bubble.
func (p *Program) realTime() { p.Timeout, p.hurry = 5*time.Second, 100 }

// Mishap is what goes wrong in a program, apart from network faults.
type Mishap uint8

// The mishaps: a rank does nothing for an hour; returns early, with and without an error; aborts a group; or calls another
// operation than the others.
const (
	Nothing Mishap = iota
	Sleeps
	Leaves
	Fails
	Aborts
	Differs
	numMishaps
)

// String returns the name.
func (m Mishap) String() string {
	return [numMishaps]string{"nothing", "sleeps", "leaves", "fails", "aborts", "differs"}[m]
}

// String describes the program.
func (p *Program) String() string {
	s := fmt.Sprintf("seed %d: %d ranks, %d steps, %d in flight", p.Seed, p.Ranks, len(p.steps), p.depth)
	if p.Mishap != Nothing {
		s += fmt.Sprintf(", rank %d %v before step %d", p.Who, p.Mishap, p.At)
	}
	return s
}

// The families of groups that a step may use: each rank is in at most one group of a family.
const (
	world = iota
	other
	split
	axisA
	axisB
	numFamilies
)

type step struct {
	family int
	what   int
	red    int
	dtype  tensor.DType
	count  int
	root   int // modulo the size of the group
	nap    []time.Duration
	flush  bool // wait for everything in flight
}

// rows is how many rows rank `from` has for rank `to`.
func (s *step) rows(from, to int) int { return s.count * (1 + (from+2*to)%3) / 3 }

// action is what a step does. Operations that use the same memory run on g and on twin, which is another group of the same ranks, or g.
type action struct {
	name  string
	issue func(s *step, g, twin *dist.Group) pending
}

var actions = []action{
	{"chain", actChain}, {"relay", actRelay}, act("allreduce"), act("reduce"), act("reducescatter"), act("broadcast"), act("gather"),
	act("scatter"), act("allgather"), act("alltoall"), act("allgatherv"), act("alltoallv"), act("ring"), act("barrier"),
	act("monitoredbarrier"), act("reducescatterv"), {"recvany", actRecvAny}, act("batch"),
}

// act is an operation of the table.
func act(name string) action {
	o := operation(name)
	return action{name, func(s *step, g, _ *dist.Group) pending {
		c := call{Operation: o, dtype: s.dtype, red: s.red, root: s.root % g.Size(), count: s.count, rows: s.rows, summed: name == "batch"}
		return c.on(g).issue()
	}}
}

// different is another operation than that of s.
func different(s *step) action {
	other := "barrier"
	if actions[s.what].name == other {
		other = "broadcast"
	}
	a := act(other)
	a.name += " instead"
	return a
}

// messages reports whether the operation consists of messages. They are not compared with collectives.
func (a *action) messages() bool {
	return a.name == "ring" || a.name == "recvany" || a.name == "batch" || a.name == "relay"
}

// RandomProgram returns the program of a seed.
func RandomProgram(seed uint64) *Program {
	rng := rand.New(rand.NewPCG(seed, 77))
	p := &Program{Seed: seed, Ranks: 2 + rng.IntN(4), Timeout: time.Minute, hurry: 1, ways: 1 + rng.IntN(3), depth: 1 + rng.IntN(6)}
	p.mesh = [2]int{1, p.Ranks}
	if p.Ranks == 4 {
		p.mesh = [2]int{2, 2}
	}
	for range 1 + rng.IntN(12) {
		p.steps = append(p.steps, p.randomStep(rng))
	}
	if rng.IntN(2) == 0 {
		p.Mishap = Mishap(1 + rng.IntN(int(numMishaps)-1))
	}
	p.Who, p.At = rng.IntN(p.Ranks), rng.IntN(len(p.steps))
	if p.Mishap == Differs { // in a group of more than one rank
		p.steps[p.At].family = world
	}
	return p
}

func (p *Program) randomStep(rng *rand.Rand) step {
	s := step{family: rng.IntN(numFamilies), what: rng.IntN(len(actions)), red: rng.IntN(len(reds)), root: rng.IntN(12),
		dtype: tensor.DType(rng.IntN(int(tensor.Bool))), count: rng.IntN(9), flush: rng.IntN(4) == 0}
	for !valid(reds[s.red].name, s.dtype) {
		s.red = rng.IntN(len(reds))
	}
	switch rng.IntN(8) {
	case 0, 1:
		s.count = rng.IntN(300)
	case 2:
		s.count = rng.IntN(5000)
	case 3:
		if rng.IntN(10) == 0 {
			s.count = rng.IntN(60_000)
		}
	}
	s.nap = make([]time.Duration, p.Ranks)
	for r := range s.nap {
		if rng.IntN(3) == 0 {
			s.nap[r] = time.Duration(rng.IntN(100)) * time.Millisecond
		}
	}
	return s
}

// flight is an operation that was not waited for.
type flight struct {
	name string
	pending
}

// Run runs the program on one rank.
func (p *Program) Run(r *dist.Rank) error {
	groups, err := p.groups(r)
	if err != nil {
		return err
	}
	me := r.World.Rank()
	var flying []flight
	for i := range p.steps {
		s := &p.steps[i]
		time.Sleep(s.nap[me] / p.hurry) //sleep: ranks arrive at random times, mostly in virtual time
		if p.Mishap != Nothing && me == p.Who && i == p.At {
			if over, err := p.mishap(r, groups); over {
				return err
			}
		}
		if g := groups[s.family]; g != nil {
			act := actions[s.what]
			if p.Mishap == Differs && me == p.Who && i == p.At {
				act = different(s)
			}
			twin := g
			if s.family == world || s.family == other {
				twin = groups[world+other-s.family]
			}
			flying = append(flying, flight{fmt.Sprintf("step %d: %s on %s", i, act.name, g.Name()), act.issue(s, g, twin)})
		}
		if s.flush || len(flying) >= p.depth {
			if err := waitFlights(flying); err != nil {
				return err
			}
			flying = flying[:0]
		}
	}
	return waitFlights(flying)
}

// groups makes one group of each family.
func (p *Program) groups(r *dist.Rank) ([numFamilies]*dist.Group, error) {
	out := [numFamilies]*dist.Group{world: r.World, other: r.World.With(dist.Name("other"))}
	me := r.World.Rank()
	var err error
	if out[split], err = r.World.Split(me%p.ways-p.ways/3, -me); err != nil { // with three ways, the ranks of one are in no group
		return out, err
	}
	m, err := r.Mesh(fmt.Sprintf("a=%d,b=%d", p.mesh[0], p.mesh[1]))
	if err != nil {
		return out, err
	}
	out[axisA], out[axisB] = m.Group("a"), m.Group("b")
	return out, nil
}

// mishap makes the mishap happen. It reports whether the rank's function must return.
func (p *Program) mishap(r *dist.Rank, groups [numFamilies]*dist.Group) (bool, error) {
	switch p.Mishap {
	case Sleeps:
		time.Sleep(2 * p.Timeout) //sleep: longer than the timeout, mostly in virtual time
	case Leaves:
		return true, nil
	case Fails:
		return true, p.boom()
	case Aborts:
		g := groups[p.steps[p.At].family]
		if g == nil {
			g = r.World
		}
		g.Abort(p.boom())
	}
	return false, nil
}

func (p *Program) boom() error { return fmt.Errorf("boom %d", p.Seed) }

// wrong is a wrong result, which no mishap excuses.
type wrong struct{ err error }

func (w *wrong) Error() string { return "WRONG RESULT: " + w.err.Error() }

func waitFlights(flying []flight) error {
	for i := range flying {
		f := &flying[(i*7+3)%len(flying)] // in some order
		if len(flying)%7 == 0 {
			f = &flying[i]
		}
		if err := waitAll(f.works...); err != nil {
			return err
		}
		var failed *dist.Error
		if err := f.check(); errors.As(err, &failed) {
			return err
		} else if err != nil {
			return &wrong{fmt.Errorf("%s: %w", f.name, err)}
		}
	}
	return nil
}
