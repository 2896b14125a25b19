package vp8

import (
	"encoding/binary"
	"errors"
	"io"
)

// header is what comes before the blocks (RFC 6386, 9).
type header struct {
	width, height int
	modes         reader
	tokens        []reader // of rows by turns
	mapped        bool     // blocks say to which segment they belong
	segmentProbs  [3]byte
	steps         [4][planes]steps // of segments
	simple        bool             // the filter
	strengths     [4][2]strength   // of segments: blocks that are predicted at once, and others
	probs         [planes]probs
	skips         bool // blocks may say that they have no coefficients
	skipProb      byte
}

// changes are what segments change of the frame's values, or have instead of them.
type changes struct {
	instead     bool
	step, level [4]int
}

func (c *changes) of(value, change int) int {
	if c.instead {
		value = 0
	}
	return value + change
}

func (h *header) read(content []byte) error {
	const head, sides = 10, 1<<14 - 1
	if len(content) < head {
		return io.ErrUnexpectedEOF
	}
	tag := binary.LittleEndian.Uint32(content)
	if tag&1 != 0 || tag>>24 != 0x9d || content[4] != 1 || content[5] != 0x2a {
		return errors.New("it is no key frame")
	}
	h.width, h.height = int(binary.LittleEndian.Uint16(content[6:])&sides), int(binary.LittleEndian.Uint16(content[8:])&sides)
	if h.width == 0 || h.height == 0 {
		return errors.New("it has no pixels")
	}
	first := int(tag >> 5 & (1<<19 - 1))
	if content = content[head:]; first > len(content) {
		return io.ErrUnexpectedEOF
	}
	h.modes = newReader(content[:first])
	r := &h.modes
	r.uint(2) // how to convert colors, and whether to limit them
	c := h.readSegments(r)
	h.readFilter(r, c)
	if err := h.divide(content[first:], 1<<r.uint(2)); err != nil {
		return err
	}
	h.readSteps(r, c)
	r.uint(1) // whether the probabilities hold for the next frames
	h.readProbs(r)
	if h.skips = r.flag(); h.skips {
		h.skipProb = byte(r.uint(8))
	}
	return nil
}

func (h *header) readSegments(r *reader) (c changes) {
	h.segmentProbs = [3]byte{255, 255, 255}
	if !r.flag() {
		return c
	}
	c.instead = true
	h.mapped = r.flag()
	if r.flag() {
		c.instead = r.flag()
		for i := range c.step {
			c.step[i] = r.int(7)
		}
		for i := range c.level {
			c.level[i] = r.int(6)
		}
	}
	for i := range h.segmentProbs {
		if h.mapped && r.flag() {
			h.segmentProbs[i] = byte(r.uint(8))
		}
	}
	return c
}

// divide makes readers of tokens: n-1 lengths, and what they are of.
func (h *header) divide(content []byte, n int) error {
	lengths, rest := content, 3*(n-1)
	for i := range n {
		size := len(content) - rest
		if i < n-1 && size >= 0 {
			size = int(lengths[3*i]) | int(lengths[3*i+1])<<8 | int(lengths[3*i+2])<<16
		}
		if size < 0 || rest+size > len(content) {
			return io.ErrUnexpectedEOF
		}
		h.tokens = append(h.tokens, newReader(content[rest:][:size]))
		rest += size
	}
	return nil
}

func (h *header) readSteps(r *reader, c changes) {
	base := r.uint(7)
	y, y2dc, y2ac, cdc, cac := r.int(4), r.int(4), r.int(4), r.int(4), r.int(4)
	for i := range h.steps {
		q := c.of(base, c.step[i])
		at := func(d, most int) int { return min(max(q+d, 0), most) }
		luma := steps{dcSteps[at(y, 127)], acSteps[at(0, 127)]}
		h.steps[i] = [planes]steps{withoutFirst: luma, brightness: luma, color: {dcSteps[at(cdc, 117)], acSteps[at(cac, 127)]},
			firsts: {2 * dcSteps[at(y2dc, 127)], max(acSteps[at(y2ac, 127)]*155/100, 8)}}
	}
}

func (h *header) readProbs(r *reader) {
	i := 0
	for kind := range h.probs {
		var of [bands][contexts][tokenProbs]byte
		for b := range bands * contexts * tokenProbs {
			p := &of[b/(contexts*tokenProbs)][b/tokenProbs%contexts][b%tokenProbs]
			if *p = startProbs[i]; r.bit(changeProbs[i]) == 1 {
				*p = byte(r.uint(8))
			}
			i++
		}
		for place, b := range bandOf {
			h.probs[kind][place] = of[b]
		}
	}
}
