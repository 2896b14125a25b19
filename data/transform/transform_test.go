package transform_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/data/transform"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// read makes a table of a text.
func read(t testing.TB, text string, missing bool) *data.Table {
	t.Helper()
	file := filepath.Join(t.TempDir(), "t.csv")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o666))
	table, err := data.CSV(file, data.CSVConfig{Header: true, Categories: []string{"town"}, Missing: missing})
	require.NoError(t, err)
	return table
}

func values(t *testing.T, ds data.Dataset) (x, y []float64) {
	t.Helper()
	l := data.NewLoader(ds, data.Config{Batch: ds.Len()})
	for _, b := range l.Epoch(t.Context(), 1) {
		x, y = tensor.Floats(b.X), tensor.Floats(b.Y)
	}
	require.NoError(t, l.Err())
	return x, y
}

const houses = "age,town,rooms,price\n10,Ulm,2,1\n,Bonn,2,2\n20,,2,3\n60,Trier,2,4\n70,Ulm,2,5\n"

// The training part alone decides: its mean, deviation, categories. Numbers are those of scikit-learn's StandardScaler, SimpleImputer and
// OneHotEncoder.
func TestFit(t *testing.T) {
	table := read(t, houses, true)
	train, err := data.NewSubset(table, []int{0, 1, 2})
	require.NoError(t, err)
	prep, err := transform.Fit(train, transform.Config{Fill: transform.Mean, IgnoreUnknown: true})
	require.NoError(t, err)
	fill, two := 15.0, 2.0
	assert.Equal(t, []transform.Column{
		{Name: "age", Mean: 15, Std: 5, Fill: &fill},
		{Name: "town", Std: 1, Categories: []string{"", "Bonn", "Ulm"}},
		{Name: "rooms", Mean: 2, Std: 1, Fill: &two},
	}, prep.Columns)
	done, err := prep.Apply(table)
	require.NoError(t, err)
	assert.Equal(t, []string{"age", "town=", "town=Bonn", "town=Ulm", "rooms"}, done.Columns)
	assert.Equal(t, "price", done.Target)
	x, y := values(t, done)
	assert.Equal(t, []float64{
		-1, 0, 0, 1, 0,
		0, 0, 1, 0, 0,
		1, 1, 0, 0, 0,
		9, 0, 0, 0, 0, // a town that the training part does not have
		11, 0, 0, 1, 0,
	}, x)
	assert.Equal(t, []float64{1, 2, 3, 4, 5}, y)
}

// Another file numbers its categories otherwise; columns of Index stay one number, and unknown names get the one after the last.
func TestApplyToAnotherTable(t *testing.T) {
	cfg := transform.Config{Fill: transform.Constant(-5), Index: []string{"town"}, IgnoreUnknown: true}
	prep, err := transform.Fit(read(t, houses, true), cfg)
	require.NoError(t, err)
	done, err := prep.Apply(read(t, "age,town,rooms,price\n,Ulm,4,1\n40,Aachen,2,2\n", true))
	require.NoError(t, err)
	x, _ := values(t, done)
	std := math.Sqrt((900 + 400 + 400 + 900) / 4)
	assert.InDeltaSlice(t, []float64{-45 / std, 3, 2, 0, 4, 0}, x, 1e-6)
}

func TestRefused(t *testing.T) {
	whole, lacking := read(t, "age,town,price\n1,Ulm,1\n2,Bonn,2\n", false), read(t, houses, true)
	prep, err := transform.Fit(whole, transform.Config{})
	require.NoError(t, err)
	fit := func(ds data.Dataset, c transform.Config) error { _, err := transform.Fit(ds, c); return err }
	apply := func(ds data.Dataset) error { _, err := prep.Apply(ds); return err }
	set, err := data.Synthetic(3, 1, tensor.Float32)
	require.NoError(t, err)
	nan := func(float64) float64 { return math.NaN() }
	empty, other := read(t, "age,town,price\n,U,1\n", true), read(t, "age,town,price\n1,Ulm,1\n2,Trier,2\n", false)
	index := transform.Config{Index: []string{"age"}}
	for _, c := range []struct {
		want string
		err  error
	}{
		{"a *data.Images has no columns: want a data.Table, or a data.Subset of one", fit(set, transform.Config{})},
		{`column "age": row 1 has no value: Config.Fill says what takes its place`, fit(lacking, transform.Config{})},
		{`column "age": no row has a value: leave the column out, or, if it has names, say so in Categories of data.CSVConfig`,
			fit(empty, transform.Config{Fill: transform.Mean})},
		{`column "age": Config.Fill returns NaN: want a finite number`, fit(whole, transform.Config{Fill: nan})},
		{`Config.Index has "age", which is no column of categories: there are ["age" "town"]`, fit(whole, index)},
		{`the table has columns ["age" "town" "rooms"], and the Transform was fitted to ["age" "town"]`, apply(lacking)},
		{`column "age": row 0 has no value: Config.Fill of Fit says what takes its place`, apply(empty)},
		{`column "town": row 1 has "Trier", which the training part does not have: Config.IgnoreUnknown allows`, apply(other)},
	} {
		assert.ErrorContains(t, c.err, "data/transform: ")
		assert.ErrorContains(t, c.err, c.want)
	}
	require.ErrorContains(t, prep.UnmarshalJSON([]byte(`{"columns": [{"name": "age", "std": 1}]}`)), "was fitted to other data")
	var loaded transform.Transform
	require.ErrorContains(t, loaded.UnmarshalJSON([]byte(`{"columns": [{"name": "a", "std": 0}]}`)), `the deviation of column "a" is 0`)
	require.Error(t, loaded.UnmarshalJSON([]byte(`[]`)))
}

// Without the classes of the training part, the labels of another file have other numbers.
func TestClassesOfAnotherTable(t *testing.T) {
	table := func(text string, classes ...string) *data.Table {
		file := filepath.Join(t.TempDir(), "t.csv")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o666))
		c, err := data.CSV(file, data.CSVConfig{Header: true, Labels: true, Classes: classes})
		require.NoError(t, err)
		return c
	}
	prep, err := transform.Fit(table("legs,kind\n6,ant\n6,bee\n4,cat\n"), transform.Config{})
	require.NoError(t, err)
	assert.Equal(t, []string{"ant", "bee", "cat"}, prep.Classes)
	_, err = prep.Apply(table("legs,kind\n6,ant\n4,cat\n"))
	require.EqualError(t, err, `data/transform: 1 is class "cat" of "kind" in the table, and "bee" in the training part: read the table with `+
		`Classes: prep.Classes, which are ["ant" "bee" "cat"]`)
	for _, other := range []*data.Table{
		table("legs,kind\n6,ant\n4,cat\n", prep.Classes...), table("legs,kind\n6,ant\n6,bee\n"), table("legs,color\n6,black\n4,white\n"),
	} {
		done, err := prep.Apply(other)
		require.NoError(t, err)
		assert.Equal(t, other.Classes, done.Classes)
	}
	old := transform.Transform{Columns: prep.Columns}
	text, err := json.Marshal(old)
	require.NoError(t, err)
	require.NoError(t, prep.UnmarshalJSON(text), "of an older checkpoint")
	assert.Equal(t, []string{"ant", "bee", "cat"}, prep.Classes)
}

// A checkpoint has the Transform, with all bits, and three ranks agree about it. A resumed training with other data is refused. A program
// that uses the model loads the Transform before there is a model, for rows that have no target.
func TestCheckpoint(t *testing.T) {
	table, dir := read(t, houses, true), t.TempDir()
	train, err := data.NewSubset(table, []int{0, 3, 4})
	require.NoError(t, err)
	fitted, err := transform.Fit(train, transform.Config{Fill: transform.Mean})
	require.NoError(t, err)
	other, err := transform.Fit(table, transform.Config{Fill: transform.Mean})
	require.NoError(t, err)
	err = dist.Run(t.Context(), dist.Config{Ranks: 3, Log: io.Discard}, func(ctx context.Context, r *dist.Rank) error {
		mine, err := transform.Fit(train, transform.Config{Fill: transform.Mean})
		if err != nil {
			return err
		}
		params := nn.Init(nn.NewLinear(3, 1), r.Device, tensor.Float32, 1)
		saver := ckpt.NewSaver(r.World, dir, ckpt.Config{})
		if err := saver.Save(ctx, ckpt.State{Step: 1, Params: params, Extra: map[string]any{"transform": mine}}); err != nil {
			return err
		}
		load := func(into *transform.Transform, params nn.Params, unexpected ...string) error {
			st := ckpt.State{Params: params, Extra: map[string]any{"transform": into}}
			_, err := ckpt.Load(ctx, r.World, filepath.Join(dir, "step-00000001"), &st, ckpt.LoadConfig{AllowUnexpected: unexpected})
			return err
		}
		var loaded transform.Transform
		if err := load(&loaded, nil, "*"); err != nil {
			return err
		}
		assert.Equal(t, *fitted, loaded)
		if err := load(mine, params); err != nil {
			return err
		}
		mine = &transform.Transform{Columns: other.Columns}
		assert.ErrorContains(t, load(mine, params), "was fitted to other data")
		file := filepath.Join(t.TempDir(), "new.csv")
		if err := os.WriteFile(file, []byte("age,town,rooms\n10,Ulm,2\n,Trier,3\n"), 0o666); err != nil {
			return err
		}
		rows, err := data.CSV(file, data.CSVConfig{Header: true, NoTarget: true, Categories: []string{"town"}, Missing: true})
		if err != nil {
			return err
		}
		got, err := loaded.Apply(rows)
		if err != nil {
			return err
		}
		want, err := fitted.Apply(read(t, "age,town,rooms,price\n10,Ulm,2,0\n,Trier,3,0\n", true))
		if err != nil {
			return err
		}
		x, _ := values(t, got)
		wantX, _ := values(t, want)
		assert.Equal(t, wantX, x)
		assert.Equal(t, want.Columns, got.Columns)
		return nil
	})
	require.NoError(t, err)
	text, err := json.Marshal(fitted)
	require.NoError(t, err)
	assert.NotContains(t, string(text), "ignore_unknown")
}

func ExampleFit() {
	file := filepath.Join(os.TempDir(), fmt.Sprintf("houses-%d.csv", os.Getpid()))
	defer os.Remove(file)
	text := "age,town,price\n10,Ulm,1\n,Bonn,2\n20,Ulm,3\n"
	err := os.WriteFile(file, []byte(text), 0o666)
	if err != nil {
		fmt.Println(err)
		return
	}
	table, err := data.CSV(file, data.CSVConfig{Header: true, Categories: []string{"town"}, Missing: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	prep, err := transform.Fit(table, transform.Config{Fill: transform.Mean})
	if err != nil {
		fmt.Println(err)
		return
	}
	features, err := prep.Apply(table)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(features.Columns)
	for _, b := range data.NewLoader(features, data.Config{Batch: 3}).Epoch(context.Background(), 0) {
		fmt.Println(b.X)
	}
	// Output:
	// [age town=Bonn town=Ulm]
	// float32[3,3] [[-1 0 1] [0 1 0] [1 0 1]]
}
