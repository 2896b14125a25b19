package vp8

// strength says how much the edges of a block are smoothed (RFC 6386, 15): what differences may be at an edge and beside it, and from which
// on an edge is one of the picture.
type strength struct {
	edge, beside, high int
	inside             bool // also between 4 x 4 samples
}

func (h *header) readFilter(r *reader, c changes) {
	h.simple = r.flag()
	base, sharpness, of := r.uint(6), r.uint(3), [8]int{} // changes for kinds of frames, this one first, and of modes, small blocks first
	if used := r.flag(); used && r.flag() {
		for i := range of {
			of[i] = r.int(6)
		}
	}
	for i := range h.strengths {
		if level := c.of(base, c.level[i]) + of[0]; base > 0 {
			h.strengths[i] = [2]strength{newStrength(int8(level), sharpness), newStrength(int8(level+of[4]), sharpness)}
		}
	}
}

// newStrength takes a level of 8 bits, as golang.org/x/image does: only a damaged file has a larger one.
func newStrength(of int8, sharpness int) strength {
	level := min(int(of), 63)
	if level <= 0 {
		return strength{}
	}
	beside := level
	if sharpness > 0 {
		beside = min(level>>((sharpness+3)/4), 9-sharpness)
	}
	beside = max(beside, 1)
	s := strength{edge: 2*level + beside, beside: beside}
	if level >= 40 {
		s.high = 2
	} else if level >= 15 {
		s.high = 1
	}
	return s
}

// smooth filters the blocks of some columns.
func (f *frame) smooth(filters []strength, columns int) {
	for i, s := range filters {
		x, y := i%f.columns, i/f.columns
		if x >= columns || s.edge == 0 {
			continue
		}
		f.y.smooth(x, y, 16, s, f.simple)
		for c := range f.colors {
			if !f.simple {
				f.colors[c].smooth(x, y, 8, s, false)
			}
		}
	}
}

// smooth filters a block of n x n samples: the edge on the left, those inside, the edge above, and those inside.
func (p *plane) smooth(x, y, n int, s strength, simple bool) {
	at, outer := p.start+n*(y*p.stride+x), s
	outer.edge += 4
	across := func(neighbor, step, along int) {
		if neighbor > 0 {
			p.edge(at, step, along, n, outer, true, simple)
		}
		for k := 4; k < n && s.inside; k += 4 {
			p.edge(at+k*step, step, along, n, s, false, simple)
		}
	}
	across(x, 1, p.stride)
	across(y, p.stride, 1)
}

// edge changes two samples where the simple filter is taken or the picture has an edge, too; or else up to six at the edge of a block, or
// up to four inside.
func (p *plane) edge(at, step, along, n int, s strength, outer, simple bool) {
	pix := p.pix
	for range n {
		p3, p2, p1, p0 := int(pix[at-4*step]), int(pix[at-3*step]), int(pix[at-2*step]), int(pix[at-step])
		q0, q1, q2, q3 := int(pix[at]), int(pix[at+step]), int(pix[at+2*step]), int(pix[at+3*step])
		if 2*abs(p0-q0)+abs(p1-q1)/2 <= s.edge && (simple || abs(p3-p2) <= s.beside && abs(p2-p1) <= s.beside &&
			abs(p1-p0) <= s.beside && abs(q1-q0) <= s.beside && abs(q2-q1) <= s.beside && abs(q3-q2) <= s.beside) {
			two := simple || abs(p1-p0) > s.high || abs(q1-q0) > s.high
			a := 3 * (q0 - p0)
			if two || outer {
				a += limit(p1-q1, 127)
			}
			if two || !outer {
				b, c := limit((a+4)>>3, 15), limit((a+3)>>3, 15)
				pix[at-step], pix[at] = clamp(p0+c), clamp(q0-b)
				if !two {
					b = (b + 1) >> 1
					pix[at-2*step], pix[at+step] = clamp(p1+b), clamp(q1-b)
				}
			} else {
				a = limit(a, 127)
				b, c, d := (27*a+63)>>7, (18*a+63)>>7, (9*a+63)>>7
				pix[at-3*step], pix[at-2*step], pix[at-step] = clamp(p2+d), clamp(p1+c), clamp(p0+b)
				pix[at], pix[at+step], pix[at+2*step] = clamp(q0-b), clamp(q1-c), clamp(q2-d)
			}
		}
		at += along
	}
}

func abs(v int) int { return max(v, -v) }

// limit is v between -most-1 and most.
func limit(v, most int) int { return min(max(v, -most-1), most) }
