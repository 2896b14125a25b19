package curve_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/curve"
)

var update = flag.Bool("update", false, "write the picture of losses in docs")

// The picture of docs/parallelism.md shows what ZeRO++ rounds: the losses that a test of fsdp compares.
func TestDocsCurves(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("on other processors, the plot's coordinates are rounded otherwise")
	}
	text, err := os.ReadFile("../../fsdp/testdata/zeropp.json")
	require.NoError(t, err)
	var list []struct {
		Name   string
		Losses []float64
	}
	require.NoError(t, json.Unmarshal(text, &list))
	var runs []curve.Run
	for _, r := range list {
		s := curve.Series{Name: "loss", Values: r.Losses}
		for i := range r.Losses {
			s.Steps = append(s.Steps, i)
		}
		runs = append(runs, curve.Run{Name: r.Name, Series: []curve.Series{s}})
	}
	const page = "../../docs/img/fsdp/zeropp.svg"
	file := page
	if !*update {
		file = filepath.Join(t.TempDir(), "zeropp.svg")
	}
	require.NoError(t, curve.Draw(file, runs...))
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	got, err := os.ReadFile(page)
	require.NoError(t, err)
	require.True(t, string(want) == string(got), "run go test ./internal/curve -run Docs -update, and look at %s", page)
}
