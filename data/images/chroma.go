package images

import (
	"image"
	"image/color"
)

// chroma makes colors of an image whose chroma has fewer samples than it has pixels. In between, a sample is a mean of its neighbors, as
// in libjpeg (jdsample.c, "fancy upsampling") and libwebp (src/dsp/upsampling.c): three parts of the nearer one, and one of the other.
type chroma struct {
	*image.YCbCr
	webp          bool
	wide, high    int    // pixels of a sample
	width, height int    // samples
	column        []int  // four times the samples of a row
	cb, cr        []byte // of the pixels of a row
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
	c.column, c.cb, c.cr = make([]int, c.width), make([]byte, p.Rect.Dx()), make([]byte, p.Rect.Dx())
	return c
}

func (c *chroma) row(y int, rgb []byte) {
	c.smooth(c.cb, c.Cb, y)
	c.smooth(c.cr, c.Cr, y)
	luma := c.Y[y*c.YStride:][:len(c.cb)]
	for x, v := range luma {
		to := rgb[3*x:][:3]
		if c.webp {
			to[0], to[1], to[2] = studio(v, c.cb[x], c.cr[x])
		} else {
			to[0], to[1], to[2] = color.YCbCrToRGB(v, c.cb[x], c.cr[x])
		}
	}
}

// smooth writes the chroma of the pixels in row y.
func (c *chroma) smooth(to, samples []byte, y int) {
	// libjpeg repeats samples where four pixels share one, and in images of few samples.
	repeat := c.wide == 4 || c.wide == 2 && c.width <= 2 && !c.webp
	near := y / c.high
	far := near
	if c.high == 2 && !repeat {
		far = min(max(near-1+2*(y%2), 0), c.height-1)
	}
	for i := range c.column {
		c.column[i] = 3*int(samples[near*c.CStride+i]) + int(samples[far*c.CStride+i])
	}
	if c.wide == 1 || repeat {
		round := 4 + 4*(y%2)
		for x := range to {
			to[x] = byte((4*c.column[x/c.wide] + round) >> 4)
		}
		return
	}
	left, right := 4, 8 // rounding
	if c.webp {
		left = 8
	} else if c.high == 2 {
		left, right = 8, 7
	}
	before := c.column[0]
	for i, v := range c.column {
		to[2*i] = byte((3*v + before + left) >> 4)
		if 2*i+1 < len(to) {
			to[2*i+1] = byte((3*v + c.column[min(i+1, c.width-1)] + right) >> 4)
		}
		before = v
	}
}

// studio converts a color of lossy WebP, whose black is 16 and white 235 (libwebp, src/dsp/yuv.h).
func studio(y, cb, cr byte) (r, g, b byte) {
	part := func(v byte, factor int) int { return int(v) * factor >> 8 }
	limit := func(v int) byte { return byte(min(max(v>>6, 0), 255)) }
	luma := part(y, 19077)
	return limit(luma + part(cr, 26149) - 14234), limit(luma - part(cb, 6419) - part(cr, 13320) + 8708), limit(luma + part(cb, 33050) - 17685)
}
