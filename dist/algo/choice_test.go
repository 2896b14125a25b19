package algo_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

// chosen are the kinds that have a choice of algorithms.
var chosen = []backend.Kind{backend.Broadcast, backend.Reduce, backend.AllReduce, backend.AllGather, backend.ReduceScatter,
	backend.AllToAll, backend.AllGatherV, backend.ReduceScatterV, backend.AllToAllV, backend.Barrier}

// clusters are the layouts of these tests: 2 to 16 ranks, 64 in the long form, on 1 to 8 hosts of equal and of different sizes, and some
// whose ranks are on the hosts in turn.
func clusters(t *testing.T) []algo.Layout {
	spread := func(sizes ...int) (l algo.Layout) {
		for host, n := range sizes {
			l = append(l, slices.Repeat([]int{host}, n)...)
		}
		return l
	}
	turns := func(n, hosts int) (l algo.Layout) {
		for r := range n {
			l = append(l, r%hosts)
		}
		return l
	}
	all := []algo.Layout{algo.OneHost(2), algo.OneHost(7), algo.OneHost(16), spread(1, 1), spread(2, 2), spread(3, 1), spread(7, 1),
		spread(1, 7), spread(3, 3, 3, 3, 3), spread(1, 1, 1, 1, 1, 1, 1, 1), spread(4, 2, 1), spread(5, 8, 3), spread(8, 8), turns(12, 3),
		turns(11, 4), spread(8, 8, 8, 8, 8, 8, 8, 8)}
	if !reliability.Long(t) {
		return all[:len(all)-1]
	}
	for _, n := range []int{2, 3, 4, 5, 6, 8, 9, 12, 15, 16, 20, 24, 31, 32, 40, 60, 64} {
		for hosts := 1; hosts <= min(n, 8); hosts++ {
			even := make(algo.Layout, n)
			for r := range even {
				even[r] = r * hosts / n
			}
			all = append(all, even, turns(n, hosts))
			if n <= 8 {
				all = append(all, append(make(algo.Layout, n-hosts), turns(hosts, hosts)...))
			}
		}
	}
	return all
}

// seen is the counts of one operation.
type seen struct {
	across   int // bytes from host to host
	host     int // of these, what the busiest host sent or received, whichever is more
	messages int // messages that the busiest host sent and received
	rounds   int
}

// watch runs an operation of so many bytes with an algorithm.
func (w *world) watch(kind backend.Kind, name string, bytes, root int) seen {
	n := len(w.at)
	count := bytes / n
	if kind == backend.Broadcast || kind == backend.Reduce || kind == backend.AllReduce {
		count = bytes
	}
	w.net.Rounds()
	w.run(func(int) backend.Op { return sized(kind, name, n, root, count) })
	out, in, messages := make([]int, n), make([]int, n), make([]int, n)
	for r := range w.senders {
		for p, b := range w.senders[r].to {
			messages[w.at[r]] += w.senders[r].many[p]
			messages[w.at[p]] += w.senders[r].many[p]
			if w.at[p] != w.at[r] {
				out[w.at[r]] += int(b)
				in[w.at[p]] += int(b)
			}
		}
	}
	return seen{w.crossed(), max(slices.Max(out), slices.Max(in)), slices.Max(messages), w.net.Rounds()}
}

// may reports whether an algorithm may be chosen: inside a host reductions are in rank order.
func (w *world) may(kind backend.Kind, name string) bool {
	return w.at.Hosts() > 1 || !kind.Reduces() || algo.InRankOrder(name)
}

// For large buffers, the chosen algorithm sends at most a tenth more between hosts than any other one, except those whose busiest host
// would have a tenth more to do. For small buffers it takes at most twice the rounds of the best one, unless it was measured. And each
// cost is what the transport counts.
func TestChoicesAtScale(t *testing.T) {
	for _, l := range clusters(t) {
		t.Run(fmt.Sprint(l), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, tuner := newWorldAt(t, l), algo.NewTuner(l)
				for _, kind := range chosen {
					for _, root := range []int{0, len(l) - 1} {
						if root == 0 || kind == backend.Broadcast || kind == backend.Reduce {
							w.choices(tuner, kind, root)
						}
					}
				}
			})
		})
	}
}

func TestLongChoicesAtScale(t *testing.T) { reliability.AsLong(t, TestChoicesAtScale) }

func (w *world) choices(tuner *algo.Tuner, kind backend.Kind, root int) {
	n := len(w.at)
	bytes, of := 240*n, map[string]seen{}
	for _, name := range algo.Names(kind) {
		of[name] = w.watch(kind, name, bytes, root)
	}
	best := func(f func(s seen) int) int {
		least := -1
		for name, s := range of {
			if w.may(kind, name) && (least < 0 || f(s) < least) {
				least = f(s)
			}
		}
		return least
	}
	for _, size := range []int{16 << 20, 64 << 20, 1 << 30} {
		mine := tuner.Explain(kind, size).Algo
		require.True(w.t, w.may(kind, mine), "%v by %s", kind, mine)
		for name, s := range of {
			if w.may(kind, name) && float64(of[mine].across) > 1.1*float64(s.across) {
				assert.Greater(w.t, float64(s.host), 1.1*float64(of[mine].host), "%v of %d bytes by %s, root %d: %s sends fewer from host to host",
					kind, size, mine, root, name)
			}
		}
	}
	rounds := best(func(s seen) int { return s.rounds })
	for _, size := range []int{1, 64, 1 << 10} {
		c := tuner.Explain(kind, size)
		if !c.Measured {
			assert.LessOrEqual(w.t, of[c.Algo].rounds, 2*rounds, "%v of %d bytes by %s, root %d: rounds", kind, size, c.Algo, root)
		}
	}
	if root > 0 {
		return
	}
	for _, c := range tuner.Explain(kind, 1).Candidates {
		w.costs(kind, c, of[c.Algo], bytes)
	}
}

// costs compares a formula with the counts. If not all ranks take part in a round, it may overlap with the next one.
func (w *world) costs(kind backend.Kind, c algo.Candidate, s seen, bytes int) {
	if kind != backend.AllToAllV && kind != backend.Barrier {
		all := float64(bytes)
		assert.InDelta(w.t, c.Cost.Host*all, float64(s.host), 0.02*all, "%v by %s: bytes of the busiest host", kind, c.Algo)
		if c.Algo == "chain" {
			all *= 51 // with some roots it goes between hosts once more
		}
		assert.InDelta(w.t, c.Cost.Network*float64(bytes*w.at.Hosts()), float64(s.across), 0.02*all, "%v by %s: bytes between hosts",
			kind, c.Algo)
	}
	rounds := c.Cost.Inside + c.Cost.Across
	assert.LessOrEqual(w.t, 2*s.rounds, 3*rounds, "%v by %s: rounds: %+v", kind, c.Algo, c.Cost)
	assert.LessOrEqual(w.t, 2*rounds, 3*s.rounds, "%v by %s: rounds: %+v", kind, c.Algo, c.Cost)
	assert.LessOrEqual(w.t, 2*s.messages, 3*c.Cost.Messages, "%v by %s: messages: %+v", kind, c.Algo, c.Cost)
	assert.LessOrEqual(w.t, 2*c.Cost.Messages, 3*s.messages, "%v by %s: messages: %+v", kind, c.Algo, c.Cost)
}

// Bruck's algorithms do a large buffer in columns, each with all rounds. If they do not send fewer bytes than others, they are only for
// small buffers. And if the network is not the limit, a rank that sends everything is still the bottleneck.
func TestLargeBuffersAreStreamed(t *testing.T) {
	for _, kind := range []backend.Kind{backend.AllGather, backend.ReduceScatter, backend.AllToAll} {
		tuner := algo.NewTuner(algo.Layout{0, 1, 2, 3, 4, 5, 6, 7})
		assert.Equal(t, "bruck", tuner.Explain(kind, 8<<10).Algo, kind)
		assert.NotEqual(t, "bruck", tuner.Explain(kind, 64<<20).Algo, kind)
	}
	tuner := algo.NewTuner(algo.OneHost(16))
	assert.Equal(t, "binomial", tuner.Explain(backend.Broadcast, 8<<10).Algo)
	assert.Equal(t, "chain", tuner.Explain(backend.Broadcast, 64<<20).Algo)
	assert.Equal(t, "direct", tuner.Explain(backend.AllReduce, 64<<20).Algo)
}

// On several hosts, sums in rank order use linear or direct, by size.
func TestRankOrderAtScale(t *testing.T) {
	tuner := algo.NewTuner(algo.Layout{0, 0, 0, 0, 1, 1, 1, 1})
	op := backend.Op{Kind: backend.AllReduce, Algo: backend.RankOrder, DType: tensor.Float32, Count: 1}
	assert.Equal(t, "linear", tuner.Choose(&op))
	op.Count = 16 << 20
	assert.Equal(t, "direct", tuner.Choose(&op))
}
