package viz

import (
	"fmt"
	"html"
	"slices"
	"strings"
)

// Sizes in pixels.
const (
	leftMargin  = 78
	rightMargin = 20
	chipHeight  = 18
	chipGap     = 3
	laneHeight  = 26
	emptyHeight = 15 // height of a lane without labels
	bandPad     = 5
	charWidth   = 7.3 // width of a character of the monospaced font at 12 px
)

// svg is a picture that is being written.
type svg struct{ strings.Builder }

func (p *svg) add(format string, a ...any) { fmt.Fprintf(&p.Builder, format+"\n", a...) }

func (p *svg) text(x, y float64, class, anchor, s string) {
	p.add(`<text x="%.1f" y="%.1f" class="%s" text-anchor="%s">%s</text>`, x, y, class, anchor, html.EscapeString(s))
}

// canvas is a scene and the places of its parts.
type canvas struct {
	svg
	s      *Scene
	column float64 // width of a rank's column
	width  float64
	y      float64
}

// SVG returns the picture.
func (s *Scene) SVG() string {
	c := &canvas{s: s}
	c.measure()
	c.y = 30
	c.head()
	c.ranks()
	c.state("before", s.before)
	top := c.y
	for step := 1; step <= s.steps; step++ {
		c.step(step)
	}
	bottom := c.y
	c.state("after", s.after)
	c.foot()
	var lines svg
	for r := range s.ranks {
		lines.add(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" class="life"/>`, c.x(r), top, c.x(r), bottom)
	}
	return c.frame() + lines.String() + c.String() + "</svg>\n"
}

// frame begins the file.
func (c *canvas) frame() string {
	var p svg
	p.begin(c.width, c.y, c.title())
	return p.String()
}

// begin writes how a file begins, and its title.
func (p *svg) begin(width, height float64, title string) {
	p.add(`<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f">`, width, height, width, height)
	p.add(`<title>%s</title>`, html.EscapeString(title))
	p.add(`<style>text{font:13px "DejaVu Sans",Verdana,Helvetica,sans-serif;fill:#24292f}.h{font-size:17px;font-weight:bold}` +
		`.rank{font-weight:bold}.dim{fill:#57606a;font-size:12px}.chip{font:12px "DejaVu Sans Mono",Menlo,Consolas,monospace}` +
		`.life{stroke:#8c959f;stroke-dasharray:2 3}.band{stroke:#d0d7de}.msg{stroke-width:2}.away{stroke-width:4}.empty{stroke:#8c959f;stroke-dasharray:5 3}</style>`)
	p.add(`<rect width="100%%" height="100%%" fill="#fff"/>`)
}

func (c *canvas) x(rank int) float64 { return leftMargin + (float64(rank)+0.5)*c.column }

// measure finds the narrowest columns in which every label fits. A message has the space between its two columns; a state needs at least
// one chip.
func (c *canvas) measure() {
	c.column = 112 // room for four labels of two letters
	for _, a := range c.s.arrows {
		c.column = max(c.column, (c.labelWidth(a.holds)+46)/float64(distance(a)))
	}
	for _, list := range slices.Concat(c.s.before, c.s.after) {
		for _, h := range list {
			c.column = max(c.column, c.chipWidth(h)+12)
		}
	}
	for _, line := range c.captions() { // the columns are at least as wide as the text
		c.column = max(c.column, (24+7.6*float64(len([]rune(line)))-leftMargin-rightMargin)/float64(c.s.ranks))
	}
	c.width = leftMargin + c.column*float64(c.s.ranks) + rightMargin
}

func distance(a arrow) int { return max(a.to-a.from, a.from-a.to) }

// crosses reports whether a message goes to another host.
func (s *Scene) crosses(a arrow) bool { return s.at[a.from] != s.at[a.to] }

func (c *canvas) head() {
	c.text(12, c.y, "h", "start", c.title())
	for _, line := range c.captions() {
		c.y += 21
		c.text(12, c.y, "", "start", line)
	}
	c.y += 30
}

// ranks writes the names of the columns, and above them those of hosts if there are several.
func (c *canvas) ranks() {
	if c.s.at.Hosts() > 1 {
		for first, r := 0, 0; r < c.s.ranks; r++ {
			if r+1 < c.s.ranks && c.s.at[r+1] == c.s.at[r] {
				continue
			}
			x, w := c.x(first)-c.column/2+4, float64(r+1-first)*c.column-8
			c.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="22" rx="4" fill="#eaeef2"/>`, x, c.y-16, w)
			c.text(x+w/2, c.y, "", "middle", fmt.Sprintf("host %d", c.s.at[r]))
			first = r + 1
		}
		c.y += 26
	}
	for r := range c.s.ranks {
		c.text(c.x(r), c.y, "rank", "middle", fmt.Sprintf("rank %d", r))
	}
	c.y += 8
}

// state draws what every rank holds, in as many rows as its column needs.
func (c *canvas) state(name string, lists [][]held) {
	if c.s.chunks == 0 {
		return
	}
	c.text(12, c.y+chipHeight-2, "dim", "start", name)
	height := 0.0
	for r, list := range lists {
		rows := c.wrap(list)
		for i, row := range rows {
			c.chips(row, c.x(r), c.y+float64(i)*(chipHeight+chipGap)+chipHeight/2+2)
		}
		if len(rows) == 0 {
			c.text(c.x(r), c.y+chipHeight-2, "dim", "middle", "–")
		}
		height = max(height, float64(max(1, len(rows)))*(chipHeight+chipGap))
	}
	c.y += height + 8
}

// wrap breaks a list of chips into rows of a column's width.
func (c *canvas) wrap(list []held) [][]held {
	var rows [][]held
	for _, h := range list {
		last := len(rows) - 1
		if last < 0 || c.labelWidth(append(slices.Clone(rows[last]), h)) > c.column-10 {
			rows = append(rows, []held{h})
			continue
		}
		rows[last] = append(rows[last], h)
	}
	return rows
}

// lanes puts messages of a step that would cross on different lines, the shortest first.
func lanes(list []arrow) [][]arrow {
	slices.SortStableFunc(list, func(a, b arrow) int { return distance(a) - distance(b) })
	var out [][]arrow
	for _, a := range list {
		fits := func(lane []arrow) bool {
			return !slices.ContainsFunc(lane, func(b arrow) bool {
				return max(min(a.from, a.to), min(b.from, b.to)) < min(max(a.from, a.to), max(b.from, b.to))
			})
		}
		i := slices.IndexFunc(out, fits)
		if i < 0 {
			i = len(out)
			out = append(out, nil)
		}
		out[i] = append(out[i], a)
	}
	return out
}

func (c *canvas) step(step int) {
	var list []arrow
	for _, a := range c.s.arrows {
		if a.step == step {
			list = append(list, a)
		}
	}
	rows := lanes(list)
	c.add(`<line x1="8" y1="%.1f" x2="%.1f" y2="%.1f" class="band"/>`, c.y, c.width-8, c.y)
	c.text(12, c.y+bandPad+laneHeight/2+3, "dim", "start", fmt.Sprintf("step %d", step))
	c.y += bandPad
	for _, row := range rows {
		height := float64(emptyHeight)
		if slices.ContainsFunc(row, func(a arrow) bool { return a.bytes > 0 }) {
			height = laneHeight
		}
		for _, a := range row {
			c.arrow(a, c.y+height/2)
		}
		c.y += height
	}
	c.y += bandPad
	if step == c.s.steps {
		c.add(`<line x1="8" y1="%.1f" x2="%.1f" y2="%.1f" class="band"/>`, c.y, c.width-8, c.y)
		c.y += 6
	}
}

func (c *canvas) arrow(a arrow, y float64) {
	from, to, tip := c.x(a.from), c.x(a.to), 1.0
	if to < from {
		tip = -1
	}
	class, color := "msg", "#57606a"
	switch {
	case a.bytes == 0:
		class, color = "msg empty", "#8c959f"
	case len(a.holds) == 1:
		color = c.color(a.holds[0].chunk, 42)
	}
	if a.bytes > 0 && c.s.crosses(a) {
		class = "msg away"
	}
	c.add(`<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`, from, y, color)
	c.add(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" class="%s" stroke="%s"/>`, from, y, to-8*tip, y, class, color)
	c.add(`<path d="M%.1f %.1fl%.1f -4v8z" fill="%s"/>`, to-1*tip, y, -9*tip, color)
	c.chips(a.holds, (from+to)/2, y)
}

// chips draws chunks side by side, around x and y.
func (c *canvas) chips(list []held, x, y float64) {
	x -= c.labelWidth(list) / 2
	for _, h := range list {
		w := c.chipWidth(h)
		c.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="%d" rx="3" fill="%s" stroke="%s"/>`, x, y-chipHeight/2, w, chipHeight,
			c.color(h.chunk, 85), c.color(h.chunk, 42))
		c.text(x+w/2, y+4, "chip", "middle", c.label(h))
		x += w + chipGap
	}
}

func (c *canvas) color(chunk, light int) string {
	return fmt.Sprintf("hsl(%d,70%%,%d%%)", 210+360*chunk/max(c.s.chunks, 1), light)
}

func (c *canvas) labelWidth(list []held) float64 {
	w := -float64(chipGap)
	for _, h := range list {
		w += c.chipWidth(h) + chipGap
	}
	return max(w, 0)
}

func (c *canvas) chipWidth(h held) float64 { return 8 + charWidth*float64(len([]rune(c.label(h)))) }

// foot writes how much each rank has sent.
func (c *canvas) foot() {
	c.y += 8
	c.text(12, c.y, "dim", "start", "sends")
	for r := range c.s.ranks {
		c.text(c.x(r), c.y, "dim", "middle", bytesText(c.s.sent[r]))
	}
	c.y += 16
}
