package disttest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// Fault is called before a rank sends a block of bytes to a peer, or reads one from it. It may delay the rank. If it returns true, the
// block is lost and not counted.
type Fault func(rank, peer, bytes int) (drop bool)

// RunFaults runs the tests that need network faults. with makes a Start whose engines call the fault.
func RunFaults(t *testing.T, with func(f Fault) Start) {
	t.Run("SlowPeer", func(t *testing.T) { slowPeer(t, with) })
	t.Run("SlowAbort", func(t *testing.T) { slowAbort(t, with) })
	t.Run("LostBlock", func(t *testing.T) { lostBlock(t, with) })
}

// slowPeer delays accesses at random. No result may change: a changed result shows that memory was reused too early.
func slowPeer(t *testing.T, with func(f Fault) Start) {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(5, 5))
	delay := func(int, int, int) bool {
		mu.Lock()
		d := rng.IntN(300)
		mu.Unlock()
		if d < 100 {
			<-time.After(time.Duration(d) * time.Microsecond)
		}
		return false
	}
	s := &suite{start: with(delay)}
	for _, n := range []int{2, 3} {
		s.ok(t, n, func(r *dist.Rank) error {
			for step := range 12 {
				rows := func(from, to int) int { return (from + 2*to) % 4 * 300 }
				c := call{dtype: tensor.Float64, red: step % 5, count: 3000 + step, rows: rows}
				OK(runAll(r.World, atRoots(n, c, func(o *Operation) bool { return o.form != nothing })...))
			}
			return nil
		})
	}
}

// slowAbort aborts while peers are delayed just before they write. Wait must not return before they have finished.
func slowAbort(t *testing.T, with func(f Fault) Start) {
	start := with(func(int, int, int) bool {
		<-time.After(2 * time.Millisecond)
		return false
	})
	abortEach(t, start, 6, 50_000)
}

// lostBlock drops single blocks of all operations. The counted bytes, or the result, must show it.
func lostBlock(t *testing.T, with func(f Fault) Start) {
	// without loses a block of a rank, or if it is negative, of all ranks.
	without := func(nth int64, rank int) Start {
		var blocks atomic.Int64
		return with(func(r, _, _ int) bool { return (rank < 0 || r == rank) && blocks.Add(1) == nth })
	}
	moved := func(start Start) (n uint64) {
		total, _ := wire(t, start, 3, 6000)
		for _, b := range total {
			n += b
		}
		return n
	}
	full := moved(with(nil))
	for nth := int64(1); nth < 50; nth += 5 {
		assert.Less(t, moved(without(nth, -1)), full, "the loss of block %d was not noticed", nth)
	}
	var errs table[error]
	require.NoError(t, without(1, 1)(t, 3, quiet(0), func(r *dist.Rank) error {
		errs.put(r.World.Rank(), sum(r.World, tensor.Float32, 6000))
		return nil
	}))
	assert.Contains(t, fmt.Sprint(errs.rows), "sum: element", "a lost block must change the sum of some rank")
}
