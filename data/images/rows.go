package images

import (
	"fmt"
	"image"
	"image/color"
)

// planes are red, green and blue of pixels side by side, from 0 to 255.
type planes [3][]float32

func (p planes) set(x int, r, g, b byte) {
	p[0][x], p[1][x], p[2][x] = float32(r), float32(g), float32(b)
}

func (p planes) part(lo, hi int) planes { return planes{p[0][lo:hi], p[1][lo:hi], p[2][lo:hi]} }

// rowFunc writes pixels of row y, from the first one on.
type rowFunc func(y, first int, to planes)

// rowsOf drops transparency, as PyTorch's loader does: a transparent pixel keeps its color.
func rowsOf(img image.Image, format string) (rowFunc, error) {
	switch p := img.(type) {
	case *image.Gray:
		return samples{p.Pix, p.Stride, 1, 1, false}.row, nil
	case *image.Gray16:
		return samples{p.Pix, p.Stride, 1, 2, false}.row, nil
	case *image.NRGBA:
		return samples{p.Pix, p.Stride, 4, 1, false}.row, nil
	case *image.NRGBA64:
		return samples{p.Pix, p.Stride, 4, 2, false}.row, nil
	case *image.RGBA:
		return samples{p.Pix, p.Stride, 4, 1, true}.row, nil
	case *image.RGBA64:
		return samples{p.Pix, p.Stride, 4, 2, true}.row, nil
	case *image.Paletted:
		return paletted(p), nil
	case *image.CMYK:
		return func(y, first int, to planes) {
			for x := range to[0] {
				ink := p.Pix[y*p.Stride+4*(first+x):][:4]
				r, g, b := color.CMYKToRGB(ink[0], ink[1], ink[2], ink[3])
				to.set(x, r, g, b)
			}
		}, nil
	case *image.YCbCr:
		return newChroma(p, format == "webp").row, nil
	case *image.NYCbCrA:
		return newChroma(&p.YCbCr, format == "webp").row, nil
	}
	return nil, fmt.Errorf("%T is no image of a file", img)
}

// samples is an image of one (gray) or four (with alpha) samples a pixel. Of 16 bits, the upper 8 are taken.
type samples struct {
	pix             []byte
	stride          int
	channels, bytes int // of a pixel, of a sample
	premultiplied   bool
}

func (s samples) row(y, first int, to planes) {
	step := s.channels * s.bytes
	line := s.pix[y*s.stride+first*step:]
	for x := range to[0] {
		pixel := line[x*step:]
		if s.channels == 1 {
			to.set(x, pixel[0], pixel[0], pixel[0])
			continue
		}
		to.set(x, pixel[0], pixel[s.bytes], pixel[2*s.bytes])
		if alpha := int(pixel[3*s.bytes]); s.premultiplied && alpha != 0 && alpha != 255 {
			for c := range to {
				to[c][x] = float32(min(255*int(pixel[c*s.bytes])/alpha, 255))
			}
		}
	}
}

func paletted(p *image.Paletted) rowFunc {
	colors := make([]color.NRGBA, 256)
	for i, c := range p.Palette {
		colors[i] = color.NRGBAModel.Convert(c).(color.NRGBA)
	}
	return func(y, first int, to planes) {
		for x := range to[0] {
			c := colors[p.Pix[y*p.Stride+first+x]]
			to.set(x, c.R, c.G, c.B)
		}
	}
}

// placed returns the rows of a canvas that has an image in it.
func placed(inner rowFunc, at image.Rectangle, around color.NRGBA) rowFunc {
	return func(y, first int, to planes) {
		for x := range to[0] {
			to.set(x, around.R, around.G, around.B)
		}
		lo, hi := max(first, at.Min.X), min(first+len(to[0]), at.Max.X)
		if y >= at.Min.Y && y < at.Max.Y && lo < hi {
			inner(y-at.Min.Y, lo-at.Min.X, to.part(lo-first, hi-first))
		}
	}
}
