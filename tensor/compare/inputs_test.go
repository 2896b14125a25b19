package compare

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/layout"
)

// rank returns n rows of a batch of twice as many, from first on.
func rank(first, n int) layout.Batch {
	return layout.Batch{Rows: layout.Rows{First: first, Stride: 1, Total: 2 * n}, N: n}
}

func values(b layout.Batch, v ...float64) *Values {
	return &Values{Batch: b, Len: len(v), Digest: 5, At: func(i int) float64 { return v[i] }, Rounding: 1e-10}
}

// What an input of several rows adds up to is known where it shows that a rank normalized its own rows.
func TestSums(t *testing.T) {
	b := rank(4, 4)
	for _, c := range []struct {
		sums string
		v    []float64
	}{
		{"0", []float64{-1.5, 0.5, 0.25, 0.75}},
		{"1", []float64{0.125, 0.25, 0.5, 0.125}},
		{"n", []float64{0.5, 1, 2, 0.5}},
		{"?", []float64{0.5, 1, 2, 0.25}},
		{"?", []float64{0, 0, 1, 0}},                         // whole numbers
		{"?", []float64{0.5, -0.5, 1.5, -1.5, 2, -2, 3, -3}}, // each row adds up to 0
	} {
		var f Inputs
		f.Add(b)
		f.Tell(values(b, c.v...))
		list, all := f.Fed()
		assert.True(t, all)
		assert.Equal(t, c.sums, string(list[0].Sums[:1]), c.v)
	}
}

// Values of rows that are read by several ranks have a digest. Equal rows, and one number for each row, have none.
func TestDigests(t *testing.T) {
	b := rank(0, 2)
	var f Inputs
	f.Add(b)
	of := func() uint64 { list, _ := f.Fed(); return list[0].Values }
	f.Tell(values(b, 0.5, 0.25))
	same := values(b, 0.5, 1, 0.5, 1)
	same.SameRows = true
	f.Tell(same)
	assert.Zero(t, of())
	f.Tell(values(b, 0.5, 1, 0.25, 2))
	assert.NotZero(t, of())
	f.Reset()
	list, all := f.Batches()
	assert.Empty(t, list)
	assert.True(t, all)
}

// Weights that depend on the labels of a rank's rows are noted with the labels, whichever the tape gets first. Rows of one document may
// have one label and one weight, so labels must come again elsewhere.
func TestLabels(t *testing.T) {
	b := rank(0, 6)
	labels, weights := values(b, 1, 2, 1, 2, 1, 2), values(b, 0.3, 0.6, 0.3, 0.6, 0.3, 0.6)
	for _, order := range [][]*Values{{labels, weights}, {weights, labels}} {
		var f Inputs
		f.Add(b)
		for _, x := range order {
			f.Tell(x)
		}
		list, _ := f.Fed()
		assert.Equal(t, [8]Label{{3, 1, 0.3}, {3, 2, 0.6}}, list[0].Labels)
	}
	assert.Empty(t, byLabel([]float64{1, 1, 1, 2, 2, 2}, []float64{3, 3, 3, 6, 6, 6})[0])
	assert.Empty(t, byLabel([]float64{1, 2, 1, 2, 1, 2}, []float64{3, 6, 3, 6, 3, 7})[0])
}

// More rectangles than there is room for are noticed, and so are more counts.
func TestTooMany(t *testing.T) {
	var f Inputs
	for i := range 9 {
		f.Add(rank(i, 2))
		f.Add(rank(i, 2))
		f.DividedBy(10 + i)
	}
	list, all := f.Fed()
	assert.Len(t, list, 8)
	assert.False(t, all)
	assert.Equal(t, [4]int{10, 11, 12, -1}, list[0].Counts)
}

// A rectangle of each batch is noted. If these are too many, those of all batches are one, but for the first batch of a Loader, which may
// be divided unevenly.
func TestManyBatches(t *testing.T) {
	var f Inputs
	numbers := func() (all []int) {
		list, known := f.Fed()
		assert.True(t, known)
		for _, x := range list {
			all = append(all, x.Number)
		}
		return all
	}
	for number := range 10 {
		b := rank(0, 2)
		b.Number = 1 + number
		f.Add(b)
		f.Tell(values(b, -0.5, 0.5))
		f.Tell(values(b, float64(number), 0.5, 0.25, 2))
		if number == 7 {
			assert.Equal(t, []int{1, 2, 3, 4, 5, 6, 7, 8}, numbers())
			for _, x := range f.sums {
				assert.Equal(t, "0?\x00", string(x[:3]), "of one batch alone")
			}
		}
	}
	assert.Equal(t, []int{1, Alike}, numbers())
	other := rank(2, 2)
	other.Number = 9
	f.Add(other)
	assert.Equal(t, []int{1, Alike, Alike}, numbers())
	assert.Equal(t, [5]uint64{}, [5]uint64(f.values[3:]))
	assert.NotEqual(t, f.values[0], f.values[1], "that of all batches together")
}

// The first difference of two ranks is told, in the order of causes.
func TestDifference(t *testing.T) {
	a := Agreement{Seed: 1, Step: 3, Batch: 4, Batches: 9, Total: 8}
	b := a
	mine, _, _ := a.Difference(&b)
	assert.Empty(t, mine)
	assert.Equal(t, a.Print(), b.Print())
	b.Step, b.Total = 4, 9
	mine, other, advice := a.Difference(&b)
	assert.Equal(t, []string{"step 3", "4"}, []string{mine, other})
	assert.ErrorContains(t, advice, "left out a step or a batch")
	assert.NotEqual(t, a.Print(), b.Print())
	mine, other, _ = a.Difference(&Agreement{})
	assert.Equal(t, []string{"a sum of a step", "outside of a step"}, []string{mine, other})
}

// Each field of an Agreement is in its Print.
func TestPrintHasEachField(t *testing.T) {
	v := reflect.ValueOf(&Agreement{}).Elem()
	for i := range v.NumField() {
		a := Agreement{}
		f := reflect.ValueOf(&a).Elem().Field(i)
		if f.Kind() == reflect.Struct { // Seq
			f = f.Field(0)
		}
		f.Set(reflect.ValueOf(7).Convert(f.Type()))
		assert.NotEqual(t, (&Agreement{}).Print(), a.Print(), v.Type().Field(i).Name)
	}
}
