package images

import (
	"bytes"
	"encoding/binary"
	"image"
)

// Pixels of JPEG and lossy WebP depend on whole blocks of up to 16 rows. The filter of WebP changes the last six rows of a block with the
// next one, and the chroma of a row is mixed with that of the next two.
const block, rowsBelow = 16, 6 + 2

// cut returns the file with a header of fewer rows, if the decoder then decodes fewer, and how many: what follows is left over.
func (p *source) cut(bottom int) (file []byte, height int) {
	rows := (bottom + rowsBelow + block - 1) / block * block
	if rows < p.head.Height && p.at.Eq(image.Point{}) {
		switch file = bytes.Clone(p.frame); {
		case p.format == "jpeg" && cutJPEG(file, p.head.Height, rows), p.format == "webp" && cutWebP(file, p.head.Height, rows):
			return file, rows
		}
	}
	return p.frame, p.head.Height
}

// jpegFrame returns where the frame's header begins, whose height is at 5, or -1.
func jpegFrame(content []byte) int {
	for i := 2; i+10 < len(content); {
		switch marker := content[i+1]; {
		case content[i] != 0xff || marker == 0xff:
			i++
		case marker == 0 || marker >= 0xd0 && marker <= 0xd7:
			i += 2
		case marker < 0xc0 || marker > 0xc2: // another segment
			i += 2 + int(binary.BigEndian.Uint16(content[i+2:]))
		default:
			return i
		}
	}
	return -1
}

// cutJPEG changes the header, if the image is not progressive: there, runs of blocks without coefficients may go on below, and the decoder
// would take the rest for the next scan's.
func cutJPEG(file []byte, from, to int) bool {
	at := jpegFrame(file)
	if at < 0 || file[at+1] == 0xc2 || int(binary.BigEndian.Uint16(file[at+5:])) != from {
		return false
	}
	binary.BigEndian.PutUint16(file[at+5:], uint16(to))
	return true
}

// cutWebP changes both headers, if the image is lossy and opaque.
func cutWebP(file []byte, from, to int) bool {
	const bits = 1<<14 - 1 // of a height
	for name, c := range riffChunks(file) {
		switch {
		case name == "VP8X" && len(c) == 10 && number24(c[7:]) == from-1:
			c[7], c[8] = byte(to-1), byte((to-1)>>8)
		case name == "VP8 " && len(c) >= 10:
			height := binary.LittleEndian.Uint16(c[8:])
			binary.LittleEndian.PutUint16(c[8:], height&^bits|uint16(to))
			return int(height&bits) == from
		case name[:3] == "VP8" || name == "ALPH":
			return false
		}
	}
	return false
}
