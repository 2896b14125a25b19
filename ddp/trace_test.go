package ddp_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/trace"
)

// TestOverlap: bucket 0 is on its way before the gradient rule of the first layer starts. A step has 3 products of
// matrices forward and 5 backward; the last one is the first layer's.
func TestOverlap(t *testing.T) {
	const steps, products = 3, 8
	j := job{training: simple(2, steps, 32), cfg: ddp.Config{BucketBytes: 1500}}
	j.Trace = 10000
	var rules, issued []int64
	j.end = func(state *disttest.State) error {
		if state.Rank.World.Rank() != 0 {
			return nil
		}
		for _, s := range state.Rank.Trace.Spans() {
			switch {
			case s.Track == trace.Compute && (s.Name == "matmul" || s.Name == "linear_act"):
				rules = append(rules, s.Start)
			case s.Track == trace.Comm && s.Name == "allreduce:direct":
				issued = append(issued, s.Start)
			}
		}
		return nil
	}
	j.run(t)
	require.Len(t, rules, steps*products)
	for i := range steps {
		begin, last := rules[i*products], rules[i*products+products-1]
		require.True(t, slices.ContainsFunc(issued, func(at int64) bool { return begin < at && at < last }), "step %d", i)
	}
}
