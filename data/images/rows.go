package images

import (
	"fmt"
	"image"
	"image/color"
)

// rowFunc writes a row of an image: red, green and blue of each pixel, a byte each.
type rowFunc func(y int, rgb []byte)

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
		return func(y int, rgb []byte) {
			for x := range len(rgb) / 3 {
				ink := p.Pix[y*p.Stride+4*x:][:4]
				rgb[3*x], rgb[3*x+1], rgb[3*x+2] = color.CMYKToRGB(ink[0], ink[1], ink[2], ink[3])
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

func (s samples) row(y int, rgb []byte) {
	line := s.pix[y*s.stride:]
	for x := range len(rgb) / 3 {
		pixel, to := line[x*s.channels*s.bytes:], rgb[3*x:][:3]
		if s.channels == 1 {
			to[0], to[1], to[2] = pixel[0], pixel[0], pixel[0]
			continue
		}
		to[0], to[1], to[2] = pixel[0], pixel[s.bytes], pixel[2*s.bytes]
		if alpha := int(pixel[3*s.bytes]); s.premultiplied && alpha != 0 && alpha != 255 {
			for c, v := range to {
				to[c] = byte(min(255*int(v)/alpha, 255))
			}
		}
	}
}

func paletted(p *image.Paletted) rowFunc {
	colors := make([]color.NRGBA, 256)
	for i, c := range p.Palette {
		colors[i] = color.NRGBAModel.Convert(c).(color.NRGBA)
	}
	return func(y int, rgb []byte) {
		for x := range len(rgb) / 3 {
			c := colors[p.Pix[y*p.Stride+x]]
			rgb[3*x], rgb[3*x+1], rgb[3*x+2] = c.R, c.G, c.B
		}
	}
}

// placed returns the rows of a canvas that has an image in it.
func placed(inner rowFunc, at image.Rectangle, around color.NRGBA) rowFunc {
	return func(y int, rgb []byte) {
		for x := range len(rgb) / 3 {
			rgb[3*x], rgb[3*x+1], rgb[3*x+2] = around.R, around.G, around.B
		}
		if y >= at.Min.Y && y < at.Max.Y {
			inner(y-at.Min.Y, rgb[3*at.Min.X:3*at.Max.X])
		}
	}
}
