package images

import (
	"math"
	"slices"
	"sync"

	"github.com/ringo-ml/ringo/internal/kernel"
)

// weights are those of the pixels, from the first one, that make a pixel of the result.
type weights struct {
	first int
	w     []float32
}

func (w *weights) end() int { return w.first + len(w.w) }

// sum writes the weighted sum of rows.
func (w *weights) sum(to []float32, row func(i int) []float32) {
	clear(to)
	for k, v := range w.w {
		kernel.AddScaled(to, row(w.first+k), v)
	}
}

// bilinear returns the weights of n of to pixels, from pixel at on: a triangle around its place, which is wider if the image gets smaller.
// So does Pillow's BILINEAR.
func bilinear(from, to, at, n int) []weights {
	scale := float64(from) / float64(to)
	reach := max(scale, 1)
	all, rest := make([]weights, n), make([]float32, n*(int(2*reach)+2))
	for i := range all {
		center := float64((float64(at+i) + 0.5) * scale) // rounded on every processor
		first, end := max(int(center-reach+0.5), 0), min(int(center+reach+0.5), from)
		parts, sum := rest[:end-first:end-first], 0.0
		rest = rest[end-first:]
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

// part is what is taken of a stored image, with the weights of its pixels in the order of the target.
type part struct {
	target
	across, along []weights
	from, end     int // columns
	bottom        int // the row after the last one
}

func (t target) part(width, height int, crop cropFunc) *part {
	h, v := t.spans(width, height, crop)
	p := &part{target: t, across: h.weights(t.width), along: v.weights(t.height)}
	p.from, p.end, p.bottom = p.across[0].first, p.across[t.width-1].end(), p.along[t.height-1].end()
	if p.right < 0 {
		slices.Reverse(p.across)
		p.first, p.right = p.first+p.right*(p.width-1), -p.right
	}
	if p.down < 0 {
		slices.Reverse(p.along)
		p.first, p.down = p.first+p.down*(p.height-1), -p.down
	}
	return p
}

// A scaler keeps the last rows that it has read, and makes some rows of the result together.
const mostKept, mostTogether = 8, 32

// buffers are the memory of scale.
var buffers = sync.Pool{New: func() any { return new([]float32) }}

// scratch is the memory with which scale is fastest, for images of so many columns. It needs 1/18 of that.
func scratch(columns int) int64 { return 12 * int64(columns) * (mostKept + 2*mostTogether) }

// scale writes values in [0, 1]: it sums up rows and then, turned around, columns. Its memory is free bytes, or what it needs.
func (p *part) scale(row rowFunc, free int64) {
	n := p.end - p.from
	space := int(free / (12 * int64(n+p.width)))
	kept := min(max(space/4, 1), mostKept)
	together := min(max((space-kept)/2, 1), mostTogether)
	pixel := 3 * together
	memory := buffers.Get().(*[]float32)
	defer buffers.Put(memory)
	all := kept*3*n + 2*pixel*n + pixel*p.width
	*memory = slices.Grow((*memory)[:0], all)[:all]
	rest := *memory
	next := func(size int) (floats []float32) {
		floats, rest = rest[:size], rest[size:]
		return floats
	}
	lines, tall, turned, done, at := next(kept*3*n), next(pixel*n), next(pixel*n), next(pixel*p.width), make([]int, kept)
	read := func(y int) []float32 {
		line := lines[y%kept*3*n:][:3*n]
		if at[y%kept] != y+1 {
			row(y, p.from, planes{line[:n], line[n : 2*n], line[2*n:]})
			at[y%kept] = y + 1
		}
		return line
	}
	column := func(x int) []float32 { return turned[(x-p.from)*pixel:][:pixel] }
	for top := 0; top < p.height; top += together {
		rows := min(together, p.height-top)
		for i := range rows {
			p.along[top+i].sum(tall[i*3*n:][:3*n], read)
		}
		kernel.CopyStrided(turned, tall, []int{3, rows, n}, []int{together, 1, pixel}, []int{n, 3 * n, 1})
		for x := range p.across {
			p.across[x].sum(done[x*pixel:][:pixel], column)
		}
		kernel.Unit(done, done)
		kernel.CopyStrided(p.out[p.first+top*p.down:], done, []int{3, rows, p.width}, []int{len(p.out) / 3, p.down, p.right},
			[]int{together, 1, pixel})
	}
}
