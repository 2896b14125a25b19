package data_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/tensor"
)

// messy reads the same table from a CSV and a JSONL file.
func messy(t *testing.T, text, lines string, c data.CSVConfig) (fromCSV, fromJSONL *data.Table) {
	t.Helper()
	dir := t.TempDir()
	csv, jsonl := filepath.Join(dir, "t.csv"), filepath.Join(dir, "t.jsonl")
	require.NoError(t, os.WriteFile(csv, []byte(text), 0o666))
	require.NoError(t, os.WriteFile(jsonl, []byte(lines), 0o666))
	a, err := data.CSV(csv, c)
	require.NoError(t, err)
	b, err := data.JSONL(jsonl, data.JSONLConfig{Target: c.Target, NoTarget: c.NoTarget, Labels: c.Labels, Classes: c.Classes,
		Categories: c.Categories, Missing: c.Missing, Skip: c.Skip})
	require.NoError(t, err)
	return a, b
}

func all(t *testing.T, table *data.Table) (x, y []float64) {
	t.Helper()
	l := data.NewLoader(table, data.Config{Batch: table.Len()})
	for _, b := range l.Epoch(t.Context(), 1) {
		x, y = tensor.Floats(b.X), tensor.Floats(b.Y)
	}
	require.NoError(t, l.Err())
	return x, y
}

// Names become numbers, sorted, missing values NaN or the name "", and what cannot be read is left out and counted.
func TestCategories(t *testing.T) {
	const text = "age,town,price\n30,Ulm,1\n,Bonn,2\n20, ,3\nold,Ulm,4\n10,Trier,much\n40,NA,5\n7,8\n50,Aachen,6\n"
	const lines = `{"age": 30, "town": "Ulm", "price": 1}
{"age": null, "town": "Bonn", "price": 2}
{"age": 20, "price": 3}
{"age": "old", "town": "Ulm", "price": 4}
{"age": 10, "town": "Trier", "price": "much"}
{"age": 40, "town": null, "price": 5}
7, 8
{"town": "Aachen", "price": 6, "age": 50}`
	cfg := data.CSVConfig{Header: true, Categories: []string{"town"}, Missing: true, Skip: true}
	a, b := messy(t, text, lines, cfg)
	for _, table := range []*data.Table{a, b} {
		assert.Equal(t, []string{"age", "town"}, table.Columns)
		assert.Equal(t, map[string][]string{"town": {"", "Aachen", "Bonn", "Ulm"}}, table.Categories)
		assert.Equal(t, 3, table.Skipped.Count)
		x, y := all(t, table)
		assert.True(t, math.IsNaN(x[2]))
		x[2] = -1
		assert.Equal(t, []float64{30, 3, -1, 2, 20, 0, 40, 0, 50, 1}, x)
		assert.Equal(t, []float64{1, 2, 3, 5, 6}, y)
	}
	const want = `line 5, column "age": "old" is not a number; Columns can leave the column out, and Categories is for names`
	assert.EqualError(t, a.Skipped.First, want)
	assert.ErrorContains(t, b.Skipped.First, `line 4, "age": "old" is text, and is not a number`)
}

// Skip keeps labels and rows together.
func TestSkipWithLabels(t *testing.T) {
	a, b := messy(t, "a,y\n1,no\nx,yes\n3,\n4,no\n5,maybe\n", `{"a": 1, "y": "no"}
{"a": "x", "y": "yes"}
{"a": 3}
{"a": 4, "y": "no"}
{"a": 5, "y": "maybe"}`, data.CSVConfig{Header: true, Labels: true, Skip: true})
	for _, table := range []*data.Table{a, b} {
		x, y := all(t, table)
		assert.Equal(t, []float64{1, 4, 5}, x)
		assert.Equal(t, []float64{1, 1, 0}, y)
		assert.Equal(t, []string{"maybe", "no"}, table.Classes)
		assert.Equal(t, 2, table.Skipped.Count)
	}
}

// Rows without a target have the x of those with one, whatever the other settings say of it.
func TestNoTarget(t *testing.T) {
	const text, lines = "a,b\n1,Ulm\n\"2\",Bonn\n,Ulm\nx,Ulm\n4,Bonn\n", `{"a": 1, "b": "Ulm"}
{"a": 2, "b": "Bonn"}
{"a": null, "b": "Ulm"}
{"a": "x", "b": "Ulm"}
{"a": 4, "b": "Bonn"}`
	cfg := data.CSVConfig{Header: true, NoTarget: true, Target: "y", Labels: true, Classes: []string{"no", "yes"}, Categories: []string{"b"},
		Missing: true, Skip: true}
	a, b := messy(t, text, lines, cfg)
	for _, table := range []*data.Table{a, b} {
		assert.Equal(t, []string{"a", "b"}, table.Columns)
		assert.Equal(t, 1, table.Skipped.Count)
		assert.Empty(t, table.Target)
		assert.Nil(t, table.Classes)
		x, y := all(t, table)
		assert.True(t, math.IsNaN(x[4]))
		x[4] = -1
		assert.Equal(t, []float64{1, 1, 2, 0, -1, 1, 4, 0}, x)
		assert.Equal(t, make([]float64, 4), y)
	}
	for _, names := range [][2]string{{"y", "a"}, {"(no target)", "y"}} { // a file that has the target has the same x
		cfg, want := data.CSVConfig{Header: true, NoTarget: true, Target: "y", Labels: true}, []float64{2, 4}
		if names[1] == "y" {
			want = []float64{1, 3}
		}
		a, b := messy(t, fmt.Sprintf("%s,%s\n1,2\n3,4\n", names[0], names[1]), fmt.Sprintf(`{%q: 1, %q: 2}
{%[1]q: 3, %[2]q: 4}`, names[0], names[1]), cfg)
		for _, table := range []*data.Table{a, b} {
			x, y := all(t, table)
			assert.Equal(t, want, x)
			assert.Equal(t, make([]float64, 2), y)
			assert.Empty(t, table.Target)
		}
	}
	file := filepath.Join(t.TempDir(), "t.csv")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o666))
	_, err := data.CSV(file, data.CSVConfig{Header: true, Target: "y"})
	require.ErrorContains(t, err, `no column "y": there are "a", "b"; NoTarget is for rows without one`)
	_, err = data.CSV(file, data.CSVConfig{Header: true, NoTarget: true, Columns: []string{"c"}})
	require.ErrorContains(t, err, `no column "c": there are "a", "b"`)
	require.NotContains(t, err.Error(), "target")
	a, b = messy(t, "1\n2\n3\n", "{\"1\": 1}\n{\"1\": 2}\n{\"1\": 3}", data.CSVConfig{NoTarget: true})
	for _, table := range []*data.Table{a, b} {
		x, y := all(t, table)
		assert.Equal(t, []float64{1, 2, 3}, x)
		assert.Equal(t, make([]float64, 3), y)
	}
}

func TestBadCategories(t *testing.T) {
	town := []string{"town"}
	for _, c := range []struct {
		want, text string
		cfg        data.CSVConfig
	}{
		{`line 1: column "city" of Categories is none of x: there are "town", "y"`,
			"town,y\nUlm,1\n", data.CSVConfig{Categories: []string{"city"}}},
		{`line 1: column "y" of Categories is none of x: there are "town", "y"`,
			"town,y\nUlm,1\n", data.CSVConfig{Categories: []string{"y"}}},
		{`line 3, column "town": no label: fill it in, or remove the row`, "town,y\nUlm,1\n\"\",2\n", data.CSVConfig{Categories: town}},
		{`line 2, column "y": no value: fill it in, or remove the row`, "a,y\n1,\n", data.CSVConfig{Missing: true}},
		{`no rows: 1 skipped, the first one: line 2, column "y": no value`, "a,y\n1,\n", data.CSVConfig{Skip: true}},
	} {
		file := filepath.Join(t.TempDir(), "t.csv")
		require.NoError(t, os.WriteFile(file, []byte(c.text), 0o666))
		c.cfg.Header = true
		_, err := data.CSV(file, c.cfg)
		assert.ErrorContains(t, err, c.want)
	}
}
