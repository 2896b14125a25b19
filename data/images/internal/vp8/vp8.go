package vp8

import (
	"errors"
	"fmt"
	"image"
	"io"
)

// A frame is divided into blocks of 16 x 16 pixels. The last samples of a block depend on the next one: six that the filter changes, and
// two whose color is mixed with that of the next ones.
const blockSize, reach = 16, 6 + 2

func blocks(pixels int) int { return (pixels + blockSize - 1) / blockSize }

// frame is what decoding has to know.
type frame struct {
	header
	columns, rows int // of blocks
	y             plane
	colors        [2]plane
	above         []neighbor // blocks of the row above
	left          neighbor
	coefficients  [25][16]int16 // of 4 x 4 samples: brightness, two colors, and the first ones of brightness
	filled        [24]bool      // which of them are not all zero
}

// neighbor is what the next blocks have to know of one: its modes, and which of its 4 x 4 samples of brightness and of the two colors have
// coefficients, and if the first ones of brightness have.
type neighbor struct {
	modes  [4]byte
	coded  [8]byte
	firsts byte
}

var errDamaged = errors.New("vp8: no Booleans are coded like this")

// Decode returns a frame: at least the samples that are left of right and above bottom, in pixels. There may be fewer rows, and to the
// right, there is anything. It takes less than 2 bytes for each pixel of the rows, and 64 for each row and column.
func Decode(content []byte, right, bottom int) (*image.YCbCr, error) {
	f := frame{}
	if err := f.read(content); err != nil {
		return nil, fmt.Errorf("vp8: %w", err)
	}
	f.columns, f.rows = blocks(f.width), min(blocks(f.height), blocks(bottom+reach))
	f.y, f.above = newPlane(16*f.columns, 16*f.rows), make([]neighbor, f.columns)
	for i := range f.colors {
		f.colors[i] = newPlane(8*f.columns, 8*f.rows)
	}
	right = min(f.columns, blocks(right+reach))
	filters := make([]strength, f.columns*f.rows)
	for y := range f.rows {
		f.left = neighbor{}
		for x := range f.columns {
			// the samples of a block begin with those above and to the right
			filters[y*f.columns+x] = f.block(x, y, x < right+f.rows-1-y)
		}
	}
	for _, r := range append(f.tokens, f.modes) {
		if r.short {
			return nil, fmt.Errorf("vp8: %w", io.ErrUnexpectedEOF)
		}
		if r.at > 0 && r.data[0] == 255 { // above the first interval
			return nil, errDamaged
		}
	}
	f.smooth(filters, right)
	cb, cr := f.colors[0], f.colors[1]
	return &image.YCbCr{Y: f.y.pix[f.y.start:], Cb: cb.pix[cb.start:], Cr: cr.pix[cr.start:], YStride: f.y.stride, CStride: cb.stride,
		SubsampleRatio: image.YCbCrSubsampleRatio420, Rect: image.Rect(0, 0, f.width, min(f.height, 16*f.rows))}, nil
}
