package algo_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/tensor"
)

// abortWindow is a Window of two ranks. Rank 1 has posted everything and finished nothing. The group is aborted at the first access to a
// block.
type abortWindow struct {
	postings [2]backend.Posting
	touched  int
}

func (w *abortWindow) Rank() int                                   { return 0 }
func (w *abortWindow) Size() int                                   { return 2 }
func (w *abortWindow) Post(*backend.Op)                            {}
func (w *abortWindow) Posted(int) uint64                           { return 1 }
func (w *abortWindow) Posting(peer int, _ uint64) *backend.Posting { return &w.postings[peer] }
func (w *abortWindow) Finish(uint64)                               {}
func (w *abortWindow) Finished(int) uint64                         { return 0 }
func (w *abortWindow) Enter() bool                                 { return true }
func (w *abortWindow) Leave()                                      {}
func (w *abortWindow) Aborted() bool                               { return w.touched > 0 }
func (w *abortWindow) Touch(_ int, _ backend.Kind, _ int) bool     { w.touched++; return true }

// After an abort no further block of a peer's memory is accessed, also in the middle of a step.
func TestAbortEndsWithTheBlock(t *testing.T) {
	for _, kind := range []backend.Kind{backend.Broadcast, backend.Reduce} {
		w := &abortWindow{}
		for rank := range w.postings {
			x := make([]byte, 20*algo.BlockBytes)
			op := backend.Op{Kind: kind, DType: tensor.Uint8, Seq: 1, Count: len(x), Src: mem(x), Dst: mem(x)}
			if kind == backend.Broadcast {
				op.Root = 1
			}
			w.postings[rank].Fill(&op, "world", 7)
		}
		d := algo.NewDirect(backend.Spec{Name: "world", Ranks: []int{0, 1}}, w)
		d.Post(&w.postings[0].Op)
		_, err := d.Step()
		require.NoError(t, err)
		assert.Equal(t, 1, w.touched, "%v", kind)
	}
}
