package kernel

import (
	"image/color"
	"unsafe"
)

// AddScaled computes dst += a*x; the product is rounded before the addition. dst and x do not overlap.
func AddScaled(dst, x []float32, a float32) {
	k := vecAddScaled(dst, x, a)
	dst = dst[k:]
	x = x[k:][:len(dst)]
	for i := range dst {
		dst[i] += float32(a * x[i])
	}
}

// Unit computes dst = min(x/255, 1).
func Unit(dst, x []float32) {
	k := vecUnit(dst, x)
	dst = dst[k:]
	x = x[k:][:len(dst)]
	for i := range dst {
		dst[i] = min(x[i]/255, 1)
	}
}

// SmoothChroma writes two pixels for each of the samples lo to hi-1 of a row of chroma, of which near is the nearer one and far the other.
// Down, a pixel has three parts of near and one of far; across, three parts of its sample and one of its neighbor, which the first and the
// last sample lack. left and right are added to sixteen times a pixel, to round it.
func SmoothChroma(to, near, far []byte, lo, hi, left, right int) {
	column := func(i int) int { return 3*int(near[i]) + int(far[i]) }
	smooth := func(i, end int) {
		for ; i < end; i++ {
			v := column(i)
			to[2*(i-lo)] = byte((3*v + column(max(i-1, 0)) + left) >> 4)
			to[2*(i-lo)+1] = byte((3*v + column(min(i+1, len(near)-1)) + right) >> 4)
		}
	}
	from, k := max(lo, 1), 0
	smooth(lo, from)
	if n := min(hi, len(near)-1) - from; n > 0 { // those with two neighbors
		pairs := unsafe.Slice((*uint16)(unsafe.Pointer(&to[2*(from-lo):][:2*n][0])), n)
		k = vecSmoothChroma(near[from:][:n], far[from:][:n], pairs, uint32(left), uint32(right))
	}
	smooth(from+k, hi)
}

// Colors converts pixels to red, green and blue, from 0 to 255: as color.YCbCrToRGB does or, with studio, with the colors of lossy WebP,
// whose black is 16 and white 235 (libwebp, src/dsp/yuv.h).
func Colors(red, green, blue []float32, y, cb, cr []byte, studio bool) {
	k, convert := 0, color.YCbCrToRGB
	if studio {
		k, convert = vecStudioColors(red, green, blue, y, cb, cr), studioColor
	} else {
		k = vecColors(red, green, blue, y, cb, cr)
	}
	for i := k; i < len(red); i++ {
		r, g, b := convert(y[i], cb[i], cr[i])
		red[i], green[i], blue[i] = float32(r), float32(g), float32(b)
	}
}

func studioColor(y, cb, cr byte) (r, g, b byte) {
	part := func(v byte, factor int) int { return int(v) * factor >> 8 }
	limit := func(v int) byte { return byte(min(max(v>>6, 0), 255)) }
	luma := part(y, 19077)
	return limit(luma + part(cr, 26149) - 14234), limit(luma - part(cb, 6419) - part(cr, 13320) + 8708), limit(luma + part(cb, 33050) - 17685)
}
