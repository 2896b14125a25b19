package images

import (
	"bytes"
	"encoding/binary"
	"regexp"
)

// turned returns where a stored image goes in a result of h x w, for an orientation of EXIF
// (https://www.cipa.jp/std/documents/e/DC-008-2012_E.pdf, 4.6.4).
func turned(orientation, h, w int, out []float32) target {
	switch orientation {
	case 2: // mirrored
		return target{out, w, h, w - 1, -1, w, false}
	case 3: // upside down
		return target{out, w, h, h*w - 1, -1, -w, false}
	case 4:
		return target{out, w, h, (h - 1) * w, 1, -w, false}
	case 5: // rows are columns
		return target{out, h, w, 0, w, 1, true}
	case 6: // to be turned to the right
		return target{out, h, w, w - 1, w, -1, true}
	case 7:
		return target{out, h, w, h*w - 1, -w, -1, true}
	case 8: // to be turned to the left
		return target{out, h, w, (h - 1) * w, -w, 1, true}
	}
	return target{out, w, h, 0, 1, w, false}
}

// xmpOrientation is the attribute or the element of XMP.
var xmpOrientation = regexp.MustCompile(`tiff:Orientation(?:="|>)([1-8])`)

// orientation returns that of a file, from its EXIF or else from its XMP, or 1.
func orientation(content []byte, format string) int {
	var exif, xmp []byte
	switch format {
	case "tiff":
		exif = content
	case "jpeg":
		exif, xmp = jpegMeta(content)
	case "png":
		exif, xmp = pngMeta(content)
	case "webp":
		for name, c := range riffChunks(content) {
			switch name {
			case "EXIF":
				exif = c
			case "XMP ":
				xmp = c
			}
		}
	}
	if o := tiffTags(bytes.TrimPrefix(exif, []byte("Exif\x00\x00")))[tagOrientation]; o != 0 {
		return int(o)
	}
	if m := xmpOrientation.FindSubmatch(xmp); m != nil {
		return int(m[1][0] - '0')
	}
	return 1
}

func jpegMeta(b []byte) (exif, xmp []byte) {
	const app1, scan = 0xe1, 0xda
	for at := 2; at+4 <= len(b) && b[at+1] != scan; {
		if b[at] != 0xff || b[at+1] == 0xff { // padding
			at++
			continue
		}
		n := int(binary.BigEndian.Uint16(b[at+2:]))
		if n < 2 || n > len(b)-at-2 {
			return exif, xmp
		}
		segment := b[at+4 : at+2+n]
		if b[at+1] == app1 && bytes.HasPrefix(segment, []byte("Exif\x00\x00")) && exif == nil {
			exif = segment
		} else if b[at+1] == app1 && bytes.HasPrefix(segment, []byte("http://ns.adobe.com/xap/1.0/\x00")) {
			xmp = segment
		}
		at += 2 + n
	}
	return exif, xmp
}

func pngMeta(b []byte) (exif, xmp []byte) {
	for at := 8; at+12 <= len(b); {
		n := int64(binary.BigEndian.Uint32(b[at:]))
		if n > int64(len(b)-at-12) {
			return exif, xmp
		}
		c := b[at+8:][:n]
		switch name := string(b[at+4:][:4]); {
		case name == "eXIf":
			exif = c
		case name == "iTXt" && bytes.HasPrefix(c, []byte("XML:com.adobe.xmp\x00")):
			xmp = c
		}
		at += 12 + int(n)
	}
	return exif, xmp
}
