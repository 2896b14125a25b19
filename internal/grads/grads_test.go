package grads_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/grads"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// part is a rank's part of a parameter of 4 elements.
func part(name, of string, lo, hi int) grads.Share {
	return grads.Share{Name: name, Shape: []int{2, 2}, Of: of, Lo: lo, Hi: hi}
}

// create begins the file of a rank, behind two steps.
func create(t *testing.T, rank int, shares ...grads.Share) *grads.File {
	t.Helper()
	f, err := grads.Create([2]any{os.Getenv(grads.Dir), rank}, 2, func() []grads.Share { return shares })
	require.NoError(t, err)
	return f
}

// Parts add up, copies count once, NaN stays, and what only some ranks have done is no step.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(grads.Dir, dir)
	a := create(t, 0, part("cut", "left", 0, 2), part("copy", "all", 0, 4))
	b := create(t, 1, part("cut", "right", 0, 1), part("copy", "all", 0, 4))
	c := create(t, 2, part("cut", "right", 1, 2), part("copy", "all", 0, 4))
	other := create(t, 0, part("cut", "all", 0, 4))
	for i, f := range []*grads.File{a, b, c} {
		require.NoError(t, f.Step([]float64{float64(i + 1), 9}))
		require.NoError(t, f.Step([]float64{math.NaN(), 16}))
	}
	require.NoError(t, a.Step([]float64{1, 1}))
	require.NoError(t, other.Step([]float64{25}))
	l := grads.Losses{}
	require.NoError(t, l.Write(3, time.Now(), map[string]float64{"loss": 0.5}))
	require.NoError(t, l.Write(4, time.Now(), map[string]float64{"accuracy": 1}))
	require.NoError(t, l.Close())

	files, err := filepath.Glob(filepath.Join(dir, "*.grads"))
	require.NoError(t, err)
	cut, err := os.OpenFile(files[0], os.O_WRONLY|os.O_APPEND, 0)
	require.NoError(t, err)
	_, err = cut.WriteString(`{"Step":6,"Bi`)
	require.NoError(t, err)
	require.NoError(t, cut.Close())

	steps, err := grads.Read(dir)
	require.NoError(t, err)
	require.Len(t, steps, 2)
	require.Equal(t, 3, steps[0].Step)
	require.Equal(t, 0.5, *steps[0].Loss)
	require.Nil(t, steps[1].Loss)
	norm := func(step int) (all map[string]float64) {
		all = map[string]float64{}
		for _, g := range steps[step].Grads {
			all[g.Name] = g.Norm
		}
		return all
	}
	assert.Equal(t, map[string]float64{"cut": math.Sqrt(6), "copy": 3, "cut of optimizer 2": 5}, norm(0))
	require.Equal(t, []string{"cut", "copy"}, []string{steps[1].Grads[0].Name, steps[1].Grads[1].Name})
	assert.True(t, math.IsNaN(norm(1)["cut"]))
	assert.Equal(t, 4.0, norm(1)["copy"])
}

// A part that no rank has, and a file that is none, are errors.
func TestReadErrors(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(grads.Dir, dir)
	create(t, 0, part("cut", "all", 0, 3))
	_, err := grads.Read(dir)
	require.ErrorContains(t, err, "the ranks hold 3 elements of cut, which has 4")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x.grads"), []byte(`{"Shares":[{}]} {"Step":1,"Bits":[1,2]}`), 0o666))
	_, err = grads.Read(dir)
	require.ErrorContains(t, err, "x.grads: step 1 has 2 sums for 1 parameters")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x.grads"), []byte(`{} none`), 0o666))
	_, err = grads.Read(dir)
	require.ErrorContains(t, err, "x.grads: invalid character")
	_, err = bounded(t, `{"Shares":[{"Hi":1}]} {"Step":1,"Bits":[1]}`, `{"Step":1}`)
	require.ErrorContains(t, err, "losses: step 1 has 0 losses")
	_, err = bounded(t, `{"Shares":[{"Hi":1}]} {"Step":1,"Bits":[1]}`, `{"Step":1,"Bits":[1]} none`)
	require.ErrorContains(t, err, "losses: invalid character")
}

// Nothing is written unless it is asked for.
func TestNotAsked(t *testing.T) {
	t.Setenv(grads.Dir, "")
	f, err := grads.Create(0, 0, nil)
	require.NoError(t, err)
	require.False(t, f.Wanted())
	require.NoError(t, grads.Losses{}.Write(1, time.Now(), map[string]float64{"loss": 1}))
}

// bounded reads a folder of a few files.
func bounded(t *testing.T, files ...string) ([]grads.Step, error) {
	t.Helper()
	dir, size := t.TempDir(), 0
	for i, text := range files {
		name := fmt.Sprintf("%d.grads", i)
		if i == len(files)-1 {
			name = "losses"
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666))
		size += len(text)
	}
	var steps []grads.Step
	var err error
	reliability.Bounded(t, size, func() { steps, err = grads.Read(dir) })
	return steps, err
}

// Hostile files take no more memory than they have bytes to justify; many steps, and many parameters, are none. The short
// form has one file of each kind.
func TestReadIsBounded(t *testing.T) {
	many := 3000
	if reliability.Long(t) {
		many = 200_000
	}
	one := `{"Shares":[{"Name":"w","Shape":[2],"Of":"all","Lo":0,"Hi":2}]}` + "\n"
	var steps, lost, head, sums, apart strings.Builder
	head.WriteString(`{"Optimizer":0,"Shares":[`)
	sums.WriteString(`]}` + "\n" + `{"Step":1,"Bits":[`)
	for i := range many {
		line := fmt.Sprintf(`{"Step":%d,"Bits":[4607182418800017408]}`+"\n", i+1)
		steps.WriteString(line)
		lost.WriteString(line)
		comma := ","
		if i == 0 {
			comma = ""
		}
		fmt.Fprintf(&head, `%s{"Name":"layer.%d.w","Shape":[2],"Of":"[0:2]","Lo":0,"Hi":2}`, comma, i)
		sums.WriteString(comma + "4607182418800017408")
	}
	got, err := bounded(t, one+steps.String(), lost.String())
	require.NoError(t, err)
	require.Len(t, got, many)
	got, err = bounded(t, head.String()+sums.String()+"]}\n", "")
	require.NoError(t, err)
	require.Len(t, got[0].Grads, many)

	few, zeros := `{"Shares":[{"Name":"0","Shape":[0]}`, strings.Repeat("0,", 999)+"0"
	for i := range 999 {
		few += fmt.Sprintf(`,{"Name":"%d","Shape":[0]}`, i+1)
	}
	few += "]}\n"
	for i := range 2000 {
		fmt.Fprintf(&apart, `{"Step":%d,"Bits":[%s]}`+"\n", i, zeros)
	}
	for i, files := range [][]string{
		{`{"Shares":[` + strings.Repeat(`null,`, 1<<20) + `null]}`, ""},
		{`{"Shares":[` + strings.Repeat(`{},`, 1<<20) + `{}]}`, ""},
		{few + `{"Bits":[` + strings.Repeat("0,", 1<<22) + `0]}`, ""},
		{few + strings.Repeat("{}\n", 1<<20), ""},
		{one, strings.Repeat("{}\n", 1<<20)},
		{one, strings.Repeat(`{"Bits":[`+zeros+"]}\n", 1<<12)},
		{few + apart.String(), ""},
	} {
		if slices.Contains([]int{1, 4, 5}, i) && !reliability.Long(t) {
			continue
		}
		_, err := bounded(t, files...)
		require.Error(t, err, i)
	}
}

func TestLongReadIsBounded(t *testing.T) { reliability.AsLong(t, TestReadIsBounded) }

func FuzzRead(f *testing.F) {
	one := `{"Shares":[{"Name":"w","Shape":[2],"Of":"all","Lo":0,"Hi":2}]}` + "\n"
	f.Add(one+`{"Step":1,"Bits":[4607182418800017408]}`, one+`{"Step":1,"Bits":[1]}`, `{"Step":1,"Bits":[4607182418800017408]}`)
	f.Add(`{"Optimizer":1,"Shares":[null,{"Shape":[0]}]}{"Bits":[1,2]}{"Bi`, `{}{}`, "{}")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, a, b, lost string) {
		for name, text := range map[string]string{"a.grads": a, "b.grads": b, "losses": lost} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666))
		}
		reliability.Bounded(t, len(a)+len(b)+len(lost), func() {
			steps, err := grads.Read(dir)
			for i, s := range steps {
				require.NoError(t, err)
				require.True(t, i == 0 || steps[i-1].Step < s.Step)
			}
		})
	})
}
