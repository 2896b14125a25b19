package viz

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/pp"
)

// Sizes of a schedule in pixels.
const unitWidth, rowHeight = 19, 24

// Schedule draws a schedule of pipeline parallelism, a row for each rank.
func Schedule(s *pp.Schedule, rep *pp.Report) string {
	var p svg
	const top = 96
	width := max(leftMargin+rightMargin+unitWidth*rep.Time, 640)
	title := fmt.Sprintf("%s on %s: %d microbatches of a step", s.Name, Counted(len(s.Actions), "rank"), s.Micros)
	p.begin(width, top+rowHeight*float64(len(s.Actions))+12, title)
	p.text(12, 30, "h", "start", title)
	p.text(12, 52, "dim", "start", fmt.Sprintf("%.0f units of time, of which ranks wait %.1f%%; most microbatches of a stage that a rank "+
		"holds: %s", rep.Time, 100*rep.Bubble, strings.Trim(fmt.Sprint(rep.Held), "[]")))
	x := 12.0
	for k, text := range kindTexts {
		p.add(`<rect x="%.1f" y="64" width="14" height="14" fill="%s"/>`, x, kindColors[k][0])
		p.text(x+20, 76, "dim", "start", text)
		x += 44 + charWidth*float64(len(text))
	}
	for r, list := range s.Actions {
		y := top + rowHeight*float64(r)
		p.text(leftMargin-10, y+16, "rank", "end", fmt.Sprintf("rank %d", r))
		for i, a := range list {
			p.action(a, leftMargin+unitWidth*rep.Start[r][i], y, slices.Index(s.Ranks, r) != a.Stage)
		}
	}
	return p.String() + "</svg>\n"
}

// action draws a box, darker for a later stage of the rank than its first one.
func (p *svg) action(a pp.Action, x, y float64, later bool) {
	color, width := kindColors[a.Kind][0], float64(unitWidth)
	if later {
		color = kindColors[a.Kind][1]
	}
	if a.Kind == pp.B {
		width *= 2
	}
	p.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="%d" fill="%s" stroke="#fff"><title>%v</title></rect>`, x, y, width, rowHeight-3,
		color, a)
	p.text(x+width/2, y+15, "dim", "middle", fmt.Sprint(a.Micro))
}

var kindTexts = [...]string{pp.F: "F forward", pp.B: "B backward", pp.I: "I gradients of activations", pp.W: "W gradients of weights"}

// kindColors are the colors of the kinds of actions, of a rank's first stage and of later ones.
var kindColors = [...][2]string{pp.F: {"#cfe3fb", "#8fbdf0"}, pp.B: {"#c9ecd0", "#86cf97"}, pp.I: {"#c9ecd0", "#86cf97"},
	pp.W: {"#f3e3bd", "#dfc277"}}
