package metrics_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/train/metrics"
)

// What was written is read again, from both kinds of file.
func TestRead(t *testing.T) {
	rows := map[int]map[string]float64{1: {"loss": 2.5, "lr, scaled": 1e-4}, 2: {"loss": math.Inf(-1)}, 7: {"loss": 0.1, "a": 3}}
	for _, ext := range []string{".jsonl", ".csv"} {
		name := filepath.Join(t.TempDir(), "m"+ext)
		write(t, name, 0, rows, 1, 2, 7)
		got, err := metrics.Read(name)
		require.NoError(t, err)
		require.Equal(t, []metrics.Series{{"loss", []int{1, 2, 7}, []float64{2.5, math.Inf(-1), 0.1}}, {"lr, scaled", []int{1}, []float64{1e-4}},
			{"a", []int{7}, []float64{3}}}, got)
	}
}

// Series are JSON that checkpoints keep, NaN too.
func TestSeries(t *testing.T) {
	const want = `[{"name":"loss","steps":[1,3],"values":["-Inf",0.1]},{"name":"none","steps":null,"values":[]}]`
	text, err := json.Marshal([]*metrics.Series{{"loss", []int{1, 3}, []float64{math.Inf(-1), 0.1}}, {Name: "none"}})
	require.NoError(t, err)
	require.Equal(t, want, string(text))
	var got []*metrics.Series
	require.NoError(t, json.Unmarshal(text, &got))
	require.Equal(t, &metrics.Series{Name: "loss", Steps: []int{1, 3}, Values: []float64{math.Inf(-1), 0.1}}, got[0])
	require.Empty(t, got[1].Values)
	require.Error(t, json.Unmarshal([]byte(`[{"values":[true]}]`), &got))
}

func TestReadWrong(t *testing.T) {
	for want, file := range map[string][2]string{
		"begin with its step: it is not a file": {"m.jsonl", `{"x":1}`},
		"begin with its step":                   {"m.jsonl", `{"step":1}{}`},
		`"\"" is a word, no number`:             {"m.jsonl", `{"step":1,"\"":"1,","b":2}`},
		"parsing \"{\\\"a\\\":2}\"":             {"m.jsonl", `{"step":1,"b":{"a":2}}`},
		"not a file of -metrics":                {"m.jsonl", `[1]`},
		"unexpected EOF":                        {"m.jsonl", `{"step":1,"loss":2`},
		"invalid character":                     {"m.jsonl", `x`},
		"line 1: strconv.Atoi":                  {"m.csv", "a,b,c\n"},
		"line 2: want step,time,name,value":     {"m.csv", "step,time,name,value\n1,2.5,loss,x\n"},
		"line 1: want step,time,name,value":     {"m.csv", "1,2.5,3\n"},
	} {
		name := filepath.Join(t.TempDir(), file[0])
		require.NoError(t, os.WriteFile(name, []byte(file[1]), 0o666))
		_, err := metrics.Read(name)
		require.ErrorContains(t, err, want)
	}
	_, err := metrics.Read(filepath.Join(t.TempDir(), "none.csv"))
	require.ErrorContains(t, err, "none.csv")
}

// A hostile file takes no more memory than it has bytes to justify; many rows of one name are no such file.
func TestReadIsBounded(t *testing.T) {
	var names, rows strings.Builder
	names.WriteString(`{"step":1`)
	for i := range 400_000 {
		if i < 150_000 {
			fmt.Fprintf(&names, `,"%x":1`, i)
		}
		fmt.Fprintf(&rows, `{"step":%d,"time":0.001,"loss":1.5}`+"\n", i)
	}
	names.WriteString("}\n")
	values := `{"step":1` + strings.Repeat(`,"":1`, 2_300_000) + "}\n"
	const refused = "it would take more than"
	for text, want := range map[string]string{names.String(): refused, values: refused, rows.String(): ""} {
		if (text == rows.String()) != reliability.Long(t) {
			continue
		}
		name := filepath.Join(t.TempDir(), "x.jsonl")
		require.NoError(t, os.WriteFile(name, []byte(text), 0o666))
		reliability.Bounded(t, len(text), func() {
			series, err := metrics.Read(name)
			if want == "" {
				require.NoError(t, err)
				require.Len(t, series[0].Values, 400_000)
			} else {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

func TestLongReadIsBounded(t *testing.T) { reliability.AsLong(t, TestReadIsBounded) }

// What is read takes no more memory than the file has bytes to justify, and its series are as long as their steps.
func FuzzRead(f *testing.F) {
	f.Add(false, `{"step":1,"time":0.001,"loss":1.5}`+"\n"+`{"step":2,"l\"":"NaN" , "":-1}`)
	f.Add(false, `{"step":1,"a":"1,","b":{"c":2}} [] 1`)
	f.Add(true, "step,time,name,value\n1,2.5,loss, scaled,1.5\n1,,,1\n")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, csv bool, text string) {
		name := filepath.Join(dir, "x.jsonl")
		if csv {
			name = filepath.Join(dir, "x.csv")
		}
		require.NoError(t, os.WriteFile(name, []byte(text), 0o666))
		reliability.Bounded(t, len(text), func() {
			all, err := metrics.Read(name)
			for _, s := range all {
				require.NoError(t, err)
				require.NotEmpty(t, s.Steps)
				require.Len(t, s.Values, len(s.Steps))
			}
		})
	})
}
