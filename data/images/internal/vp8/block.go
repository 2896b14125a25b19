package vp8

import "encoding/binary"

// block reads a block, and draws it if it is wanted. It returns how it is filtered.
func (f *frame) block(x, y int, wanted bool) strength {
	r, above, left, segment, empty := &f.modes, &f.above[x], &f.left, 0, false
	if f.mapped {
		segment = r.bit(f.segmentProbs[0])
		segment = 2*segment + r.bit(f.segmentProbs[1+segment])
	}
	if f.skips {
		empty = r.bit(f.skipProb) == 1
	}
	var modes [16]byte
	whole := r.bit(145) == 1
	if whole {
		m := r.leaf([]byte{156, 128}, mean, right, gradient)
		if m == mean {
			m = r.leaf([]byte{163}, mean, down)
		}
		modes[0], above.modes, left.modes = m, [4]byte{m, m, m, m}, [4]byte{m, m, m, m}
	} else {
		for i := range modes {
			up, before := &above.modes[i&3], &left.modes[i>>2]
			m := r.smallMode(*up, *before)
			modes[i], *up, *before = m, m, m
		}
	}
	color, coded := r.leaf([]byte{142, 114, 183}, mean, down, right, gradient), false
	if empty {
		above.empty(whole)
		left.empty(whole)
		f.filled = [24]bool{}
	} else {
		coded = f.residuals(&f.tokens[y&(len(f.tokens)-1)], above, whole, &f.steps[segment])
	}
	if wanted {
		f.draw(x, y, whole, &modes, color)
	} else {
		clear(f.coefficients[:])
	}
	s := f.strengths[segment][0]
	if !whole {
		s = f.strengths[segment][1]
	}
	s.inside = coded || !whole
	return s
}

// empty: a block has no coefficients; what it says of the first ones stays if it could have none.
func (n *neighbor) empty(whole bool) {
	n.coded = [8]byte{}
	if whole {
		n.firsts = 0
	}
}

// leaf is what a path through a tree comes to that goes on where a Boolean is true.
func (r *reader) leaf(probs []byte, of ...byte) byte {
	for i, p := range probs {
		if r.bit(p) == 0 {
			return of[i]
		}
	}
	return of[len(probs)]
}

// smallMode reads how 4 x 4 samples are predicted.
func (r *reader) smallMode(above, left byte) byte {
	p := modeProbs[(modes*int(above)+int(left))*(modes-1):][:modes-1]
	switch m := r.leaf(p[:4], mean, gradient, down, right, downLeft); m {
	case right:
		return r.leaf(p[4:6], right, downRight, verticalRight)
	case downLeft:
		return r.leaf(p[6:], downLeft, verticalLeft, horizontalDown, horizontalUp)
	default:
		return m
	}
}

// residuals reads the coefficients of a block. It says if there are any that are not zero.
func (f *frame) residuals(r *reader, above *neighbor, whole bool, q *[planes]steps) (coded bool) {
	left, kind, first := &f.left, brightness, 0
	if whole {
		c := r.block(&f.probs[firsts], 0, int(above.firsts+left.firsts), q[firsts], &f.coefficients[24])
		above.firsts, left.firsts = c, c
		f.spread()
		kind, first = withoutFirst, 1
	}
	for i := range f.filled {
		up, before := i&3, i>>2
		if i >= 16 {
			kind, first = color, 0
			up, before = 4+i>>2&1*2+i&1, 4+i>>2&1*2+i>>1&1
		}
		c := r.block(&f.probs[kind], first, int(above.coded[up]+left.coded[before]), q[kind], &f.coefficients[i])
		above.coded[up], left.coded[before] = c, c
		f.filled[i] = c > 0 || f.coefficients[i][0] != 0
		coded = coded || f.filled[i]
	}
	return coded
}

// draw predicts a block, and adds what its coefficients say.
func (f *frame) draw(x, y int, whole bool, modes *[16]byte, color byte) {
	p := &f.y
	at := p.start + 16*(y*p.stride+x)
	if whole {
		p.square(at, 16, modes[0], x == 0, y == 0)
	}
	aside := uint32(127 * (ones & 0xffffffff))
	if y > 0 && x == f.columns-1 {
		aside = uint32(p.pix[at-p.stride+15]) * (ones & 0xffffffff)
	} else if y > 0 {
		aside = binary.LittleEndian.Uint32(p.pix[at-p.stride+16:])
	}
	for i, m := range modes {
		at := at + 4*(i>>2*p.stride+i&3)
		if !whole && i&3 == 3 {
			p.small(at, m, aside)
		} else if !whole {
			p.small(at, m, binary.LittleEndian.Uint32(p.pix[at-p.stride+4:]))
		}
		p.add(at, f.filled[i], &f.coefficients[i])
	}
	for c := range f.colors {
		p := &f.colors[c]
		at := p.start + 8*(y*p.stride+x)
		p.square(at, 8, color, x == 0, y == 0)
		for i := range 4 {
			p.add(at+4*(i>>1*p.stride+i&1), f.filled[16+4*c+i], &f.coefficients[16+4*c+i])
		}
	}
}

// spread makes the first coefficients of brightness of those that they have in common (RFC 6386, 14.3).
func (f *frame) spread() {
	c := &f.coefficients[24]
	var m [16]int32
	for i := range 4 {
		a, b := int32(c[i])+int32(c[12+i]), int32(c[4+i])+int32(c[8+i])
		d, e := int32(c[4+i])-int32(c[8+i]), int32(c[i])-int32(c[12+i])
		m[i], m[4+i], m[8+i], m[12+i] = a+b, e+d, a-b, e-d
	}
	for i := range 4 {
		row := m[4*i:][:4]
		a, b, d, e := row[0]+row[3]+3, row[1]+row[2], row[1]-row[2], row[0]-row[3]+3
		for k, v := range [4]int32{a + b, e + d, a - b, e - d} {
			f.coefficients[4*i+k][0] = int16(v >> 3)
		}
	}
	*c = [16]int16{}
}

// add adds the cosine transform of coefficients to 4 x 4 samples, and clears them (14.3).
func (p *plane) add(at int, filled bool, c *[16]int16) {
	if !filled {
		return
	}
	var m [4][4]int32
	for i := range 4 {
		m[0][i], m[1][i], m[2][i], m[3][i] = turn(int32(c[i]), int32(c[4+i]), int32(c[8+i]), int32(c[12+i]))
	}
	for i := range 4 {
		row := p.pix[at+i*p.stride:][:4]
		a, b, d, e := turn(m[i][0]+4, m[i][1], m[i][2], m[i][3])
		row[0], row[1] = clamp(int32(row[0])+a>>3), clamp(int32(row[1])+b>>3)
		row[2], row[3] = clamp(int32(row[2])+d>>3), clamp(int32(row[3])+e>>3)
	}
	*c = [16]int16{}
}

// turn is the transform of four coefficients; the constants are the cosine and the sine of 22.5 degrees times the root of 2, in 1/65536.
func turn(a, b, c, d int32) (int32, int32, int32, int32) {
	const cos, sin = 85627, 35468
	even, odd := a+c, b*cos>>16+d*sin>>16
	minus, cross := a-c, b*sin>>16-d*cos>>16
	return even + odd, minus + cross, minus - cross, even - odd
}
