package layout_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/layout"
)

func TestDivisionBoxes(t *testing.T) {
	r := layout.Division{Dim: 0, Parts: []int{6, 2, 2}}
	boxes, err := r.Boxes([]int{10, 3}, 1, 2)
	require.NoError(t, err)
	require.Equal(t, []layout.Box{{Lo: []int{3, 0}, Hi: []int{6, 3}}, {Lo: []int{7, 0}, Hi: []int{8, 3}}, {Lo: []int{9, 0}, Hi: []int{10, 3}}},
		boxes)
	boxes, err = r.Boxes([]int{10, 3}, 0, 1)
	require.NoError(t, err)
	require.Len(t, boxes, 1, "what touches is one box")
	for rank, lo := range []int{0, 0, 3, 3} { // two units on four ranks
		boxes, err := (layout.Division{Unit: 3}).Boxes([]int{6, 2}, rank, 4)
		require.NoError(t, err)
		require.Equal(t, []layout.Box{{Lo: []int{lo, 0}, Hi: []int{lo + 3, 2}}}, boxes)
	}
	for unit, want := range map[int]string{4: "6 elements do not divide into units of 4",
		2: "3 units of 2 do not divide over 5 ranks", -1: "units of -1"} {
		_, err := (layout.Division{Unit: unit}).Boxes([]int{6, 2}, 0, 5)
		require.ErrorContains(t, err, want)
	}
	for _, bad := range []struct {
		layout.Division
		want string
	}{
		{layout.Division{Dim: 2}, "dimension 2 of shape [10 3] for rank 0 of 2"},
		{layout.Division{Dim: -1}, "dimension -1 of shape [10 3] for rank 0 of 2"},
		{layout.Division{Dim: 0, Parts: []int{6, 2}}, "parts [6 2] of dimension 0 of shape [10 3]"},
		{layout.Division{Dim: 0, Parts: []int{6, 6}}, "parts [6 6] of dimension 0 of shape [10 3]"},
		{layout.Division{Dim: 0, Parts: []int{-1, 11}}, "parts [-1 11] of dimension 0 of shape [10 3]"},
	} {
		_, err := bad.Boxes([]int{10, 3}, 0, 2)
		require.EqualError(t, err, bad.want)
	}
}
