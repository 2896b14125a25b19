package images

import (
	"bytes"
	"encoding/binary"
	"errors"
	"image"
	"iter"
)

// riffChunks returns the chunks of a WebP, or of a frame behind 12 bytes.
func riffChunks(b []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for at := int64(12); at+8 <= int64(len(b)); {
			n := int64(binary.LittleEndian.Uint32(b[at+4:]))
			if at+8+n > int64(len(b)) || !yield(string(b[at:][:4]), b[at+8:][:n]) {
				return
			}
			at += 8 + n + n%2
		}
	}
}

// number24 reads three bytes.
func number24(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 }

// still returns the first frame of an animated WebP as a file, and its place, or the file itself
// (https://developers.google.com/speed/webp/docs/riff_container).
func still(content []byte) (file []byte, at image.Point, err error) {
	const headBytes, animated, alpha = 16, 1 << 1, 1 << 4
	var canvas image.Rectangle
	for name, c := range riffChunks(content) {
		switch {
		case name == "VP8X" && len(c) == 10 && c[0]&animated != 0:
			canvas = image.Rect(0, 0, number24(c[4:])+1, number24(c[7:])+1)
		case name == "ANMF" && len(c) >= headBytes && !canvas.Empty():
			at = image.Pt(2*number24(c), 2*number24(c[3:]))
			if frame := image.Rect(0, 0, number24(c[6:])+1, number24(c[9:])+1).Add(at); !frame.In(canvas) {
				return nil, at, errors.New("a frame lies outside of the image")
			}
			var b bytes.Buffer
			b.WriteString("RIFF\x00\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00")
			flags := byte(0)
			if bytes.HasPrefix(c[headBytes:], []byte("ALPH")) {
				flags = alpha
			}
			b.Write(append([]byte{flags, 0, 0, 0}, c[6:12]...))
			b.Write(c[headBytes:])
			binary.LittleEndian.PutUint32(b.Bytes()[4:], uint32(b.Len()-8))
			return b.Bytes(), at, nil
		}
	}
	return content, at, nil
}
