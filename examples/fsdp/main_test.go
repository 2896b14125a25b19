package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/tensortest"
)

func short() options {
	return options{ranks: 3, steps: 4, batch: 7, width: 20, layers: 3, length: 9}
}

// On devices whose memory Go code cannot touch, with the same kernels, the same table comes out.
func TestDevice(t *testing.T) {
	o := short()
	var want, got bytes.Buffer
	require.NoError(t, run(o, &want))
	o.device = tensortest.Remotes(t)
	require.NoError(t, run(o, &got))
	losses := func(table string) (out []string) {
		for _, line := range strings.Split(table, "\n")[3:] {
			if f := strings.Fields(line); len(f) > 3 && !strings.Contains(line, "plan") {
				out = append(out, strings.Join(f[:4], " "))
			}
		}
		return out
	}
	require.Len(t, losses(want.String()), 4)
	require.Equal(t, losses(want.String()), losses(got.String()))
}

// TestTable: every stage has a line beside its plan, and all stages and numbers of ranks have one loss.
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

// TestPlan: what devices and groups count is what package plan says: to the byte where it can be, else within 5%.
func TestPlan(t *testing.T) {
	for _, half := range []bool{false, true} {
		for ranks := 1; ranks <= 4; ranks++ {
			o := short()
			o.ranks, o.half, o.batch = ranks, half, 12
			var results []*result // of rank 0
			require.NoError(t, dist.Run(context.Background(), dist.Config{Ranks: ranks, Threads: 1, Log: io.Discard}, func(_ context.Context, r *dist.Rank) error {
				for stage := range 4 {
					forget(r.Device.Memory())
					res, err := train(o, stage, r)
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

func requirePlanned(t *testing.T, o options, stage int, res *result) {
	p, err := o.plan(stage, o.ranks)
	require.NoError(t, err)
	what := fmt.Sprintf("stage %d, %d ranks, half %v", stage, o.ranks, o.half)
	require.Equal(t, p.Sent, res.sent, what)
	require.Equal(t, o.ranks > 1, res.sent > 0, what)
	for i, k := range kinds {
		got, want := res.peaks[0][i], p.Of(k) // rank 0 has the largest part
		switch {
		case k == tensor.Activations:
			require.InEpsilon(t, want, got, 0.05, "%s: %v", what, k)
		case k == tensor.Communication && got < want: // a block was reduced before the next one needed memory
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
		require.Error(t, run(o, io.Discard))
	}
}
