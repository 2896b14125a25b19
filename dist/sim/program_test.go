package sim

import (
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/backend"
)

// A rank that awaits what it has not begun is told so: it does not wait for another exchange.
func TestAwaitOfNothing(t *testing.T) {
	p := &Program{Groups: [][]int{{0, 1}},
		Exchanges: []Exchange{{Kind: backend.AllReduce, Seq: 1, Bytes: 8}, {Kind: backend.AllReduce, Seq: 2, Bytes: 8}},
		Acts:      [][]Act{{{Of: 0}, {Of: 1, Await: true}}, {{Of: 0}}}}
	_, err := flat(3, 5).Play(p)
	require.ErrorContains(t, err, "sim: rank 0 awaits exchange 1, which it has not begun")
}

// An error ends the simulation also where other ranks have written down many steps, and are not done.
func TestErrorBesideLongPrograms(t *testing.T) {
	many := make([]Act, 4*manySteps)
	for k := range many {
		many[k].Of = -1
	}
	for at := range 2 * manySteps { // in each kind of step, when the other rank fails
		long := slices.Insert(slices.Clone(many), at, Act{Of: 0}, Act{Of: 0, Await: true})
		p := &Program{Groups: [][]int{{0, 1}},
			Exchanges: []Exchange{{Kind: backend.Send, Seq: 1, Bytes: 8}, {Kind: backend.AllReduce, Seq: 2, Bytes: 8}},
			Acts:      [][]Act{long, {{Of: 1, Await: true}}}}
		_, err := flat(3, 5).Play(p)
		require.ErrorContains(t, err, "sim: rank 1 awaits exchange 1, which it has not begun")
		p.Acts[1], p.Exchanges[0].Kind = []Act{{Compute: 1, Of: 1}, {Of: 0, Await: true}}, backend.AllReduce
		_, err = flat(3, 5).Play(p)
		require.ErrorContains(t, err, "sim: rank 1 awaits exchange 0, which it has not begun")
	}
}

// A program takes one block of addresses, however often its largest operation so far becomes larger.
func TestMemoryOfPrograms(t *testing.T) {
	p, acts := &Program{Groups: [][]int{{0, 1}}}, []Act(nil)
	for i := range 64 {
		p.Exchanges = append(p.Exchanges, Exchange{Kind: backend.AllReduce, Seq: uint64(i + 1), Bytes: (64 + i) << 20})
		acts = append(acts, Act{Of: i}, Act{Of: i, Await: true})
	}
	p.Acts = [][]Act{acts, acts}
	kept := nothing.Swap(nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := flat(3, 5).Play(p)
	runtime.ReadMemStats(&after)
	nothing.Store(kept)
	require.NoError(t, err)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(512<<20))
}
