package curve

import (
	"fmt"
	"image/color"
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
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

// scale is what colors stand for: pale for lo, strong for hi.
type scale struct {
	lo, hi float64
	set    bool
}

// over returns a scale that also holds the values of a heat map.
func (s scale) over(h *heatMap) scale {
	for _, row := range h.rows {
		for _, y := range row {
			switch {
			case math.IsNaN(y):
			case !s.set:
				s = scale{y, y, true}
			default:
				s.lo, s.hi = min(s.lo, y), max(s.hi, y)
			}
		}
	}
	return s
}

const shades = 32

// shade is the number of a value's color, -1 where there is no value.
func (s scale) shade(y float64) int {
	if math.IsNaN(y) {
		return -1
	}
	if s.hi <= s.lo {
		return shades / 2
	}
	return min(shades-1, int(shades*(y-s.lo)/(s.hi-s.lo)))
}

// shadeColor goes from nearly the sheet's color to a dark one; in dark mode the other way round.
func shadeColor(i int) color.Color {
	x := float64(i) / (shades - 1)
	return hsl(190+70*x, 0.75, 0.96-0.72*x)
}

// heatMap has a row for each index. Its cells hold means over steps, NaN where there are no values.
type heatMap struct {
	rows  [][]float64
	width float64 // of a cell, in steps
	scale scale
}

func newHeatMap(all []Series, last int) *heatMap {
	n := min(last, cells)
	h := &heatMap{width: float64(last) / float64(n)}
	for _, s := range all {
		_, i, _ := index(s.Name)
		for len(h.rows) <= i {
			h.rows = append(h.rows, means(Series{}, n, h.width))
		}
		h.rows[i] = means(s, n, h.width)
	}
	return h
}

// means returns the means of a series in n cells of so many steps.
func means(s Series, n int, width float64) []float64 {
	sums, counts := make([]float64, n), make([]float64, n)
	for i, y := range s.Values {
		if !math.IsNaN(y) && !math.IsInf(y, 0) {
			c := max(0, min(n-1, int((float64(s.Steps[i])-0.5)/width)))
			sums[c], counts[c] = sums[c]+y, counts[c]+1
		}
	}
	for c := range sums {
		sums[c] /= counts[c]
	}
	return sums
}

// DataRange makes a heat map a plot.DataRanger.
func (h *heatMap) DataRange() (xmin, xmax, ymin, ymax float64) {
	return 0, h.width * float64(len(h.rows[0])), -0.5, float64(len(h.rows)) - 0.5
}

// Plot makes a heat map a plot.Plotter. Neighbours of one color are one piece, and each piece reaches a little under the next one: viewers
// leave gaps between pieces that only touch.
func (h *heatMap) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for r, row := range h.rows {
		bottom, top := y(float64(r)-0.48), y(float64(r)+0.48)
		for from := 0; from < len(row); {
			to := from + 1
			for to < len(row) && h.scale.shade(row[to]) == h.scale.shade(row[from]) {
				to++
			}
			if !math.IsNaN(row[from]) {
				reach := min(x(float64(to)*h.width)+vg.Points(0.4), c.Max.X)
				box(c, shadeColor(h.scale.shade(row[from])), x(float64(from)*h.width), bottom, reach, top)
			}
			from = to
		}
	}
	h.key(c)
}

// key draws what colors stand for, at the right.
func (h *heatMap) key(c draw.Canvas) {
	left, height := c.Max.X+vg.Points(5), (c.Max.Y-c.Min.Y)/shades
	for i := range shades {
		box(c, shadeColor(i), left, c.Min.Y+height*vg.Length(i), left+vg.Points(7), c.Min.Y+height*vg.Length(i+1))
	}
	var s text.Style
	write(&s, 7.5, Dim)
	s.XAlign = text.XLeft
	for _, at := range []struct {
		y     vg.Length
		value float64
		align text.YAlignment
	}{{c.Max.Y, h.scale.hi, text.YTop}, {c.Min.Y, h.scale.lo, text.YBottom}} {
		s.YAlign = at.align
		c.FillText(s, vg.Point{X: left + vg.Points(9), Y: at.y}, fmt.Sprintf("%.3g", at.value))
	}
}

// box fills a rectangle.
func box(c draw.Canvas, fill color.Color, left, bottom, right, top vg.Length) {
	c.SetColor(fill)
	c.Fill(vg.Rectangle{Min: vg.Point{X: left, Y: bottom}, Max: vg.Point{X: right, Y: top}}.Path())
}

// wholeTicks has a label for each index, or for every second, fifth, tenth, … one.
func wholeTicks(lo, hi float64) (ticks []plot.Tick) {
	step := 1
	for _, k := range []int{2, 5, 10, 20, 50, 100, 200, 500} {
		if hi-lo > 8*float64(step) {
			step = k
		}
	}
	for i := 0; float64(i) <= hi; i += step {
		ticks = append(ticks, plot.Tick{Value: float64(i), Label: strconv.Itoa(i)})
	}
	return ticks
}
