package images

import (
	"bytes"
	"image"
	"image/color"
)

// memoryOf returns how much memory decoding an image takes: its file, its pixels, and the tables of the decoder and of the
// scaler to h x w.
func memoryOf(content []byte, format string, head image.Config, h, w int) (int64, error) {
	const tables = 1 << 18
	pixels, one := int64(head.Width)*int64(head.Height), int64(4) // bytes of a pixel
	switch head.ColorModel {
	case color.NRGBA64Model, color.RGBA64Model, color.Gray16Model:
		one = 8
	case color.GrayModel:
		one = 1
	}
	if _, indexed := head.ColorModel.(color.Palette); indexed {
		one = 1
	}
	n := int64(len(content)) + tables + 64*int64(head.Width+head.Height+w+h) // rows and weights
	switch format {
	case "png":
		if bytes.Contains(content, []byte("tRNS")) { // gray, with a transparent one
			one = max(one, 4)
		}
		if content[28] != 0 { // interlaced: each pass is an image
			one *= 2
		}
	case "jpeg":
		return n + jpegBytes(content, head), nil
	case "gif": // the frame, and the frame in order
		one = 2
	case "tiff":
		blocks, err := tiffBlocks(tiffTags(content), head)
		return n + one*pixels + blocks, err
	case "webp":
		one = 2
		for name := range riffChunks(content) {
			switch name {
			case "VP8L":
				one = max(one, 8)
			case "ALPH": // a lossless image
				one = 11
			}
		}
	}
	return n + one*pixels, nil
}

// jpegBytes returns the memory of the pixels of a JPEG, and of the coefficients if it is progressive.
func jpegBytes(content []byte, head image.Config) int64 {
	i := jpegFrame(content)
	if i < 0 {
		return 32 * int64(head.Width) * int64(head.Height)
	}
	parts, high, wide, sum := int(content[i+9]), 1, 1, 0 // components, and their blocks in a unit
	for k := range parts {
		if at := i + 11 + 3*k; at < len(content) && parts > 1 {
			wide, high = max(wide, int(content[at]>>4)), max(high, int(content[at]&15))
			sum += int(content[at]>>4) * int(content[at]&15)
		}
	}
	units := int64((head.Width-1)/(8*wide)+1) * int64((head.Height-1)/(8*high)+1)
	samples := 64 * units * int64(max(sum, 1))
	all := samples
	if content[i+1] == 0xc2 {
		all += 4 * samples
	}
	if parts > 1 && head.ColorModel != color.YCbCrModel { // RGB, or CMYK with a copy
		all += 8 * 64 * units * int64(wide*high)
	} else if sum != wide*high+2 { // converted to three values a pixel
		all += 3 * 64 * units * int64(wide*high)
	}
	return all
}
