package viz

import (
	"fmt"
	"math"
	"time"

	"github.com/ringo-ml/ringo/dist/sim"
	"github.com/ringo-ml/ringo/dist/sim/training"
)

// Pass is a backward pass with buckets of a size: a row of the picture.
type Pass struct {
	Name string // the size of its buckets
	*training.Overlap
}

// Passes draws two lines for each pass: what ranks compute, and what is on the network.
func Passes(title string, compute sim.Time, rows []Pass) string {
	const top, wide, high = 76, 620.0, 46
	longest := compute
	for _, r := range rows {
		longest = max(longest, r.Total)
	}
	x := func(t sim.Time) float64 { return leftMargin + wide*float64(t)/float64(longest) }
	var p svg
	p.begin(leftMargin+wide+190, float64(top+high*len(rows)), title)
	p.text(12, 30, "h", "start", title)
	p.text(12, 54, "dim", "start", "buckets; above: backward; below: all-reduces, a box for each")
	for i, r := range rows {
		y := float64(top + high*i)
		p.text(leftMargin-10, y+22, "rank", "end", r.Name)
		p.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="14" fill="#8fbdf0"/>`, x(0), y, x(compute)-x(0))
		for k, s := range r.Sums {
			p.add(`<rect x="%.2f" y="%.1f" width="%.2f" height="14" fill="%s"><title>%s: %v to %v</title></rect>`, x(s.Start), y+16,
				x(s.End)-x(s.Start), [2]string{"#86cf97", "#4fae66"}[k%2], Roughly(s.Bytes), s.Start, s.End)
		}
		p.text(x(longest)+10, y+12, "dim", "start", fmt.Sprintf("%.0f%% hidden, %v", math.Abs(100*r.Hidden),
			time.Duration(r.Total/1e3).Round(10*time.Microsecond)))
		p.text(x(longest)+10, y+28, "dim", "start", Counted(len(r.Sums), "all-reduce"))
	}
	return p.String() + "</svg>\n"
}
