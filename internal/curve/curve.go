package curve

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/ringo-ml/ringo/internal/bounded"
)

// Series are the values of a name, in the order of steps.
type Series struct {
	Name   string
	Steps  []int
	Values []float64
}

// Run is one training.
type Run struct {
	Name   string
	Series []Series
}

// Draw writes a picture with a panel for each name, in which every training has a line; load[0], load[1], … share one, a heat map with a
// row for each, and every training has its own. Its kind is that of the file's name: .svg, .png or .pdf. Values that are not finite are
// left out. More than six panels are in two columns. What nobody could read is an error: more than 200 panels, 4,096 rows of heat maps.
func Draw(file string, runs ...Run) error {
	panels := arrange(runs)
	if err := readable(panels); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	columns, height := [][]*panel{panels}, vg.Length(0)
	if len(panels) > 6 {
		half := (len(panels) + 1) / 2
		columns = [][]*panel{panels[:half], panels[half:]}
	}
	for _, column := range columns {
		tall := vg.Points(30)
		for _, p := range column {
			tall += p.height
		}
		height = max(height, tall)
	}
	legend := NewLegend()
	if len(runs) > 1 {
		for i, r := range runs {
			line := &plotter.Line{LineStyle: draw.LineStyle{Color: Color(i, len(runs), false), Width: vg.Points(1.5)}}
			legend.Add(r.Name, line)
		}
		height += legendLine * vg.Length(len(runs))
	}
	return Save(file, 6.5*vg.Inch*vg.Length(len(columns)), height, func(c draw.Canvas) error {
		c = draw.Crop(c, 0, 0, vg.Points(4), -vg.Points(8))
		if len(runs) > 1 {
			legend.Draw(draw.Crop(c, vg.Points(48), 0, 0, 0))
			c.Max.Y -= legendLine * vg.Length(len(runs))
		}
		return paint(c, columns, len(runs))
	})
}

const legendLine = vg.Length(14)

const (
	maxPanels = 200
	maxRows   = 4096 // of all heat maps
)

// readable returns an error if a picture has more than anybody can read.
func readable(panels []*panel) error {
	const fewer = "draw fewer values, with ringo plot -names '^loss' or the like"
	if len(panels) > maxPanels {
		return fmt.Errorf("%d panels are too many for a picture, at most %d: %s", len(panels), maxPanels, fewer)
	}
	rows := 0
	for _, p := range panels {
		most := -1
		for _, s := range p.series[0] {
			if _, i, ok := index(s.Name); ok && p.heat {
				most = max(most, i)
			}
		}
		if most >= maxRows-rows {
			return fmt.Errorf("%s[%d] and its like are too many rows for a picture, at most %d: %s", bounded.Plain(p.name), most, maxRows, fewer)
		}
		rows += most + 1
	}
	return nil
}

// panel is what shares two axes.
type panel struct {
	name   string
	heat   bool
	runs   []int      // of all
	series [][]Series // of each of runs: one, or the rows of a heat map
	title  string
	height vg.Length
}

// arrange returns the panels, in the order in which names come.
func arrange(runs []Run) (panels []*panel) {
	at := map[string]*panel{}
	for i, r := range runs {
		for _, g := range group(r.Series) {
			name, _, heat := index(g[0].Name)
			if !heat {
				name = g[0].Name
			}
			p := at[name]
			if p == nil || heat {
				next := &panel{name: name, heat: heat, height: 2.2 * vg.Inch}
				if heat {
					next.height = vg.Points(60 + 9*float64(min(len(g), 16)))
				}
				if heat && len(runs) > 1 {
					next.title = r.Name
					next.height += vg.Points(14)
				}
				k := len(panels)
				if p != nil { // beside that of the run before
					k = slices.Index(panels, p) + 1
				}
				panels = slices.Insert(panels, k, next)
				at[name], p = next, next
			}
			p.runs, p.series = append(p.runs, i), append(p.series, g)
		}
	}
	return panels
}

// paint draws columns of panels, all on one axis of steps. Heat maps of one name have one scale.
func paint(c draw.Canvas, columns [][]*panel, runs int) error {
	panels := slices.Concat(columns...)
	last, smoothed, right := 1, false, vg.Points(12)
	scales := map[string]scale{}
	for _, p := range panels {
		if p.heat {
			right = vg.Points(44)
		}
		for _, s := range slices.Concat(p.series...) {
			smoothed = smoothed || !p.heat && len(s.Values) >= few
			for _, step := range s.Steps {
				last = max(last, step)
			}
		}
	}
	maps := make([]*heatMap, len(panels))
	for i, p := range panels {
		if p.heat {
			maps[i] = newHeatMap(p.series[0], last)
			scales[p.name] = scales[p.name].over(maps[i])
		}
	}
	// Tick labels are measured once: all panels begin at the same place.
	plots, left := make([]*plot.Plot, len(panels)), vg.Length(0)
	for i, p := range panels {
		plots[i] = NewPlot()
		plots[i].Title.Text, plots[i].Y.Label.Text = p.title, p.name
		if p.heat {
			maps[i].scale = scales[p.name]
			plots[i].Add(maps[i])
			plots[i].Y.Tick.Marker = plot.TickerFunc(wholeTicks)
		} else if err := p.lines(plots[i], runs); err != nil {
			return err
		}
		plots[i].X.Min, plots[i].X.Max = 0, float64(last)
		left = max(left, plots[i].DataCanvas(c).Min.X-c.Min.X)
	}
	label := "step"
	if smoothed {
		label = "step (pale: measured, strong: smoothed)"
	}
	width := (c.Max.X - c.Min.X) / vg.Length(len(columns))
	for k, column := range columns {
		at := draw.Crop(c, width*vg.Length(k)+vg.Points(8), -width*vg.Length(len(columns)-1-k)-right, 0, 0)
		stack(at, column, plots[:len(column)], left, label)
		plots = plots[len(column):]
	}
	return nil
}

// stack draws plots one below the other. Their axes begin at left; the last one has the label of all.
func stack(c draw.Canvas, column []*panel, plots []*plot.Plot, left vg.Length, label string) {
	for i, p := range plots {
		space := -vg.Points(8)
		if i == len(plots)-1 {
			p.X.Label.Text, space = label, vg.Points(18)
		}
		tile := draw.Crop(c, left-(p.DataCanvas(c).Min.X-c.Min.X), 0, 0, 0)
		tile.Min.Y = c.Max.Y - column[i].height - space
		p.Draw(tile)
		c.Max.Y -= column[i].height
	}
}

// few is how many values are drawn as points, and not smoothed.
const few = 50

// lines adds the values of each training, pale, and over all of them their exponential means.
func (p *panel) lines(to *plot.Plot, runs int) error {
	var over []plot.Plotter
	for k, i := range p.runs {
		raw, smooth := points(p.series[k][0])
		if len(raw) == 0 {
			continue
		}
		line, dots, err := plotter.NewLinePoints(raw)
		if err != nil {
			return err
		}
		strong := Color(i, runs, false)
		if len(raw) < few {
			line.Color, dots.Color, dots.Shape, dots.Radius = strong, strong, draw.CircleGlyph{}, vg.Points(2)
			over = append(over, line, dots)
			continue
		}
		line.Color, line.Width = Color(i, runs, true), vg.Points(0.7)
		to.Add(line)
		mean, err := plotter.NewLine(smooth)
		if err != nil {
			return err
		}
		mean.Color, mean.Width = strong, vg.Points(1.5)
		over = append(over, mean)
	}
	to.Add(over...)
	return nil
}

// points returns the finite values of s, and over about a fiftieth of them at each side their exponential means: that of what came before
// and that of what comes behind, halved, so that a curve is not late.
func points(s Series) (raw, smooth plotter.XYs) {
	for i, y := range s.Values {
		if !math.IsNaN(y) && !math.IsInf(y, 0) {
			raw = append(raw, plotter.XY{X: float64(s.Steps[i]), Y: y})
		}
	}
	smooth = slices.Clone(raw)
	keep := 1 - 2/(1+max(1, float64(len(raw))/25))
	for _, backward := range []bool{false, true} {
		mean, weight := 0.0, 0.0
		for k := range raw {
			if backward {
				k = len(raw) - 1 - k
			}
			mean, weight = keep*mean+(1-keep)*raw[k].Y, keep*weight+(1-keep)
			if backward {
				smooth[k].Y = (smooth[k].Y + mean/weight) / 2
			} else {
				smooth[k].Y = mean / weight
			}
		}
	}
	return raw, smooth
}
