package kernel

import "unsafe"

// X is packed as blocks of 32 lines of 32 elements, one after the other along K. Y is
// packed in panels of 32 columns, [words][32].

const (
	// packPanels panels whose lines do not lie along K are packed together,
	// tileDepth rows at a time, so that longer runs of memory are read. The room
	// has roomWords words of each line.
	packPanels = 8
	tileDepth  = 32
	roomWords  = 128
)

// tileWords is the number of words for k elements, with padding.
func tileWords(k int) int { return (k + tileRows - 1) / tileRows * tileSide }

// halves is x as pairs of elements.
func halves(x []float32) []BF16 {
	return unsafe.Slice((*BF16)(unsafe.Pointer(&x[0])), 2*len(x))
}

// elements is the number of elements of K in some words from word k on.
func (p *passTiles) elements(k, words int) int { return min(2*words, p.g.K-2*k) }

// packX packs the current lines of X from word flat on.
func (p *passTiles) packX() {
	span := p.k1 - p.flat
	if p.x.along {
		for i := p.lo; i < p.hi; i += tileRows {
			p.tiles.copy(p.packedX[(i-p.lo)*span:], p.x.from(i, 2*p.flat), p.x.ld, min(tileRows, p.hi-i), p.elements(p.flat, span))
		}
		return
	}
	for i := p.lo; i < p.hi; i += packPanels * tileRows {
		w := min(packPanels*tileRows, p.hi-i)
		for k := p.flat; k < p.k1; k += roomWords {
			words := min(roomWords, p.k1-k)
			p.interleaved(p.room, tileRows*roomWords, &p.x, i, w, k, words)
			for r := 0; r < w; r += tileRows {
				dst, room := p.packedX[(i+r-p.lo)*span+(k-p.flat)*tileRows:], p.room[r*roomWords:]
				for t := 0; t < words; t += tileSide {
					p.packTransposed(dst[t*tileRows:], tileSide, room[t*tileRows:], tileRows, tileSide, tileRows)
				}
			}
		}
	}
}

// packY packs n lines of Y from j on, some words of K from word k on, in panels that
// are ps words apart.
func (p *passTiles) packY(dst []float32, ps, j, n, k, words int) {
	if !p.y.along {
		p.interleaved(dst, ps, &p.y, j, n, k, words)
		return
	}
	elements := p.elements(k, words)
	for c := 0; c < n; c += tileRows {
		panel := dst[c/tileRows*ps:]
		clear(panel[(elements+1)/2*tileRows : words*tileRows])
		p.packB[1](panel, tileRows, p.y.from(j+c, 2*k), p.y.ld, min(tileRows, n-c), elements, nil)
	}
}

// interleaved packs panels of lines that do not lie along K.
func (p *passTiles) interleaved(dst []float32, ps int, s *sideBF16, j, n, k, words int) {
	elements := p.elements(k, words)
	for r := 0; r < elements; r += tileDepth {
		depth := min(tileDepth, elements-r)
		for c := 0; c < n; c += tileRows {
			p.packB[0](dst[c/tileRows*ps+r/2*tileRows:], tileRows, s.from(j+c, 2*k+r), s.ld, min(tileRows, n-c), depth, nil)
		}
	}
	for c := 0; c < n; c += tileRows {
		panel := dst[c/tileRows*ps:]
		clear(panel[(elements+1)/2*tileRows : words*tileRows])
	}
}

// finish makes results of the sums of h lines of X from i on and n of Y from j on.
func (p *passTiles) finish(i, h, j, n int, sums []float32) {
	switch {
	case p.rounds(): // but for the last tile, if it has fewer rows
		if r := h / tileRows * tileRows; r < h {
			p.result(i+r, h-r, j, n, sums[r*tileRows:])
		}
	case p.turned:
		t := p.tile[:tileSums]
		for r := 0; r < h; r += tileRows {
			for c := 0; c < tileRows; c += tileSide {
				p.packTransposed(t[c:], tileRows, sums[(r+c)*tileRows:], tileRows, tileSide, tileRows)
			}
			p.widenBias(i+r, min(tileRows, h-r))
			p.result(j, n, i+r, min(tileRows, h-r), t)
		}
	case p.g.H == nil:
		p.result(i, h, j, n, sums)
	default:
		for r := 0; r < h; r += tileRows {
			p.result(i+r, min(tileRows, h-r), j, n, sums[r*tileRows:])
		}
	}
}

// rounds reports whether multiply rounds whole tiles.
func (p *passTiles) rounds() bool { return p.g.H != nil && p.rounded() && !p.turned }

// rounded reports whether results are the sums and the bias, without factors.
func (p *passTiles) rounded() bool { return p.g.Alpha == 1 && p.g.Beta == 0 }

// widenBias makes p.bias that of n columns from j on.
func (p *passTiles) widenBias(j, n int) {
	if p.g.Bias != nil {
		BF16ToF32(p.bias[:n], p.g.Bias[j:j+n])
	}
}

// result writes results: a tile of them, or several below each other in float32.
func (p *passTiles) result(i, h, j, n int, sums []float32) {
	g := &p.g
	if g.H == nil {
		p.tiles.scale(g.C[i*g.LDC+j:], g.LDC, sums, h, n, g.Alpha, g.Beta != 0)
		return
	}
	if !p.rounded() {
		t := p.tile[tileSums:]
		if g.Beta != 0 {
			for r := range h {
				row := t[r*tileRows:][:n]
				BF16ToF32(row, g.H[(i+r)*g.LDC+j:][:n])
				scaled(row, row, g.Beta)
			}
		}
		p.tiles.scale(t, tileRows, sums, h, n, g.Alpha, g.Beta != 0)
		sums = t
	}
	p.round(g.H[i*g.LDC+j:], g.LDC, sums, tileRows, h, n, p.bias)
}
