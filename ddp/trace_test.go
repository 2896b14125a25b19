package ddp_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/trace"
	"github.com/ringo-ml/ringo/nn"
)

// TestOverlap: bucket 0 is on its way before the gradient rule of the first layer starts. A step has 3 products of
// matrices forward and 5 backward; the last one is the first layer's.
func TestOverlap(t *testing.T) {
	const steps, products = 3, 8
	j := job{ranks: 2, steps: steps, batch: 32, cfg: ddp.Config{BucketBytes: 1500}, trace: 10000}
	var rules, issued []int64
	j.inspect = func(r *dist.Rank, _ nn.Params) error {
		if r.World.Rank() != 0 {
			return nil
		}
		for _, s := range r.Trace.Spans() {
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
