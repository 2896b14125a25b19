package fsdp_test

import (
	"encoding/json"
	"flag"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

var update = flag.Bool("update", false, "write the losses in testdata")

// The picture of docs/parallelism.md has the losses of 60 steps on 2 hosts of 2 ranks, with what ZeRO++ rounds, and without. They are in
// testdata, from which internal/curve draws them. The short form has the first steps of one curve.
func TestDocsCurves(t *testing.T) {
	const file = "testdata/zeropp.json"
	var runs []run
	for _, c := range []struct {
		name string
		cfg  fsdp.Config
	}{{"exact", fsdp.Config{}}, {"Weights: Int8", fsdp.Config{Weights: fsdp.Int8}}, {"Grads: Int4", fsdp.Config{Grads: fsdp.Int4}},
		{"both", fsdp.Config{Weights: fsdp.Int8, Grads: fsdp.Int4}}} {
		j := job{training: training{Mesh: "dp=1,host=2,gpu=2", Steps: 60}, cfg: c.cfg, near: true}
		j.cfg.DType = tensor.Float64 // other kernels add in another order, which must not show
		r := run{Name: c.name}
		short := !*update && !reliability.Long(t)
		if runs = append(runs, r); short && c.name != "both" {
			continue
		}
		if short {
			j.Steps = 15
		}
		for _, loss := range j.run(t).Losses {
			runs[len(runs)-1].Losses = append(runs[len(runs)-1].Losses, math.Round(loss*1e5)/1e5)
		}
	}
	if *update {
		text, err := json.MarshalIndent(runs, "", "\t")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, append(text, '\n'), 0o666))
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var want []run
	require.NoError(t, json.Unmarshal(text, &want))
	require.Len(t, want, len(runs))
	for i, r := range runs {
		require.Equal(t, want[i].Name, r.Name)
		require.InDeltaSlice(t, want[i].Losses[:len(r.Losses)], r.Losses, 2e-5, "run go test ./fsdp ./internal/curve -run Docs -update")
	}
}

func TestLongDocsCurves(t *testing.T) { reliability.AsLong(t, TestDocsCurves) }

type run struct {
	Name   string
	Losses []float64
}
