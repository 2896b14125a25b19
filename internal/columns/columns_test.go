package columns

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/bounded"
)

func TestSelectTwice(t *testing.T) {
	_, _, err := Select([]string{"a", "b", "c"}, []string{"a", "b", "a"}, "", nil)
	require.EqualError(t, err, `column "a" is given twice`)
}

func TestSelect(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	for _, c := range []struct {
		x      []string
		target string
		xs     []int
		y      int
	}{
		{nil, "", []int{0, 1, 2}, 3},
		{nil, "b", []int{0, 2, 3}, 1},
		{[]string{"c", "a"}, "b", []int{2, 0}, 1},
		{[]string{"d"}, "b", []int{3}, 1},
	} {
		xs, y, err := Select(names, c.x, c.target, nil)
		require.NoError(t, err)
		assert.Equal(t, c.xs, xs)
		assert.Equal(t, c.y, y)
	}
	many := make([]string, 25)
	for i := range many {
		many[i] = strconv.Itoa(i)
	}
	for want, c := range map[string]struct {
		names, x []string
		target   string
	}{
		`no column "e": there are "a", "b", "c", "d"`:      {names, nil, "e"},
		`no column "f": there are "a", "b", "c", "d"`:      {names, []string{"a", "f"}, ""},
		`"18", "19" and 5 more`:                            {many, nil, "x"},
		`column "b" is the target, and one of x too`:       {names, []string{"b"}, "b"},
		`columns 1 and 3 are both called "a"`:              {[]string{"a", "b", "a"}, nil, ""},
		`1 columns: want one for x and one for the target`: {names[:1], nil, ""},
		`0 columns: want one for x and one for the target`: {nil, nil, ""},
		`4 columns: want one for x and one for the target`: {names, []string{}, ""},
	} {
		_, _, err := Select(c.names, c.x, c.target, nil)
		assert.ErrorContains(t, err, want)
	}
}

// The index of pandas is no data: it is left out if the file says which column it is, and an error if only the name says so.
func TestIndex(t *testing.T) {
	for _, name := range []string{"", "Unnamed: 0", "__index_level_0__", "__index_level_12__"} {
		for _, names := range [][]string{{name, "a", "b"}, {"a", "b", name}, {"a", name, "b"}} {
			_, _, err := Select(names, nil, "", nil)
			require.ErrorContains(t, err, fmt.Sprintf("column %d, %q, looks like the index of pandas", slices.Index(names, name)+1, name))
			xs, y, err := Select(names, nil, "", []string{name})
			require.NoError(t, err)
			require.Equal(t, []string{"a", "b"}, []string{names[xs[0]], names[y]})
			require.Len(t, xs, 1)
		}
		_, _, err := Select([]string{"a", "b", name}, nil, "a", nil)
		require.ErrorContains(t, err, "column 3")
		_, _, err = Select([]string{"a", "b", name}, []string{"a"}, "", nil)
		require.ErrorContains(t, err, "column 3")
		xs, _, err := Select([]string{name, "a", "b"}, []string{name, "a"}, "b", []string{name})
		require.NoError(t, err, "named")
		require.Equal(t, []int{0, 1}, xs)
	}
	for _, name := range []string{"index", "Unnamed: x", "__index_level__", " "} {
		_, _, err := Select([]string{name, "a"}, nil, "", nil)
		require.NoError(t, err)
	}
	_, _, err := Select([]string{"i", "j"}, nil, "", []string{"i", "j"})
	require.ErrorContains(t, err, "want one for x and one for the target")
}

func TestLabels(t *testing.T) {
	for _, c := range []struct{ labels, classes, want []string }{
		{[]string{"cat", "ant", "cat", "bee"}, nil, []string{"ant", "bee", "cat"}},
		{[]string{"10", "9", "-1", "10"}, nil, []string{"-1", "9", "10"}},
		{[]string{"10", "9", "01"}, nil, []string{"01", "10", "9"}}, // 01 is a name, not a number
		{[]string{"bee"}, []string{"cat", "bee"}, []string{"cat", "bee"}},
	} {
		l, err := NewLabels(c.classes, bounded.New(0))
		require.NoError(t, err)
		for _, label := range c.labels {
			require.NoError(t, l.Add(label))
		}
		assert.Equal(t, c.want, l.Done())
		for i, label := range c.labels {
			assert.Equal(t, int64(slices.Index(c.want, label)), l.Y[i])
		}
	}
	_, err := NewLabels([]string{"a", "b", "a"}, bounded.New(0))
	assert.ErrorContains(t, err, `class "a" is given twice`)
	l, err := NewLabels([]string{"a"}, bounded.New(0))
	require.NoError(t, err)
	assert.ErrorContains(t, l.Add("b"), `"b" is not one of the classes "a"`)
	assert.ErrorContains(t, l.Add(""), "no label")
	assert.Empty(t, l.Y)
}

func TestInputs(t *testing.T) {
	xs, err := Inputs([]string{"a", "b"}, nil)
	require.NoError(t, err)
	require.Equal(t, []int{0, 1}, xs)
	xs, err = Inputs([]string{"a", "b"}, []string{"b"})
	require.NoError(t, err)
	require.Equal(t, []int{1}, xs)
	_, err = Inputs([]string{"", "b"}, nil)
	require.ErrorContains(t, err, "looks like the index of pandas")
}
