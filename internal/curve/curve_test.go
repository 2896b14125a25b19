package curve

import (
	"fmt"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A picture has as many panels as there are names; what is not finite, or missing, is no error.
func TestDraw(t *testing.T) {
	long := Series{Name: "loss"}
	for i := range 200 {
		long.Steps, long.Values = append(long.Steps, i+1), append(long.Values, 1/float64(i+1))
	}
	short := Series{"accuracy", []int{100, 200}, []float64{math.NaN(), 0.9}}
	height := map[int]int{}
	for n, all := range [][]Series{nil, {long}, {long, short}, {long, short, {Name: "x", Steps: []int{1}, Values: []float64{math.Inf(1)}}}} {
		file := filepath.Join(t.TempDir(), "p.png")
		require.NoError(t, Draw(file, all))
		f, err := os.Open(file)
		require.NoError(t, err)
		img, err := png.Decode(f)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		height[n] = img.Bounds().Dy()
		colors := map[[3]uint32]bool{}
		for y := range img.Bounds().Dy() {
			for x := range img.Bounds().Dx() {
				r, g, b, _ := img.At(x, y).RGBA()
				colors[[3]uint32{r >> 8, g >> 8, b >> 8}] = true
			}
		}
		require.Equal(t, n > 0, colors[[3]uint32{0x1f, 0x6f, 0xeb}], "the mean is drawn")
	}
	require.Equal(t, 2*height[1], height[2])
	require.Equal(t, 3*height[1], height[3])
	svg := filepath.Join(t.TempDir(), "p.svg")
	require.NoError(t, Draw(svg, []Series{long}))
	text, err := os.ReadFile(svg)
	require.NoError(t, err)
	require.Contains(t, string(text), ">loss<")
	require.Error(t, Draw(filepath.Join(t.TempDir(), "none", "p.svg"), []Series{long}))
}

// Names with an index share a panel, in which each has a row; a cell is the mean of its steps.
func TestHeatMap(t *testing.T) {
	var all []Series
	for i := range 3 {
		s := Series{Name: fmt.Sprintf("load[%d]", i)}
		for step := range 1000 {
			s.Steps, s.Values = append(s.Steps, step+1), append(s.Values, float64(i))
		}
		all = append(all, s)
	}
	all = append(all, Series{"loss", []int{1}, []float64{1}}, Series{"one[0]", []int{1, 2}, []float64{math.NaN(), 2}})
	groups := group(all)
	require.Len(t, groups, 3)
	require.Len(t, groups[0], 3)
	for _, name := range []string{"load", "load[", "load[x]", "load[-1]", "load]"} {
		_, _, ok := index(name)
		require.False(t, ok, name)
	}
	require.Equal(t, []float64{1.5, 3}, means(Series{"x", []int{1, 2, 3, 4}, []float64{1, 2, math.Inf(1), 3}}, 2, 2))
	svg := filepath.Join(t.TempDir(), "p.svg")
	require.NoError(t, Draw(svg, all))
	text, err := os.ReadFile(svg)
	require.NoError(t, err)
	require.Contains(t, string(text), ">load<")
	require.Greater(t, strings.Count(string(text), "<path"), 3*cells, "cells")
}
