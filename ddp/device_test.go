package ddp_test

import (
	"testing"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/tensor"
)

// Ranks whose devices have memory of their own equal one rank in host memory: buckets, microbatches, a model that has values,
// and with the naive synchronization.
func TestDevicesEqualOneRank(t *testing.T) {
	one := job{ranks: 1, steps: 12, batch: 64, micro: 2, dtype: tensor.Float64, adamw: true}
	want := one.run(t)
	for _, m := range disttest.Machines() {
		t.Run(m.Name, func(t *testing.T) {
			for _, n := range []int{1, 2, 3, 4} {
				for _, attach := range []attacher{ddp.Attach, ddp.Naive} {
					many := one
					many.ranks, many.attach, many.launch = n, attach, m.Start(t, 4)
					many.cfg.BucketBytes = 2000 // several buckets
					got := many.run(t)
					requireClose(t, want.losses, got.losses, 1e-10, "loss", n)
					requireClose(t, want.params, got.params, 1e-10, "parameter", n)
				}
			}
		})
	}
}
