package stored

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		dims []int
		as   []Segment
		want string
	}{
		"too few":      {[]int{4, 3}, []Segment{{"a", 3, 0, 3, false}}, "[a[0:3 of 3]] have 3 of 4 rows"},
		"none":         {[]int{4, 3}, []Segment{}, "have 0 of 4 rows"},
		"too many":     {[]int{4}, []Segment{{"a", 3, 0, 3, false}, {"b", 2, 0, 2, false}}, "up to b[0:2 of 2] have more than the 4 rows"},
		"scalar":       {[]int{}, []Segment{{"a", 1, 0, 1, false}}, "without dimensions"},
		"no name":      {[]int{1}, []Segment{{"", 1, 0, 1, false}}, "names no tensor"},
		"no rows":      {[]int{1}, []Segment{{"a", 0, 0, 1, false}, {"a", 1, 0, 1, false}}, "a[0:0 of 1] is not in its tensor"},
		"outside":      {[]int{2}, []Segment{{"a", 2, 1, 2, false}}, "a[1:3 of 2] is not in its tensor"},
		"before":       {[]int{2}, []Segment{{"a", 2, -1, 2, false}}, "a[-1:1 of 2] is not in its tensor"},
		"wraps around": {[]int{2}, []Segment{{"a", 2, math.MaxInt, math.MaxInt, false}}, "is not in its tensor"},
		"squeezed": {[]int{2, 3}, []Segment{{"a", 1, 0, 1, true}, {"b", 1, 0, 2, true}},
			"b[0:1 of 2] is to lack dimension 0, and is not one row of one"},
		"overlap":    {[]int{4}, []Segment{{"a", 2, 0, 4, false}, {"a", 2, 1, 4, false}}, "a[1:3 of 4] and a[0:2 of 4] overlap"},
		"two totals": {[]int{4}, []Segment{{"a", 2, 0, 4, false}, {"a", 2, 2, 5, false}}, "disagree about the rows"},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, Check(c.dims, c.as), c.want)
		})
	}
	assert.NoError(t, Check(nil, nil))
	assert.NoError(t, Check([]int{4, 3}, []Segment{{"k", 2, 0, 2, false}, {"v", 1, 1, 3, false}, {"v", 1, 0, 3, false}}))
}
