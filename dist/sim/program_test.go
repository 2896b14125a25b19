package sim

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/backend"
)

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
