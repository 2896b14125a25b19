package images

import (
	"image"
	"image/color"
)

// gifColors gives transparent pixels of the first frame their color in the file: the decoder makes them black. It returns the color
// around the frame, which is the transparent one, or the first.
func gifColors(b []byte, frame *image.Paletted) (around color.NRGBA) {
	const extension, control, hasTable = 0x21, 0xf9, 0x80
	at, table, size := 13, 13, 2<<(b[10]&7)
	if b[10]&hasTable != 0 {
		at += 3 * size
	}
	transparent := -1
	for at+10 < len(b) && b[at] == extension {
		if b[at+1] == control && b[at+3]&1 != 0 {
			transparent = int(b[at+6])
		}
		for at += 2; at < len(b) && b[at] != 0; at += 1 + int(b[at]) {
		}
		at++
	}
	if at+9 < len(b) && b[at+9]&hasTable != 0 {
		table, size = at+10, 2<<(b[at+9]&7)
	}
	colorOf := func(i int) color.NRGBA {
		if i >= size || table+3*i+3 > len(b) {
			return color.NRGBA{}
		}
		return color.NRGBA{b[table+3*i], b[table+3*i+1], b[table+3*i+2], 255}
	}
	if transparent >= 0 && transparent < len(frame.Palette) {
		frame.Palette[transparent] = colorOf(transparent)
	}
	return colorOf(max(transparent, 0))
}
