package disttest

import (
	"fmt"
	"math/rand/v2"
	"sync"
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
				for _, c := range atRoots(n, c, func(o *Operation) bool { return o.form != nothing }) {
					if err := c.run(r.World); err != nil {
						return err
					}
				}
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

// lostBlock drops one block of each operation in turn. The counted bytes, or the result, must show it.
func lostBlock(t *testing.T, with func(f Fault) Start) {
	full, _ := wire(t, with(nil), 3, 6000)
	for kind := range full {
		var mu sync.Mutex
		dropped := 0
		start := with(func(rank, peer, bytes int) bool {
			mu.Lock()
			defer mu.Unlock()
			dropped++
			return dropped == 5
		})
		total, _ := wire(t, start, 3, 6000)
		sum := func(m map[string]uint64) (n uint64) {
			for _, b := range m {
				n += b
			}
			return n
		}
		assert.Less(t, sum(total), sum(full), "a lost block of %s was not noticed", kind)
	}
	var errs table[error]
	lost := false
	var mu sync.Mutex
	start := with(func(rank, peer, bytes int) bool {
		mu.Lock()
		defer mu.Unlock()
		first := !lost && rank == 1
		lost = lost || first
		return first
	})
	require.NoError(t, start(t, 3, quiet(0), func(r *dist.Rank) error {
		errs.put(r.World.Rank(), sum(r.World, tensor.Float32, 6000))
		return nil
	}))
	wrong := fmt.Sprint(errs.rows)
	assert.Contains(t, wrong, "sum: element", "a lost block must change the sum of some rank")
}
