package metrics_test

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/train/metrics"
)

var at = time.UnixMilli(1_700_000_000_250)

func write(t *testing.T, name string, last int, rows map[int]map[string]float64, order ...int) string {
	t.Helper()
	f, err := metrics.Open(name, last)
	require.NoError(t, err)
	for _, step := range order {
		require.NoError(t, f.Write(step, at, rows[step]))
	}
	require.NoError(t, f.Close())
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}

func TestFiles(t *testing.T) {
	rows := map[int]map[string]float64{1: {"loss": 2.5, "lr": 1e-4}, 2: {"loss": math.NaN()}, 3: {"loss": math.Inf(-1)}, 10: {"loss": 0.1}}
	for ext, want := range map[string][3]string{
		".jsonl": {
			`{"step":1,"time":1700000000.250,"loss":2.5,"lr":0.0001}` + "\n" + `{"step":2,"time":1700000000.250,"loss":"NaN"}` + "\n",
			`{"step":3,"time":1700000000.250,"loss":"-Inf"}` + "\n",
			`{"step":10,"time":1700000000.250,"loss":0.1}` + "\n",
		},
		".csv": {
			"step,time,name,value\n1,1700000000.250,loss,2.5\n1,1700000000.250,lr,0.0001\n2,1700000000.250,loss,NaN\n",
			"3,1700000000.250,loss,-Inf\n",
			"10,1700000000.250,loss,0.1\n",
		},
	} {
		name := filepath.Join(t.TempDir(), "m"+ext)
		require.True(t, metrics.Ext(name))
		require.Equal(t, want[0]+want[1]+want[2], write(t, name, 0, rows, 1, 2, 3, 10))
		require.Equal(t, want[0]+want[2], write(t, name, 2, rows, 10), "goes on behind step 2")
		f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = f.WriteString(want[1][:len(want[1])-8]) // cut short
		require.NoError(t, err)
		require.NoError(t, f.Close())
		require.Equal(t, want[0]+want[2], write(t, name, 20, nil))
		begun := write(t, name, 0, rows)
		require.NotContains(t, begun, "loss", "a new run begins anew")
		require.NoError(t, os.Remove(name))
		require.Equal(t, begun+want[2], write(t, name, 5, rows, 10), "a file that is gone")
	}
	require.False(t, metrics.Ext("m.json"))
	f, err := metrics.Open(filepath.Join(t.TempDir(), "m.csv"), 0)
	require.NoError(t, err)
	require.EqualError(t, f.Write(3, at, map[string]float64{"time": 1}),
		`metrics: a value of step 3 is named "time", as what every line begins with`)
	require.NoError(t, f.Close())
	_, err = metrics.Open(filepath.Join(t.TempDir(), "none", "m.csv"), 3)
	require.ErrorContains(t, err, "none")
}
