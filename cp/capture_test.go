package cp_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/capture"
)

// Ranks that exchange heads have all documents, so a step with them can be captured. It does not compare them.
func TestCapturedDocumentsOfHeads(t *testing.T) {
	a, d := attentionOf{2, 12, 2, 2, 3}, division{1, 2}
	cfg := dist.Config{Ranks: 2, Threads: 1, Timeout: 20 * time.Second, Log: io.Discard}
	require.NoError(t, disttest.LauncherFor(t, "GPUs", 2)(t.Context(), cfg, func(_ context.Context, r *dist.Rank) error {
		f, tape, ids := d.of(r, a.hd), tensor.NewTape(r.Device), numbers(a.rows, a.total)
		for i := range tensor.Data[int64](ids) {
			tensor.Data[int64](ids)[i] = int64(i % a.total / 4)
		}
		step := capture.New(r.Device, func(in ...tensor.Tensor) error {
			q := tape.Input(in[0])
			tape.Apply(f, q, q, q, tape.Input(in[1])).Sum()
			tape.Reset()
			return nil
		})
		defer step.Close()
		x := f.PartOfDocuments(a.tensors()[0].WithRows(r.World.Rows(0, a.rows)), ids)
		for range 6 {
			if err := step.Run(x, ids); err != nil {
				return err
			}
		}
		return nil
	}))
}
