package curve

import (
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot/palette/moreland"
	"gonum.org/v1/plot/plotter"
)

// index splits a name such as "load[3]".
func index(name string) (base string, i int, ok bool) {
	base, rest, found := strings.Cut(name, "[")
	digits, closed := strings.CutSuffix(rest, "]")
	i, err := strconv.Atoi(digits)
	return base, i, found && closed && err == nil && i >= 0
}

// group puts series with indexed names together, in the place of the first one.
func group(all []Series) (groups [][]Series) {
	at := map[string]int{}
	for _, s := range all {
		base, _, ok := index(s.Name)
		if k, seen := at[base]; ok && seen {
			groups[k] = append(groups[k], s)
			continue
		}
		if ok {
			at[base] = len(groups)
		}
		groups = append(groups, []Series{s})
	}
	return groups
}

// cells is how many means over steps a row of a heat map has at most.
const cells = 300

// grid holds the means of a heat map, by row and cell.
type grid struct {
	rows  [][]float64
	width float64 // of a cell, in steps
}

func (g *grid) Dims() (c, r int)   { return len(g.rows[0]), len(g.rows) }
func (g *grid) Z(c, r int) float64 { return g.rows[r][c] }
func (g *grid) X(c int) float64    { return (float64(c) + 0.5) * g.width }
func (g *grid) Y(r int) float64    { return float64(r) }

// heat draws a row for each series. Cells without values are empty.
func heat(all []Series, last int) *plotter.HeatMap {
	n := max(2, min(last, cells))
	g := &grid{width: float64(last) / float64(n)}
	for _, s := range all {
		_, i, _ := index(s.Name)
		for len(g.rows) <= i {
			g.rows = append(g.rows, make([]float64, n))
		}
		g.rows[i] = means(s, n, g.width)
	}
	if len(g.rows) == 1 { // a heat map has two at least
		g.rows = append(g.rows, means(Series{}, n, g.width))
	}
	colors := moreland.ExtendedBlackBody()
	h := plotter.NewHeatMap(g, colors.Palette(64))
	if !(h.Min < h.Max) {
		h.Max = h.Min + 1
	}
	return h
}

// means returns the means of a series in n cells of so many steps.
func means(s Series, n int, width float64) []float64 {
	sums, counts := make([]float64, n), make([]float64, n)
	for i, y := range s.Values {
		if !math.IsNaN(y) && !math.IsInf(y, 0) {
			c := min(n-1, int((float64(s.Steps[i])-0.5)/width))
			sums[c], counts[c] = sums[c]+y, counts[c]+1
		}
	}
	for c := range sums {
		sums[c] /= counts[c]
	}
	return sums
}
