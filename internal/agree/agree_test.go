package agree_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/agree"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// net is a network of members, with a queue for each direction. If a pair is cut, messages on their way are lost.
type net struct {
	n     int
	rng   *rand.Rand
	nodes []*agree.Node
	queue map[[2]int][]agree.Message
	cut   map[[2]int]bool
	dead  []bool
}

func newNet(n int, seed uint64) *net {
	w := &net{n: n, rng: rand.New(rand.NewPCG(seed, uint64(n))), queue: map[[2]int][]agree.Message{}, cut: map[[2]int]bool{},
		dead: make([]bool, n)}
	for i := range n {
		w.nodes = append(w.nodes, agree.New(n, i, func(to int, m agree.Message) {
			if !w.cut[[2]int{i, to}] && !w.dead[to] && !w.dead[i] {
				w.queue[[2]int{i, to}] = append(w.queue[[2]int{i, to}], m)
			}
		}))
	}
	return w
}

// deliver delivers one message, chosen at random. It returns false if there is none.
func (w *net) deliver(t *testing.T) bool {
	var ready [][2]int
	for from := range w.n {
		for to := range w.n {
			if len(w.queue[[2]int{from, to}]) > 0 {
				ready = append(ready, [2]int{from, to})
			}
		}
	}
	if len(ready) == 0 {
		return false
	}
	k := ready[w.rng.IntN(len(ready))]
	m := w.queue[k][0]
	w.queue[k] = w.queue[k][1:]
	require.NoError(t, m.Check(w.n))
	w.nodes[k[1]].Handle(k[0], m)
	return true
}

// sever cuts the connection of a and b; both notice it.
func (w *net) sever(a, b int) {
	for _, k := range [][2]int{{a, b}, {b, a}} {
		w.cut[k] = true
		w.queue[k] = nil
		if !w.dead[k[0]] {
			w.nodes[k[0]].Lost(k[1])
		}
	}
}

func (w *net) kill(a int) {
	for b := range w.n {
		if b != a {
			w.sever(a, b)
		}
	}
	w.dead[a] = true
}

// check requires that all decisions are the same, and a quorum. It returns the decision.
func (w *net) check(t *testing.T, what string) []int {
	var all []int
	for i, v := range w.nodes {
		if d := v.Decided(); d != nil {
			require.True(t, agree.Quorum(w.n, len(d), slices.Contains(d, 0)), "%s: member %d decided %v", what, i, d)
			if all == nil {
				all = d
			}
			require.Equal(t, all, d, "%s: member %d", what, i)
		}
	}
	return all
}

// settle delivers all messages, with ticks, until nothing changes.
func (w *net) settle(t *testing.T) {
	for round := 0; ; round++ {
		for w.deliver(t) {
		}
		for _, i := range w.rng.Perm(w.n) {
			if !w.dead[i] {
				w.nodes[i].Tick()
			}
			for w.rng.IntN(3) > 0 && w.deliver(t) {
			}
		}
		empty := true
		for _, q := range w.queue {
			empty = empty && len(q) == 0
		}
		if empty && round > 3 {
			return
		}
		require.Less(t, round, 1000, "no end")
	}
}

// Hundreds of random histories, thousands in the long form, of deaths, cuts, late members and members that do not wait. There is never a
// second decision. If all that are left can reach one another, they decide, or know that they are too few.
func TestOneDecision(t *testing.T) {
	decided, split, died, seeds := 0, 0, 0, 500
	if reliability.Long(t) {
		seeds = 6_000
	}
	for seed := range uint64(seeds) {
		n := 1 + int(seed%7)
		w := newNet(n, seed)
		what := fmt.Sprintf("seed %d, %d members", seed, n)
		for range 3 * n {
			switch a, b := w.rng.IntN(n), w.rng.IntN(n); w.rng.IntN(12) {
			case 0:
				if !w.dead[a] && w.rng.IntN(2) == 0 {
					w.kill(a)
					died++
				}
			case 1:
				if a != b {
					w.sever(a, b)
				}
			case 2:
				if !w.dead[a] {
					w.nodes[a].Hurry()
				}
			case 3:
				if !w.dead[a] {
					w.nodes[a].Leave()
				}
			case 4:
				if !w.dead[a] {
					w.nodes[a].Tick()
				}
			default:
				if !w.dead[a] {
					w.nodes[a].Join()
				}
			}
			for w.rng.IntN(4) > 0 && w.deliver(t) {
			}
			w.check(t, what)
		}
		for i, v := range w.nodes { // now all living members want a group, and wait no longer
			if !w.dead[i] {
				v.Join()
				v.Hurry()
			}
		}
		w.settle(t)
		if w.check(t, what) != nil {
			decided++
		} else {
			split++
		}
	}
	t.Logf("%d decisions, %d without a quorum, %d deaths", decided, split, died)
	assert.Greater(t, decided, seeds/3)
	assert.Positive(t, split)
}

func TestLongOneDecision(t *testing.T) { reliability.AsLong(t, TestOneDecision) }

// join makes some members ask, and delivers all messages.
func (w *net) join(t *testing.T, members ...int) {
	for _, i := range members {
		w.nodes[i].Join()
	}
	w.settle(t)
}

// A member dies as soon as it has asked, and the others notice it one after the other. No one is left out because it was the first to
// notice.
func TestDeathIsNoticedByTurns(t *testing.T) {
	left, seeds := 0, histories(t)
	for seed := range uint64(seeds) {
		n := 4 + int(seed%4)
		w := newNet(n, seed)
		w.kill(1)
		for i, v := range w.nodes {
			if i != 1 {
				v.Join()
			}
		}
		for w.rng.IntN(8) > 0 && w.deliver(t) {
		}
		w.dead[3] = true
		for _, i := range w.rng.Perm(n) {
			if i != 1 && i != 3 {
				w.cut[[2]int{i, 3}] = true
				w.queue[[2]int{3, i}] = nil
				w.nodes[i].Lost(3)
			}
			for w.rng.IntN(4) > 0 && w.deliver(t) {
			}
		}
		w.settle(t)
		got := w.check(t, fmt.Sprint("seed ", seed))
		for i := range n {
			require.True(t, i == 1 || i == 3 || slices.Contains(got, i), "seed %d: %v without %d", seed, got, i)
		}
		if !slices.Contains(got, 3) {
			left++
		}
	}
	assert.Positive(t, left)
	assert.Less(t, left, seeds, "somebody who died later is part of what was decided")
}

func TestLongDeathIsNoticedByTurns(t *testing.T) { reliability.AsLong(t, TestDeathIsNoticedByTurns) }

// histories is how many of them a test has.
func histories(t *testing.T) int {
	if reliability.Long(t) {
		return 2_000
	}
	return 500
}

func TestSurvivorsInOrder(t *testing.T) {
	w := newNet(5, 1)
	w.kill(3)
	w.kill(0)
	w.join(t, 4, 1, 2)
	for _, i := range []int{1, 2, 4} {
		assert.Equal(t, []int{1, 2, 4}, w.nodes[i].Decided())
	}
}

// After a cut, at most one side decides, also if both have the same size.
func TestCut(t *testing.T) {
	for _, n := range []int{2, 3, 4, 5, 6} {
		for cut := 1; cut < n; cut++ {
			w := newNet(n, uint64(cut))
			for a := range cut {
				for b := cut; b < n; b++ {
					w.sever(a, b)
				}
			}
			for i := range n {
				w.join(t, i)
			}
			for i := range n {
				side := cut
				if i >= cut {
					side = n - cut
				}
				wins := agree.Quorum(n, side, i < cut)
				assert.Equal(t, wins, w.nodes[i].Decided() != nil, "%d members cut at %d: member %d", n, cut, i)
				if !wins && (i == 0 || i == cut) {
					assert.True(t, w.nodes[i].Hopeless(), "%d members cut at %d: member %d", n, cut, i)
				}
			}
		}
	}
}

// The leader dies after some members have voted. The next leader finds the same decision.
func TestLeaderDies(t *testing.T) {
	for seed := range uint64(300) {
		w := newNet(4, seed)
		w.kill(3)
		for _, i := range []int{0, 1, 2} {
			w.nodes[i].Join()
		}
		for range w.rng.IntN(25) {
			w.deliver(t)
		}
		first := w.nodes[0].Decided()
		w.kill(0)
		w.settle(t)
		list := w.check(t, fmt.Sprint("seed ", seed))
		if first != nil {
			require.Equal(t, first, list)
		}
	}
}

// A minority dies, and each survivor notices it at another time. None gives up, and they decide without Hurry.
func TestDeathsNoticedLate(t *testing.T) {
	for seed := range uint64(histories(t)) {
		n := 3 + int(seed%6)
		w := newNet(n, seed)
		order := w.rng.Perm(n)
		dead, alive := order[:(n-1)/2], order[(n-1)/2:]
		news := [][2]int{} // which member will notice whose death
		for _, d := range dead {
			for _, a := range alive {
				news = append(news, [2]int{a, d})
			}
		}
		w.rng.Shuffle(len(news), func(i, k int) { news[i], news[k] = news[k], news[i] })
		for _, i := range order {
			w.nodes[i].Join()
			for w.rng.IntN(3) > 0 && w.deliver(t) {
			}
		}
		for _, d := range dead { // their messages are still on the way
			w.dead[d] = true
			for i := range n {
				w.queue[[2]int{i, d}] = nil
			}
		}
		for len(news) > 0 {
			if w.rng.IntN(3) == 0 {
				a, d := news[0][0], news[0][1]
				news, w.queue[[2]int{d, a}] = news[1:], nil
				w.nodes[a].Lost(d)
			}
			w.deliver(t)
			for _, a := range alive {
				require.False(t, w.nodes[a].Hopeless(), "seed %d, %d members: member %d", seed, n, a)
			}
		}
		w.settle(t)
		require.NotNil(t, w.check(t, fmt.Sprint("seed ", seed)), "seed %d, %d members", seed, n)
	}
}

func TestLongDeathsNoticedLate(t *testing.T) { reliability.AsLong(t, TestDeathsNoticedLate) }

// Members that do not come are waited for until a member hurries. They learn of the decision when they come.
func TestLatecomer(t *testing.T) {
	w := newNet(3, 1)
	w.join(t, 0, 1)
	require.Nil(t, w.check(t, ""))
	assert.Equal(t, []int{2}, w.nodes[0].Waiting())
	w.nodes[0].Hurry()
	w.settle(t)
	assert.Equal(t, []int{0, 1}, w.nodes[1].Decided())
	w.join(t, 2)
	assert.Equal(t, []int{0, 1}, w.nodes[2].Decided())
}

// Two members that cannot reach each other are not both in the new group.
func TestBadConnection(t *testing.T) {
	w := newNet(4, 1)
	w.sever(1, 3)
	w.sever(1, 2)
	w.join(t, 0, 1, 2, 3)
	assert.Equal(t, []int{0, 2, 3}, w.check(t, ""))
}

func TestCheck(t *testing.T) {
	for _, m := range []agree.Message{{Kind: 99}, {List: []int{3}}, {List: []int{-1}}, {List: []int{1, 0}}, {List: []int{1, 1}}} {
		assert.Error(t, m.Check(3), "%+v", m)
	}
}
