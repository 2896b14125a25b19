package images

import "math"

// weights are those of the pixels, from the first one, that make a pixel of the result.
type weights struct {
	first int
	w     []float32
}

func (w *weights) end() int { return w.first + len(w.w) }

// bilinear returns the weights of each of to pixels: a triangle around its place, which is wider if the image gets smaller. So does
// Pillow's BILINEAR.
func bilinear(from, to int) []weights {
	scale := float64(from) / float64(to)
	reach := max(scale, 1)
	all := make([]weights, to)
	for i := range all {
		center := float64((float64(i) + 0.5) * scale) // rounded on every processor
		first, end := max(int(center-reach+0.5), 0), min(int(center+reach+0.5), from)
		parts, sum := make([]float32, end-first), 0.0
		value := func(j int) float64 { return max(0, 1-math.Abs(float64(first+j)+0.5-center)/reach) }
		for j := range parts {
			sum += value(j)
		}
		for j := range parts {
			parts[j] = float32(value(j) / sum)
		}
		all[i] = weights{first, parts}
	}
	return all
}

// target is where pixels go: in [3, height, width], the first one lies at first, and the next to the right and down are these steps away.
type target struct {
	out                []float32
	width, height      int // of the image as it is stored
	first, right, down int
	sideways           bool // rows are columns
}

// spans returns what of a stored image of width x height pixels is taken.
func (t target) spans(width, height int, crop cropFunc) (across, along span) {
	across, along = span{0, width, t.width, 0}, span{0, height, t.height, 0}
	if crop == nil {
		return across, along
	}
	if t.sideways {
		across, along = crop(width, height)
	} else {
		along, across = crop(height, width)
	}
	if t.right < 0 {
		across = across.reversed(width, t.width)
	}
	if t.down < 0 {
		along = along.reversed(height, t.height)
	}
	return across, along
}

// scale reads rows of so many pixels once each, and writes values in [0, 1].
func (t target) scale(row rowFunc, width, height int, crop cropFunc) {
	clear(t.out)
	h, v := t.spans(width, height, crop)
	across, along, area := h.weights(t.width), v.weights(t.height), len(t.out)/3
	rgb, narrow := make([]byte, 3*width), make([]float32, 3*t.width)
	for y, j := along[0].first, 0; y < along[t.height-1].end(); y++ {
		row(y, rgb)
		for x := range across {
			var r, g, b float32
			from := rgb[3*across[x].first:]
			for k, w := range across[x].w {
				r += float32(w * float32(from[3*k]))
				g += float32(w * float32(from[3*k+1]))
				b += float32(w * float32(from[3*k+2]))
			}
			narrow[x], narrow[t.width+x], narrow[2*t.width+x] = r, g, b
		}
		for along[j].end() <= y { // rows of the result that are done
			j++
		}
		for i := j; i < t.height && along[i].first <= y; i++ {
			w := along[i].w[y-along[i].first]
			for c := range 3 {
				at := c*area + t.first + i*t.down
				for _, v := range narrow[c*t.width:][:t.width] {
					t.out[at] += float32(w * v)
					at += t.right
				}
			}
		}
	}
	for i, v := range t.out {
		t.out[i] = min(v/255, 1)
	}
}
