package images

import (
	"bytes"
	"encoding/binary"
	"image"

	"github.com/ringo-ml/ringo/data/images/internal/vp8"
)

// Pixels of JPEG depend on whole blocks of up to 16 rows, and the chroma of a row is mixed with that of the next two.
const block, rowsBelow = 16, 2

// part decodes what is left of right and above bottom, and more where it has to.
func (p *source) part(right, bottom int) (img image.Image, err error) {
	if frame := p.lossy(); frame != nil {
		return vp8.Decode(frame, right, bottom)
	}
	file, rows := p.frame, (bottom+rowsBelow+block-1)/block*block
	if rows < p.head.Height && p.format == "jpeg" {
		if cut := bytes.Clone(file); cutJPEG(cut, p.head.Height, rows) {
			file = cut
		}
	}
	img, _, err = image.Decode(bytes.NewReader(file))
	return img, err
}

// lossy returns the frame of a lossy WebP, or nil if the file is not as it has to be, or its transparency must be right: that is left over.
func (p *source) lossy() []byte {
	const side = 1<<14 - 1
	if p.format != "webp" {
		return nil
	}
	end, extended := min(int64(len(p.frame)), 8+int64(binary.LittleEndian.Uint32(p.frame[4:]))), false
	for name, c := range riffChunks(p.frame[:end]) {
		switch {
		case name == "VP8 " && len(c) > 10 && number24(c[6:])&side == p.head.Width && number24(c[8:])&side == p.head.Height:
			return c
		case name == "VP8 " || name == "VP8L" || name == "VP8X" && extended || name == "ALPH" && p.whole:
			return nil
		}
		extended = extended || name == "VP8X"
	}
	return nil
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
