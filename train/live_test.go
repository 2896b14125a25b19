package train_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/live"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/optim/schedule"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/train"
)

// The live view has what the optimizer knows, also of a script that logs nothing.
func TestLiveOptimizer(t *testing.T) {
	for clip, want := range map[float64]map[string]float64{
		0: {"learning rate": 0.25, "skipped steps": 0},
		1: {"learning rate": 0.25, "skipped steps": 0, "gradient norm": 5},
	} {
		err := dist.Run(t.Context(), dist.Config{Ranks: 1, Log: io.Discard}, func(ctx context.Context, r *dist.Rank) error {
			r.Live = live.NewRecorder(func() time.Duration { return 0 })
			p := tensor.NewParam(tensor.Constant(1), 2)
			p.SetName("p")
			p.Make(r.Device, tensor.Float64, 0)
			opt := optim.NewSGD(nn.Params{p}, optim.SGDConfig{LR: 0.5, Clip: clip, Schedule: schedule.Linear(1, 0, 4)})
			tape := tensor.NewTape(r.Device)
			l, err := train.Start(ctx, r, &train.Options{}, ckpt.State{Params: nn.Params{p}, Optimizer: opt, Tape: tape})
			require.NoError(t, err)
			for range l.Steps(2) {
				tape.Backward(tape.Use(p).Mul(tensor.FromSlice([]float64{3, 4}, 2)).Sum())
				require.NoError(t, opt.Step())
				tape.Reset()
			}
			require.NoError(t, l.Close())
			var got live.Report
			r.Live.Take(&got)
			last := map[string]float64{}
			for _, v := range got.Values {
				require.Equal(t, 2, v.Steps[len(v.Steps)-1], v.Name)
				last[v.Name] = float64(v.Values[len(v.Values)-1])
			}
			assert.Equal(t, want, last)
			return nil
		})
		require.NoError(t, err)
	}
}
