package ops

import (
	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// Convolutions on the CPU are matrix products (im2col; Chellapilla et al. 2006). The pixels that each tap of the kernel reads become a row
// of a matrix. The matrix is made for a tile of output rows at a time, so it stays in the L2 cache. The gradient of the input is such a
// convolution, too: of the output's gradient with the flipped kernel. What a thread computes, and the order of sums, depend on the shapes
// alone.

// The largest tile in bytes: for a product, and for a product whose sum must stay in the cache, too.
const (
	convTile     = 512 << 10
	convGradTile = 256 << 10
)

// convParts is the largest number of parts of the batch whose weight gradients are summed separately. convPartsElems limits the elements of
// these sums together.
const (
	convParts      = 16
	convPartsElems = 4 << 20
)

// convWork is the memory that the convolutions of an element type use while they run.
type convWork[T float] struct {
	workspaces []convWorkspace[T]
	weights    []T // flipped
	sums       []T // weight gradients, for each part of the batch
	window     window
	m          int // rows of the matrix of weights
	parts      int
	blocks     int // of channels
	conv       Conv
}

// convWorkspace is the memory of a thread.
type convWorkspace[T float] struct{ padded, tile []T }

// workOf returns the memory of q's device.
func workOf[T float](q *cpu.Queue) *convWork[T] { return cpu.Local[convWork[T]]{}.Of(q) }

// window describes which pixels of the input an output pixel reads: taps, on planes with a border of zeros.
type window struct {
	c, h, w        int // the input's planes, of a group of channels
	top, left      int // place of the first pixel on a plane with a border; pixels at negative places are cut off
	gapH, gapW     int // distance to the next one
	planeH, planeW int
	kh, kw, dh, dw int
	sh, sw         int
	oh, ow         int
	rows, tiles    int // rows of the output in a tile, and number of tiles
	ld             int // elements in a row of the tile's matrix
}

func grown[T any](x []T, n int) []T {
	if cap(x) < n {
		return make([]T, n)
	}
	return x[:n]
}

// begin makes room for tiles of the window, of at most so many bytes.
func (s *convWork[T]) begin(q *cpu.Queue, bytes int) {
	cpu.GemmWorkspaceOf[T](q, 0) // makes those of all threads
	w := &s.window
	k, size := w.depth(), 4
	if _, double := any(T(0)).(float64); double {
		size = 8
	}
	w.rows = min(max(bytes/max(k*w.ow*size, 1), 1), w.oh)
	w.tiles = (w.oh + w.rows - 1) / w.rows
	w.rows = (w.oh + w.tiles - 1) / w.tiles
	w.tiles = (w.oh + w.rows - 1) / w.rows
	w.ld = w.rows * w.ow
	if w.ld*size%4096 == 0 { // a row length of whole pages would map all rows to the same cache sets
		w.ld += 64 / size
	}
	for len(s.workspaces) < q.Threads() {
		s.workspaces = append(s.workspaces, convWorkspace[T]{})
	}
	for i := range s.workspaces {
		l := &s.workspaces[i]
		l.padded, l.tile = grown(l.padded, w.c*w.planeH*w.planeW), grown(l.tile, k*w.ld)
	}
}

// depth is the number of elements that an output pixel reads.
func (w *window) depth() int { return w.c * w.kh * w.kw }

// isInput reports whether the matrix of taps is equal to the input, so that no copy is needed.
func (w *window) isInput() bool {
	return w.kh*w.kw == 1 && w.sh == 1 && w.sw == 1 && w.top == 0 && w.left == 0 && w.gapH == 1 && w.gapW == 1 &&
		w.planeH == w.h && w.planeW == w.w
}

// pad copies c planes of the input into planes with a border, which is zero already.
func pad[T float](w *window, dst, src []T, c int) {
	x0, x1 := inside(w.left, w.gapW, w.w, w.planeW)
	y0, y1 := inside(w.top, w.gapH, w.h, w.planeH)
	for p := range c {
		for y := y0; y < y1; y++ {
			to, from := dst[(p*w.planeH+w.top+y*w.gapH)*w.planeW:], src[(p*w.h+y)*w.w:]
			if w.gapW == 1 {
				copy(to[w.left+x0:w.left+x1], from[x0:x1])
				continue
			}
			for x := x0; x < x1; x++ {
				to[w.left+x*w.gapW] = from[x]
			}
		}
	}
}

// inside returns the range of n pixels that lie on the plane.
func inside(first, gap, n, plane int) (lo, hi int) {
	for lo < n && first+lo*gap < 0 {
		lo++
	}
	for hi = n; hi > lo && first+(hi-1)*gap >= plane; {
		hi--
	}
	return lo, hi
}

// taps fills the matrix of a tile: for each channel and tap, a row with the pixels that the tap reads for output rows r0 to r1.
func taps[T float](w *window, tile, padded []T, c, r0, r1 int) {
	row := 0
	for p := range c {
		for i := range w.kh {
			for j := range w.kw {
				from := padded[(p*w.planeH+r0*w.sh+i*w.dh)*w.planeW+j*w.dw:]
				to := tile[row*w.ld:][:(r1-r0)*w.ow]
				row++
				if w.sw == 1 {
					kernel.PackRows(to, from, w.sh*w.planeW, w.ow, r1-r0)
					continue
				}
				for r := range r1 - r0 {
					line, at := to[r*w.ow:][:w.ow], from[r*w.sh*w.planeW:]
					for x := range line {
						line[x] = at[x*w.sw]
					}
				}
			}
		}
	}
}

// convolve applies the window to the groups of all images in src [batch, groups·c, h, w]: out = weights · matrix of taps, plus bias if
// there is one. weights has m rows for each group.
func (s *convWork[T]) convolve(q *cpu.Queue, a *tensor.Args, part cpu.Part) {
	w := &s.window
	cost := max(s.m*w.depth()*w.rows*w.ow, 1)
	q.Run(a, s.conv.N*s.conv.Groups*w.tiles, (4*q.Grain()-1)/cost+1, 1, part)
}

// convPart makes the part function of convolve. The kernel's operands are out, src, weights, which the gradient turns, and maybe bias.
func convPart[T float](turned bool) cpu.Part {
	return func(q *cpu.Queue, a *tensor.Args, lo, hi, thread int) {
		s := workOf[T](q)
		l, g, w := &s.workspaces[thread], cpu.GemmWorkspaceOf[T](q, thread), &s.window
		out, src, weights, bias := tensor.Operand[T](a, 0), tensor.Operand[T](a, 1), s.weights, tensor.Operand[T](a, 3)
		if !turned {
			weights = tensor.Operand[T](a, 2)
		}
		k, pixels, direct, last := w.depth(), w.oh*w.ow, w.isInput(), -1
		clear(l.padded)
		g.Gemm = kernel.Gemm[T]{M: s.m, K: k, LDA: k, Alpha: 1, LDC: pixels}
		for item := lo; item < hi; item++ {
			picture, tile := item/w.tiles, item%w.tiles // of a group
			group, r0 := picture%s.conv.Groups, tile*w.rows
			r1 := min(r0+w.rows, w.oh)
			in := src[picture*w.c*w.h*w.w:][:w.c*w.h*w.w]
			g.Gemm.N, g.Gemm.A, g.Gemm.C = (r1-r0)*w.ow, weights[group*s.m*k:][:s.m*k], out[picture*s.m*pixels+r0*w.ow:]
			if direct {
				g.Gemm.B, g.Gemm.LDB = in[r0*w.ow:], pixels
			} else {
				if picture != last {
					pad(w, l.padded, in, w.c)
					last = picture
				}
				taps(w, l.tile, l.padded, w.c, r0, r1)
				g.Gemm.B, g.Gemm.LDB = l.tile, w.ld
			}
			g.Gemm.Beta = 0
			if bias != nil {
				g.Gemm.Beta = 1
				for o := range s.m {
					kernel.Fill(g.Gemm.C[o*pixels:][:g.Gemm.N], bias[group*s.m+o])
				}
			}
			kernel.GemmBlock(&g.Gemm, g.Memory, 0, g.Gemm.M, 0, g.Gemm.N)
		}
	}
}

// window returns the window through which the convolution reads x.
func (c *Conv) window() window {
	return window{c: c.In / c.Groups, h: c.H, w: c.W, top: c.PadH, left: c.PadW, gapH: 1, gapW: 1, planeH: c.H + 2*c.PadH,
		planeW: c.W + 2*c.PadW, kh: c.KH, kw: c.KW, dh: c.DilationH, dw: c.DilationW, sh: c.StrideH, sw: c.StrideW, oh: c.OutH, ow: c.OutW}
}

// gradWindow returns the window through which the gradient of x reads the gradient of the output, whose pixels are a stride apart.
func (c *Conv) gradWindow() window {
	spanH, spanW := c.DilationH*(c.KH-1), c.DilationW*(c.KW-1)
	return window{c: c.Out / c.Groups, h: c.OutH, w: c.OutW, top: spanH - c.PadH, left: spanW - c.PadW, gapH: c.StrideH, gapW: c.StrideW,
		planeH: c.H + spanH, planeW: c.W + spanW, kh: c.KH, kw: c.KW, dh: c.DilationH, dw: c.DilationW, sh: 1, sw: 1, oh: c.H, ow: c.W}
}

func convKernel[T float]() tensor.Kernel {
	run := convPart[T](false)
	return func(queue tensor.Queue, a *tensor.Args) {
		q := queue.(*cpu.Queue)
		s := workOf[T](q)
		s.conv = ConvOf(a)
		s.window, s.m = s.conv.window(), s.conv.Out/s.conv.Groups
		s.begin(q, convTile)
		s.convolve(q, a, run)
	}
}

func convGradXKernel[T float]() tensor.Kernel {
	run := convPart[T](true)
	return func(queue tensor.Queue, a *tensor.Args) {
		q := queue.(*cpu.Queue)
		s := workOf[T](q)
		s.conv = ConvOf(a)
		s.window, s.m = s.conv.gradWindow(), s.conv.In/s.conv.Groups
		s.begin(q, convTile)
		s.flipWeights(tensor.Operand[T](a, 2))
		s.convolve(q, a, run)
	}
}

// flipWeights makes the weights for the gradient of x: [groups, in, out, taps] from w [groups, out, in, taps], with the taps reversed.
func (s *convWork[T]) flipWeights(w []T) {
	in, out, taps := s.m, s.window.c, s.window.kh*s.window.kw
	s.weights = grown(s.weights, len(w))
	for g := range s.conv.Groups {
		for o := range out {
			for c := range in {
				from, to := w[((g*out+o)*in+c)*taps:][:taps], s.weights[((g*in+c)*out+o)*taps:][:taps]
				for k, v := range from {
					to[taps-1-k] = v
				}
			}
		}
	}
}

// convGradWKernel computes the gradient of the weights. It sums the products of taps and gradients for each part of the batch and block of
// channels, and then adds the parts in their order.
func convGradWKernel[T float]() tensor.Kernel {
	part := func(q *cpu.Queue, a *tensor.Args, lo, hi, thread int) {
		s := workOf[T](q)
		clear(s.workspaces[thread].padded)
		for item := lo; item < hi; item++ {
			s.sumPart(&s.workspaces[thread], cpu.GemmWorkspaceOf[T](q, thread), tensor.Operand[T](a, 1), tensor.Operand[T](a, 2), item)
		}
	}
	whole := func(q *cpu.Queue, a *tensor.Args, lo, hi, _ int) {
		s := workOf[T](q)
		for item := lo; item < hi; item++ {
			s.addParts(tensor.Operand[T](a, 0), T(a.F[0]), item)
		}
	}
	return func(queue tensor.Queue, a *tensor.Args) {
		q := queue.(*cpu.Queue)
		s := workOf[T](q)
		s.conv = ConvOf(a)
		c := &s.conv
		s.window, s.m = c.window(), c.Out/c.Groups
		s.blocks = (a.Len[0]/c.Groups*8-1)/convGradTile + 1
		s.blocks = min(s.blocks, s.window.c)
		s.parts = max(min(c.N, convParts, convPartsElems/a.Len[0]), 1)
		all := s.window.c
		s.window.c = (all + s.blocks - 1) / s.blocks
		s.begin(q, convGradTile)
		s.window.c = all
		s.sums = grown(s.sums, s.parts*a.Len[0])
		items := c.Groups * s.blocks
		cost := max(a.Len[0]/items*c.OutH*c.OutW*(c.N/s.parts), 1)
		q.Run(a, s.parts*items, (4*q.Grain()-1)/cost+1, 1, part)
		q.Run(a, items, (q.Grain()-1)/max(s.parts*a.Len[0]/items, 1)+1, 1, whole)
	}
}

// block returns the sums [channels·taps, outputs] of item, and its part of the batch, its group, and its block of channels c0 to c1.
func (s *convWork[T]) block(item int) (sums []T, part, group, c0, c1 int) {
	w := &s.window
	block, rest := item%s.blocks, item/s.blocks
	part, group = rest/s.conv.Groups, rest%s.conv.Groups
	c0, c1 = w.c*block/s.blocks, w.c*(block+1)/s.blocks
	column := w.kh * w.kw * s.m
	return s.sums[(part*s.conv.Groups+group)*w.c*column+c0*column:][:(c1-c0)*column], part, group, c0, c1
}

func (s *convWork[T]) sumPart(l *convWorkspace[T], g *cpu.GemmWorkspace[T], x, grad []T, item int) {
	w := &s.window
	sums, part, group, c0, c1 := s.block(item)
	pixels, k := w.oh*w.ow, (c1-c0)*w.kh*w.kw
	g.Gemm = kernel.Gemm[T]{TransB: true, M: k, N: s.m, Alpha: 1, LDA: w.ld, LDB: pixels, C: sums, LDC: s.m}
	clear(sums)
	for n := s.conv.N * part / s.parts; n < s.conv.N*(part+1)/s.parts; n++ {
		picture := n*s.conv.Groups + group
		pad(w, l.padded, x[(picture*w.c+c0)*w.h*w.w:], c1-c0)
		for r0 := 0; r0 < w.oh; r0 += w.rows {
			r1 := min(r0+w.rows, w.oh)
			taps(w, l.tile, l.padded, c1-c0, r0, r1)
			g.Gemm.K, g.Gemm.A, g.Gemm.B, g.Gemm.Beta = (r1-r0)*w.ow, l.tile, grad[picture*s.m*pixels+r0*w.ow:], 1
			kernel.GemmBlock(&g.Gemm, g.Memory, 0, k, 0, s.m)
		}
	}
}

// addParts adds the parts of a block of a group, and writes the result to dw [out, in/groups, taps], or adds it.
func (s *convWork[T]) addParts(dw []T, beta T, item int) {
	w := &s.window
	sum, _, group, c0, c1 := s.block(item)
	for p := 1; p < s.parts; p++ {
		more, _, _, _, _ := s.block(p*s.conv.Groups*s.blocks + item)
		kernel.Add(sum, sum, more)
	}
	taps := w.kh * w.kw
	dims, to, from := []int{s.m, (c1 - c0) * taps}, []int{w.c * taps, 1}, []int{1, s.m}
	dst := dw[(group*s.m*w.c+c0)*taps:]
	if beta == 0 {
		kernel.CopyStrided(dst, sum, dims, to, from)
	} else {
		kernel.AddStrided(dst, sum, dims, to, from)
	}
}
