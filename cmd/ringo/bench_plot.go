package main

import (
	"fmt"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/ringo-ml/ringo/cmd/ringo/viz"
	"github.com/ringo-ml/ringo/internal/curve"
)

// marks show the operation and algorithm. Hues show the backend, and shades the number of ranks.
var marks = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.SquareGlyph{}, draw.PyramidGlyph{}, draw.CrossGlyph{}, draw.RingGlyph{},
	draw.BoxGlyph{}, draw.TriangleGlyph{}, draw.PlusGlyph{}}

const (
	plotWidth, plotHeight = 6.5 * vg.Inch, 6 * vg.Inch
	legendWidth           = 1.9 * vg.Inch
	legendLine            = 13.5 // height of a line, in points
)

// plotBench draws the bus bandwidth of each series over bytes, both logarithmic. The references are dashed.
func plotBench(file string, all [][]benchRow) error {
	all = slices.DeleteFunc(slices.Clone(all), func(rows []benchRow) bool { // a barrier has no bandwidth
		return len(rows) == 0 || !slices.ContainsFunc(rows, func(r benchRow) bool { return r.BusBW > 0 })
	})
	if len(all) == 0 {
		return usage("-plot %s: nothing to draw: a barrier has no bandwidth", file)
	}
	p := curve.NewPlot()
	p.Title.Text = "bus bandwidth"
	p.X.Label.Text, p.Y.Label.Text = "bytes", "GB/s"
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.TickerFunc(byteTicks), plot.TickerFunc(rateTicks)
	var jobs, ops, backends []string
	var ranks []int
	for _, rows := range all {
		jobs, ops = appendNew(jobs, jobName(rows)), appendNew(ops, opName(rows))
		backends, ranks = appendNew(backends, rows[0].Backend), appendNew(ranks, rows[0].Ranks)
	}
	slices.Sort(ranks)
	legend, shapes := curve.NewLegend(), make([]draw.GlyphStyle, len(ops))
	for i := range ops { // larger marks when all marks are used
		shapes[i] = draw.GlyphStyle{Shape: marks[i%len(marks)], Color: curve.Dim, Radius: vg.Points(2.5 + 1.5*float64(i/len(marks)))}
	}
	dashed := false
	for _, rows := range all {
		mark := shapes[slices.Index(ops, opName(rows))]
		mark.Color = curve.Shade(slices.Index(backends, rows[0].Backend), len(backends), slices.Index(ranks, rows[0].Ranks), len(ranks))
		line, points, reference, err := drawSeries(rows, mark)
		if err != nil {
			return err
		}
		p.Add(line, points)
		if reference != nil {
			p.Add(reference)
			dashed = true
		}
		if i := slices.Index(jobs, jobName(rows)); i >= 0 { // each once
			legend.Add(jobName(rows), line)
			jobs[i] = ""
		}
	}
	for i, name := range ops {
		legend.Add(name, &plotter.Scatter{GlyphStyle: shapes[i]})
	}
	if dashed {
		legend.Add("dashed: reference", &plotter.Line{LineStyle: referenceStyle(curve.Dim)})
	}
	p.X.Max *= 2 // room for the last label
	if p.Y.Max < 2*p.Y.Min {
		p.Y.Min, p.Y.Max = p.Y.Min/2, p.Y.Max*2
	}
	height := max(plotHeight, vg.Points(legendLine*float64(len(jobs)+len(ops)+1))+vg.Inch) // as high as the legend needs
	return curve.Save(file, plotWidth+legendWidth, height, func(c draw.Canvas) error {
		p.Draw(draw.Crop(c, vg.Points(6), -legendWidth, vg.Points(4), -vg.Points(4)))
		legend.Draw(draw.Crop(c, plotWidth+vg.Points(12), 0, 0, -vg.Points(24)))
		return nil
	})
}

// drawSeries returns the line of a series, its marks, and the line of its reference; the last is nil if the reference is not known or a
// single point.
func drawSeries(rows []benchRow, mark draw.GlyphStyle) (line *plotter.Line, points *plotter.Scatter, reference *plotter.Line, err error) {
	rates, others := plotter.XYs{}, plotter.XYs{}
	for _, r := range rows {
		if r.BusBW > 0 {
			rates = append(rates, plotter.XY{X: float64(r.Bytes), Y: r.BusBW})
		}
		if r.BusBW > 0 && r.Reference > 0 {
			others = append(others, plotter.XY{X: float64(r.Bytes), Y: r.Reference})
		}
	}
	if line, points, err = plotter.NewLinePoints(rates); err != nil {
		return nil, nil, nil, err
	}
	line.Color, points.GlyphStyle = mark.Color, mark
	if len(others) > 1 {
		if reference, err = plotter.NewLine(others); err != nil {
			return nil, nil, nil, err
		}
		reference.LineStyle = referenceStyle(mark.Color)
	}
	return line, points, reference, nil
}

func referenceStyle(c color.Color) draw.LineStyle {
	return draw.LineStyle{Color: c, Width: vg.Points(0.7), Dashes: []vg.Length{vg.Points(4), vg.Points(3)}}
}

func appendNew[T comparable](list []T, s T) []T {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

func jobName(rows []benchRow) string {
	return viz.Counted(rows[0].Ranks, "rank") + ", " + rows[0].Backend
}

// opName is the operation and its algorithm, with sizes if they decide which algorithm runs.
func opName(rows []benchRow) string {
	for _, r := range rows {
		if r.Algo != rows[0].Algo {
			return rows[0].Op + " by size"
		}
	}
	return rows[0].Op + " " + rows[0].Algo
}

// byteTicks are powers of four with their units.
func byteTicks(lo, hi float64) []plot.Tick {
	var ticks []plot.Tick
	for x := 1.0; x <= hi; x *= 4 {
		if x >= lo {
			ticks = append(ticks, plot.Tick{Value: x, Label: sizeName(int(x))})
		}
	}
	return ticks
}

// rateTicks are 1, 2 and 5 times the powers of ten. They all have labels if there are few of them.
func rateTicks(lo, hi float64) []plot.Tick {
	var ticks []plot.Tick
	for x := math.Pow(10, math.Floor(math.Log10(lo))); x <= hi; x *= 10 {
		for i, k := range []float64{1, 2, 5} {
			t := plot.Tick{Value: k * x}
			if i == 0 || hi < 1000*lo {
				t.Label = fmt.Sprintf("%g", math.Round(k*x*1e6)/1e6)
			}
			if t.Value >= lo && t.Value <= hi {
				ticks = append(ticks, t)
			}
		}
	}
	return ticks
}

// sizeName writes bytes in the form of -sizes.
func sizeName(bytes int) string {
	for i, unit := range []string{"G", "M", "K"} {
		if u := 1 << (10 * (3 - i)); bytes >= u && bytes%u == 0 {
			return fmt.Sprintf("%d%s", bytes/u, unit)
		}
	}
	return fmt.Sprint(bytes)
}
