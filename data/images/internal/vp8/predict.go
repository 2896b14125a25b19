package vp8

import "encoding/binary"

// Modes of prediction, in the order of RFC 6386's tables; blocks of 16 x 16 and of 8 x 8 have the first four.
const (
	mean = iota
	gradient
	down
	right
	downRight
	verticalRight
	downLeft
	verticalLeft
	horizontalDown
	horizontalUp
	modes
)

// plane is the samples of an image, with a row above and columns to the left of it that predictions start from.
type plane struct {
	pix           []byte
	stride, start int
}

const border = 16

func newPlane(width, height int) plane {
	p := plane{stride: border + width}
	p.start = p.stride + border
	p.pix = make([]byte, p.stride*(1+height))
	for i := range p.stride {
		p.pix[i] = 127
	}
	for y := 1; y <= height; y++ {
		p.pix[y*p.stride+border-1] = 129
	}
	return p
}

// square predicts n x n samples at a place; x and y say if nothing is to the left of it and above.
func (p *plane) square(at, n int, mode byte, x, y bool) {
	above, value := p.pix[at-p.stride-1:][:n+1], byte(128)
	if sum, of := 0, 0; mode == mean && !(x && y) {
		for i := range n {
			if !y {
				sum, of = sum+int(above[1+i]), of+1
			}
			if !x {
				sum, of = sum+int(p.pix[at+i*p.stride-1]), of+1
			}
		}
		value = byte((sum + of/2) / of)
	}
	for i := range n {
		row := p.pix[at+i*p.stride-1:][:n+1]
		left, row := row[0], row[1:]
		switch mode {
		case down:
			copy(row, above[1:])
		case gradient:
			for j := range row {
				row[j] = clamp(int32(left) + int32(above[1+j]) - int32(above[0]))
			}
		case right:
			value = left
			fallthrough
		case mean:
			for j := range row {
				row[j] = value
			}
		}
	}
}

func clamp[T int | int32](v T) byte { return byte(min(max(v, 0), 255)) }

const (
	ones = 0x0101010101010101
	lows = 0x7f7f7f7f7f7f7f7f
)

// half is (a+b)/2 of eight bytes, rounded down; up rounds it up.
func half(a, b uint64) uint64 { return a&b + (a^b)>>1&lows }
func up(a, b uint64) uint64   { return a | b - (a^b)>>1&lows }

// small predicts 4 x 4 samples at a place, with four of the row above that are to the right of it.
func (p *plane) small(at int, mode byte, aside uint32) {
	edge := p.pix[at-p.stride-1:]
	above := uint64(binary.LittleEndian.Uint32(edge[1:])) | uint64(aside)<<32
	left := func(i int) uint64 { return uint64(p.pix[at+i*p.stride-1]) }
	l0, l1, l2, l3 := left(0), left(1), left(2), left(3)
	// The samples around, from the lowest on the left to those above: e without the first ones, and means of two and of three of them.
	e := l3 | l2<<8 | l1<<16 | l0<<24 | uint64(edge[0])<<32 | above<<40
	e1, e2 := e>>8|above>>24<<56, e>>16|above>>24<<48
	two, three := up(e, e1), up(e1, half(e, e2))
	last := (l2 + 3*l3 + 2) >> 2
	var a, b, c, d uint64 // rows
	switch mode {
	case mean:
		sum := l0 + l1 + l2 + l3 + 4
		for i := range 4 {
			sum += above >> (8 * i) & 255
		}
		a = sum >> 3 * (ones & 0xffffffff)
		b, c, d = a, a, a
	case gradient:
		p.square(at, 4, gradient, false, false)
		return
	case down:
		a = three >> 32
		b, c, d = a, a, a
	case right:
		a, b, c, d = three>>16&255*ones, three>>8&255*ones, three&255*ones, last*ones
	case downRight:
		a, b, c, d = three>>24, three>>16, three>>8, three
	case verticalRight:
		a, b = two>>32, three>>24
		c, d = a<<8|three>>16&255, b<<8|three>>8&255
	case horizontalDown:
		for i := range 4 { // both by turns
			d |= (two>>(8*i)&255 | three>>(8*i)&255<<8) << (16 * i)
		}
		a, b, c = d>>48|three>>32<<16, d>>32, d>>16
	case horizontalUp:
		a = two>>16&255 | three>>8&255<<8 | two>>8&255<<16 | three&255<<24 | two&255<<32 | last<<40 | l3<<48 | l3<<56
		b, c, d = a>>16, a>>32, l3*ones
	default:
		end := above>>56<<56 | above>>8
		two, three = up(above, end), up(end, half(above, end>>8|end>>56<<56))
		a, b, c, d = three, three>>8, three>>16, three>>24
		if mode == verticalLeft {
			a, b = two, three
			c, d = two>>8&0xffffff|three>>32<<24, three>>8&0xffffff|three>>40<<24
		}
	}
	for i, row := range [4]uint64{a, b, c, d} {
		binary.LittleEndian.PutUint32(p.pix[at+i*p.stride:], uint32(row))
	}
}
