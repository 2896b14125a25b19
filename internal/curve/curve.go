package curve

import (
	"errors"
	"image/color"
	"math"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Series are the values of a name, in the order of steps.
type Series struct {
	Name   string
	Steps  []int
	Values []float64
}

// The raw values are pale.
var (
	strong = color.RGBA{R: 0x1f, G: 0x6f, B: 0xeb, A: 0xff}
	pale   = color.RGBA{R: 0xb6, G: 0xd3, B: 0xfa, A: 0xff}
)

// Draw writes a picture with a panel for each name; load[0], load[1], … share one, a heat map with a row for each. Its kind is that of the
// file's name: .svg, .png or .pdf. Values that are not finite are left out.
func Draw(file string, all []Series) error {
	groups := group(all)
	width, height := 6*vg.Inch, vg.Length(max(1, len(groups)))*2.5*vg.Inch
	c, err := draw.NewFormattedCanvas(width, height, filepath.Ext(file)[1:])
	if err != nil {
		return err
	}
	if len(all) > 0 {
		if err := panels(draw.New(c), groups); err != nil {
			return err
		}
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = c.WriteTo(f)
	return errors.Join(err, f.Close())
}

// panels draws one below the other, on one axis of steps.
func panels(c draw.Canvas, all [][]Series) error {
	rows, last := make([][]*plot.Plot, len(all)), 1
	for _, g := range all {
		for _, s := range g {
			for _, step := range s.Steps {
				last = max(last, step)
			}
		}
	}
	for i, g := range all {
		p := plot.New()
		if name, _, indexed := index(g[0].Name); indexed {
			p.Y.Label.Text = name
			p.Add(heat(g, last))
			p.X.Min, p.X.Max = 0, float64(last)
			rows[i] = []*plot.Plot{p}
			continue
		}
		s := g[0]
		p.Y.Label.Text = s.Name
		p.Add(plotter.NewGrid())
		if err := lines(p, s); err != nil {
			return err
		}
		p.X.Min, p.X.Max = 0, float64(last)
		rows[i] = []*plot.Plot{p}
	}
	rows[len(all)-1][0].X.Label.Text = "step"
	tiles := draw.Tiles{Rows: len(all), Cols: 1, PadY: vg.Points(8), PadTop: vg.Points(6), PadBottom: vg.Points(4), PadLeft: vg.Points(4), PadRight: vg.Points(12)}
	for i, row := range plot.Align(rows, tiles, c) {
		rows[i][0].Draw(row[0])
	}
	return nil
}

// few is how many values are drawn as points, and not smoothed.
const few = 50

// lines adds the values of s, and their exponential mean over them.
func lines(p *plot.Plot, s Series) error {
	var raw, smooth plotter.XYs
	mean, weight := 0.0, 0.0
	for i, y := range s.Values {
		if math.IsNaN(y) || math.IsInf(y, 0) {
			continue
		}
		mean, weight = 0.95*mean+0.05*y, 0.95*weight+0.05
		raw = append(raw, plotter.XY{X: float64(s.Steps[i]), Y: y})
		smooth = append(smooth, plotter.XY{X: float64(s.Steps[i]), Y: mean / weight})
	}
	if len(raw) == 0 {
		return nil
	}
	line, points, err := plotter.NewLinePoints(raw)
	if err != nil {
		return err
	}
	if len(raw) < few {
		line.Color, points.Color, points.Shape, points.Radius = strong, strong, draw.CircleGlyph{}, vg.Points(2)
		p.Add(line, points)
		return nil
	}
	line.Color, line.Width = pale, vg.Points(0.5)
	over, err := plotter.NewLine(smooth)
	if err != nil {
		return err
	}
	over.Color, over.Width = strong, vg.Points(1.5)
	p.Add(line, over)
	return nil
}
