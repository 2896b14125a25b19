package main

import (
	"fmt"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// plotBench draws the bus bandwidth of each series against bytes, both logarithmic, and dashed the bounds.
func plotBench(file string, all [][]benchRow) error {
	p := plot.New()
	p.Title.Text = "bus bandwidth"
	p.X.Label.Text, p.Y.Label.Text = "bytes", "GB/s"
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.TickerFunc(byteTicks), plot.TickerFunc(rateTicks)
	p.Add(plotter.NewGrid())
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.TextStyle.Font.Size, p.Legend.Padding = vg.Points(8), vg.Points(2)
	drawn, bounds := 0, map[string]bool{}
	for i, rows := range all {
		rates, bound := plotter.XYs{}, plotter.XYs{}
		for _, r := range rows {
			if r.BusBW > 0 { // a barrier has no bandwidth
				rates = append(rates, plotter.XY{X: float64(r.Bytes), Y: r.BusBW})
			}
			if r.BusBW > 0 && r.Bound > 0 {
				bound = append(bound, plotter.XY{X: float64(r.Bytes), Y: r.Bound})
			}
		}
		if len(rates) == 0 {
			continue
		}
		drawn++
		line, points, err := plotter.NewLinePoints(rates)
		if err != nil {
			return err
		}
		line.Color, points.Color, points.Shape = plotutil.Color(i), plotutil.Color(i), draw.CircleGlyph{}
		p.Add(line, points)
		p.Legend.Add(seriesName(rows), line, points)
		name := fmt.Sprintf("bound, %d ranks, %s", rows[0].Ranks, rows[0].Backend)
		if len(bound) == 0 || bounds[name] {
			continue
		}
		bounds[name] = true
		limit, err := plotter.NewLine(bound)
		if err != nil {
			return err
		}
		limit.Dashes = []vg.Length{vg.Points(float64(2 + 3*len(bounds))), vg.Points(3)}
		p.Add(limit)
		p.Legend.Add(name, limit)
	}
	if drawn == 0 {
		return usage("-plot %s: nothing to draw: a barrier has no bandwidth", file)
	}
	p.Y.Max *= math.Pow(p.Y.Max/p.Y.Min, 0.05*float64(drawn+len(bounds))) // room for the legend
	p.X.Max *= 2                                                          // and for the last label
	return p.Save(9*vg.Inch, 6*vg.Inch, file)
}

func seriesName(rows []benchRow) string {
	by := rows[0].Algo
	for _, r := range rows {
		if r.Algo != by {
			by = "by size"
		}
	}
	return fmt.Sprintf("%s, %d ranks, %s, %s", rows[0].Op, rows[0].Ranks, rows[0].Backend, by)
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

// rateTicks are powers of ten, and 2 and 5 times them without a label.
func rateTicks(lo, hi float64) []plot.Tick {
	var ticks []plot.Tick
	for x := math.Pow(10, math.Floor(math.Log10(lo))); x <= hi; x *= 10 {
		for i, k := range []float64{1, 2, 5} {
			t := plot.Tick{Value: k * x}
			if i == 0 {
				t.Label = fmt.Sprintf("%g", x)
			}
			if t.Value >= lo && t.Value <= hi {
				ticks = append(ticks, t)
			}
		}
	}
	return ticks
}

// sizeName writes bytes as -sizes reads them.
func sizeName(bytes int) string {
	for i, unit := range []string{"G", "M", "K"} {
		if u := 1 << (10 * (3 - i)); bytes >= u && bytes%u == 0 {
			return fmt.Sprintf("%d%s", bytes/u, unit)
		}
	}
	return fmt.Sprint(bytes)
}
