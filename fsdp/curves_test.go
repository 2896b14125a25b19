package fsdp_test

import (
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/curve"
	"github.com/ringo-ml/ringo/tensor"
)

var update = flag.Bool("update", false, "write the picture of losses in docs")

// The picture of docs/parallelism.md has the losses of 60 steps on 2 hosts of 2 ranks, with what ZeRO++ rounds, and without.
func TestDocsCurves(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("on other processors, the plot's coordinates are rounded otherwise")
	}
	var runs []curve.Run
	for _, c := range []struct {
		name string
		cfg  fsdp.Config
	}{{"exact", fsdp.Config{}}, {"Weights: Int8", fsdp.Config{Weights: fsdp.Int8}}, {"Grads: Int4", fsdp.Config{Grads: fsdp.Int4}},
		{"both", fsdp.Config{Weights: fsdp.Int8, Grads: fsdp.Int4}}} {
		j := job{training: training{Mesh: "dp=1,host=2,gpu=2", Steps: 60}, cfg: c.cfg, near: true}
		j.cfg.DType = tensor.Float64 // other kernels add in another order, which must not show
		s := curve.Series{Name: "loss"}
		for i, loss := range j.run(t).Losses {
			s.Steps, s.Values = append(s.Steps, i), append(s.Values, loss)
		}
		runs = append(runs, curve.Run{Name: c.name, Series: []curve.Series{s}})
	}
	const page = "../docs/img/fsdp/zeropp.svg"
	file := page
	if !*update {
		file = filepath.Join(t.TempDir(), "zeropp.svg")
	}
	require.NoError(t, curve.Draw(file, runs...))
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	got, err := os.ReadFile(page)
	require.NoError(t, err)
	require.True(t, string(want) == string(got), "run go test ./fsdp -run Docs -update, and look at %s", page)
}
