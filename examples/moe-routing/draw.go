package main

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/ringo-ml/ringo/internal/curve"
	"github.com/ringo-ml/ringo/layout"
)

// colors are the colors of ranks; with more ranks, they repeat.
var colors = []color.RGBA{{R: 0x1f, G: 0x6f, B: 0xeb, A: 0xff}, {R: 0xd9, G: 0x53, B: 0x2c, A: 0xff}, {R: 0x2e, G: 0x8b, B: 0x57, A: 0xff},
	{R: 0x8a, G: 0x4f, B: 0xbf, A: 0xff}}

// draw draws a line from each token to each of its experts, in the color of the token's rank.
func (o *options) draw(all [][][]int) error {
	p := curve.NewPlot()
	style := p.Y.Tick.Label
	style.XAlign, style.YAlign = draw.XLeft, draw.YCenter
	p.HideAxes()
	p.Title.Text = "tokens, by rank, and their experts"
	y := func(i, of int) float64 { return -(float64(i) + 0.5) / float64(of) }
	var labels plotter.XYLabels
	label := func(x, y float64, text string) {
		labels.XYs, labels.Labels = append(labels.XYs, plotter.XY{X: x, Y: y}), append(labels.Labels, text)
	}
	for rank, list := range all {
		first, _ := layout.Share(o.tokens, rank, len(all))
		for i, experts := range list {
			label(-0.36, y(first+i, o.tokens), fmt.Sprintf("rank %d: token %d", rank, first+i))
			for _, e := range experts {
				line, err := plotter.NewLine(plotter.XYs{{X: 0, Y: y(first+i, o.tokens)}, {X: 1, Y: y(e, o.experts)}})
				if err != nil {
					return err
				}
				line.Color, line.Width = colors[rank%len(colors)], vg.Points(1.5)
				p.Add(line)
			}
		}
	}
	for e := range o.experts {
		label(1.02, y(e, o.experts), fmt.Sprintf("expert %d on rank %d", e, e*len(all)/o.experts))
	}
	text, err := plotter.NewLabels(labels)
	if err != nil {
		return err
	}
	for i := range text.TextStyle {
		text.TextStyle[i] = style
	}
	p.Add(text)
	p.X.Min, p.X.Max = -0.38, 1.4
	return curve.Save(o.picture, 6.5*vg.Inch, 5*vg.Inch, func(c draw.Canvas) error {
		p.Draw(c)
		return nil
	})
}
