package images

import (
	"image"

	"github.com/ringo-ml/ringo/internal/kernel"
)

// chroma makes colors of an image whose chroma has fewer samples than it has pixels. In between, a sample is a mean of its neighbors, as
// in libjpeg (jdsample.c, "fancy upsampling") and libwebp (src/dsp/upsampling.c): three parts of the nearer one, and one of the other.
type chroma struct {
	*image.YCbCr
	webp          bool
	wide, high    int    // pixels of a sample
	width, height int    // samples
	cb, cr        []byte // of pixels of a row
}

func newChroma(p *image.YCbCr, webp bool) *chroma {
	c := &chroma{YCbCr: p, webp: webp, wide: 1, high: 1}
	switch p.SubsampleRatio {
	case image.YCbCrSubsampleRatio420:
		c.wide, c.high = 2, 2
	case image.YCbCrSubsampleRatio422:
		c.wide = 2
	case image.YCbCrSubsampleRatio440:
		c.high = 2
	case image.YCbCrSubsampleRatio411:
		c.wide = 4
	case image.YCbCrSubsampleRatio410:
		c.wide, c.high = 4, 2
	}
	c.width, c.height = (p.Rect.Dx()-1)/c.wide+1, (p.Rect.Dy()-1)/c.high+1
	c.cb, c.cr = make([]byte, c.wide*c.width), make([]byte, c.wide*c.width)
	return c
}

func (c *chroma) row(y, first int, to planes) {
	n := len(to[0])
	cb, cr := c.smooth(c.cb, c.Cb, y, first, first+n), c.smooth(c.cr, c.Cr, y, first, first+n)
	kernel.Colors(to[0], to[1], to[2], c.Y[y*c.YStride+first:][:n], cb, cr, c.webp)
}

// smooth returns the chroma of pixels of row y; to is memory for it.
func (c *chroma) smooth(to, samples []byte, y, first, end int) []byte {
	// libjpeg repeats samples where four pixels share one, and in images of few samples.
	repeat := c.wide == 4 || c.wide == 2 && c.width <= 2 && !c.webp
	near := y / c.high
	far := near
	if c.high == 2 && !repeat {
		far = min(max(near-1+2*(y%2), 0), c.height-1)
	}
	nearRow, farRow := samples[near*c.CStride:][:c.width], samples[far*c.CStride:][:c.width]
	if c.wide == 1 || repeat {
		round := 4 + 4*(y%2)
		for x := first; x < end; x++ {
			i := x / c.wide
			to[x-first] = byte((4*(3*int(nearRow[i])+int(farRow[i])) + round) >> 4)
		}
		return to[:end-first]
	}
	left, right := 4, 8 // rounding
	if c.webp {
		left = 8
	} else if c.high == 2 {
		left, right = 8, 7
	}
	lo := first / 2
	kernel.SmoothChroma(to, nearRow, farRow, lo, (end+1)/2, left, right)
	return to[first-2*lo:][:end-first]
}
