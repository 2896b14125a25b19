package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/internal/wait"
	"github.com/ringo-ml/ringo/tensor/memory"
	"github.com/ringo-ml/ringo/tensor/tensortest"
)

func short() options {
	wait.ParkAtOnce.Store(true)
	return options{ranks: 3, steps: 4, batch: 7, width: 20, layers: 3, length: 9}
}

// losses returns the losses in a table: of ddp and of each stage.
func losses(t *testing.T, o options) (out []float64) {
	var table bytes.Buffer
	require.NoError(t, run(o, &table))
	for _, m := range regexp.MustCompile(`(?m)^ *(?:ddp|stage \d) +([\d.]+) +([\d.]+) `).FindAllStringSubmatch(table.String(), -1) {
		for _, text := range m[1:] {
			v, err := strconv.ParseFloat(text, 64)
			require.NoError(t, err)
			out = append(out, v)
		}
	}
	require.Len(t, out, 8, table.String())
	return out
}

// Other devices give the same losses: those whose memory Go code cannot access, with the same kernels, exactly; GPUs (one shared by all
// ranks; in the long form, also one for each) to the digits of the table.
func TestDevices(t *testing.T) {
	o := short()
	if !reliability.Long(t) {
		o.steps, o.layers = 2, 2
	}
	want := losses(t, o)
	o.Device = tensortest.Remotes(t)
	require.Equal(t, want, losses(t, o))
	for _, gpus := range []int{1, 3} {
		if gpus == 3 && !reliability.Long(t) {
			break
		}
		o.Device = disttest.CUDA(t, emu.Config{Devices: gpus, Lazy: true})
		require.InDeltaSlice(t, want, losses(t, o), 2e-4)
	}
}

func TestLongDevices(t *testing.T) { reliability.AsLong(t, TestDevices) }

// TestTable: every stage has a line and its plan, and all stages and numbers of ranks have the same loss.
func TestTable(t *testing.T) {
	losses := ""
	for _, ranks := range []int{1, 3} {
		o := short()
		o.ranks = ranks
		var out bytes.Buffer
		require.NoError(t, run(o, &out))
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		require.Len(t, lines, 3+8)
		for i, name := range []string{"ddp", "stage 1", "stage 2", "stage 3"} {
			measured, planned := lines[3+2*i], lines[4+2*i]
			require.Contains(t, measured, name)
			require.Contains(t, planned, "plan")
			got := strings.Fields(strings.TrimPrefix(measured[strings.Index(measured, name):], name))
			require.Len(t, got, 2+len(kinds)+2)
			if losses == "" {
				losses = got[0] + got[1]
			}
			require.Equal(t, losses, got[0]+got[1])
			want := strings.Fields(planned[strings.Index(planned, "plan"):])[1:]
			require.Equal(t, want[len(want)-1], got[len(got)-1], "sent")
			require.Equal(t, want[0], got[2], "parameters")
		}
	}
}

// TestPlan: the counts of devices and groups are those of package plan: exactly if possible, else within 5%. In the short form,
// two ranks train in 16 bits, three in float32.
func TestPlan(t *testing.T) {
	for _, half := range []bool{false, true} {
		for ranks := 1; ranks <= 4; ranks++ {
			if (ranks == 1 || ranks == 4 || half != (ranks == 2)) && !reliability.Long(t) {
				continue
			}
			o := short()
			o.ranks, o.half, o.batch = ranks, half, 12
			var results []*result // of rank 0
			require.NoError(t, dist.Run(context.Background(), dist.Config{
				Ranks: ranks, Threads: 1, Log: io.Discard,
			}, func(ctx context.Context, r *dist.Rank) error {
				for stage := range 4 {
					forget(r.Device.Memory())
					res, err := fit(ctx, o, stage, r)
					if err != nil {
						return err
					}
					if r.World.Rank() == 0 {
						results = append(results, res)
					}
				}
				return nil
			}))
			for stage, res := range results {
				requirePlanned(t, o, stage, res)
			}
		}
	}
}

func TestLongPlan(t *testing.T) { reliability.AsLong(t, TestPlan) }

func requirePlanned(t *testing.T, o options, stage int, res *result) {
	p, err := o.plan(stage, o.ranks)
	require.NoError(t, err)
	what := fmt.Sprintf("stage %d, %d ranks, half %v", stage, o.ranks, o.half)
	require.Equal(t, p.Sent, res.sent, what)
	require.Equal(t, o.ranks > 1, res.sent > 0, what)
	for i, k := range kinds {
		got, want := res.peaks[0][i], p.Of(k) // rank 0 has the largest part
		switch {
		case k == memory.Activations:
			require.InEpsilon(t, want, got, 0.05, "%s: %v", what, k)
		case k == memory.Communication && got < want: // a block was reduced before the next one needed memory
			require.Equal(t, want, got+4*(12*o.width+13)*o.width, "%s: %v", what, k)
		default:
			require.Equal(t, want, got, "%s: %v", what, k)
		}
	}
	require.InEpsilon(t, p.Total, sum(res.most()), 0.05, what)
}

func TestOptions(t *testing.T) {
	for _, change := range []func(o *options){
		func(o *options) { o.ranks = 0 }, func(o *options) { o.steps = 1 }, func(o *options) { o.width = 21 }, func(o *options) { o.length = 0 },
		func(o *options) { o.batch = 2 },
	} {
		o := short()
		change(&o)
		err := o.check()
		if err == nil {
			err = run(o, io.Discard)
		}
		require.Error(t, err)
	}
}
