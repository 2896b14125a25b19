package cuda

import (
	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// Sizes of conv.cu.
const (
	convLanes = 256
	convDepth = 32      // the longest step along the sums
	convMost  = 32      // MOST
	convTasks = 528     // so many blocks share the sums of a gradient of weights: four for each multiprocessor of an H100
	convPart  = 256     // least number of pixels in a part
	convParts = 256     // largest number of parts
	convZ     = 1 << 16 // limit of a grid's y and z
)

// Sizes of conv_last.cu, and when it is used. The numbers are from a study on an H100. There the product of large sizes ran at 165 TFLOP/s,
// that of conv.cu at 82: for 117 multiplications conv.cu took as much longer as an element takes that is written again.
const (
	lastTile   = 64      // pixels and channels of a block that writes pictures again
	lastTaps   = 63      // MOST
	lastMemory = 1 << 30 // largest number of bytes that are written again
)

// lastLeast are the least numbers for channels last: of channels of a group; of multiplications for each element that is written again, and
// for each element of y and of x; and of multiplications: smaller products do not fill the card, and two more launches take 6 µs.
type lastLeast struct{ channels, reuse, work int }

var studied = lastLeast{channels: 16, reuse: 128, work: 1 << 30}

// The products of a convolution: y, and the gradients of x and of w.
const convForward, convGradX, convGradW = 0, 1, 2

// convKernels are the kernels of conv.cu for a type, with tiles of 64 and of 128 rows.
type convKernels struct {
	forward, gradX, gradW [2]*kernel
	ends                  *kernel
}

// newConvKernels returns those of a file whose names begin so. shared is what a launch of each needs, if not 0.
func newConvKernels(file, name, ends string, t tensor.DType, shared, sharedW [2]int) convKernels {
	of := func(name string, shared [2]int) (k [2]*kernel) {
		for i, size := range []string{"_64", "_128"} {
			k[i] = newKernel(file, name+size, elems[t])
			k[i].shared = shared[i]
		}
		return k
	}
	return convKernels{of(name, shared), of(name+"_grad_x", shared), of(name+"_grad_w", sharedW), newKernel(file, name+ends, elems[t])}
}

var convTable = func() (table [tensor.NumDTypes]convKernels) {
	for _, t := range floatTypes {
		table[t] = newConvKernels("conv.cu", "conv", "_grad_w_ends", t, [2]int{}, [2]int{})
	}
	return table
}()

// lastKernels are the kernels of conv_last.cu for a type of 16 bits, and those that write pictures and weights with channels last.
type lastKernels struct {
	convKernels
	pictures, weights *kernel
}

// A block's shared memory is STAGES times tile + 128 rows of 32 + 8 elements; for the gradient of w, 32 rows of tile + 8 and 128 + 8.
var lastTable = func() (table [tensor.NumDTypes]lastKernels) {
	for _, t := range []tensor.DType{tensor.BFloat16, tensor.Float16} {
		table[t] = lastKernels{newConvKernels("conv_last.cu", "conv_last", "_ends", t, [2]int{4 * 192 * 40 * 2, 4 * 256 * 40 * 2},
			[2]int{4 * 32 * (72 + 136) * 2, 4 * 32 * (136 + 136) * 2}),
			newKernel("conv_last.cu", "channels_last", elems[t]), newKernel("conv_last.cu", "weights_last", elems[t])}
	}
	return table
}()

// conv adds the sizes of a convolution: struct Conv of conv.cuh.
func (q *Queue) conv(a *tensor.Args) *Queue {
	c := ops.ConvOf(a)
	return q.sizes([16]int64{int64(c.N), int64(c.In / c.Groups), int64(c.H), int64(c.W), int64(c.Out / c.Groups),
		int64(c.Groups), int64(c.KH), int64(c.KW), int64(c.StrideH), int64(c.StrideW), int64(c.PadH), int64(c.PadW),
		int64(c.DilationH), int64(c.DilationW), int64(c.OutH), int64(c.OutW)}, 16)
}

// convTiles are the tiles of a product of conv.cu: the index of its kernel, the blocks across and down, and z of them.
type convTiles struct {
	size, across, down, z int
	shared                int // bytes
}

// convAsProduct says how conv.cu computes a product of m rows and n columns. It cannot if numbers have more than 32 bits, kernels are
// large, or 16-bit floats have no tensor cores: then an element is computed by a thread, or a weight's gradient by a block.
func (q *Queue) convAsProduct(a *tensor.Args, c ops.Conv, m, n, z int) (t convTiles, ok bool) {
	most := max(c.N*c.In*c.H*c.W, c.N*c.Out*c.OutH*c.OutW, c.Out*(c.In/c.Groups)*c.KH*c.KW)
	tile := 64
	if m > 64 && a.DType != tensor.Float64 {
		t.size, tile = 1, 128
	}
	t.down, t.z = tilesOf(m, tile), z
	if a.DType.IsHalf() {
		t.shared = 2 * 2 * (tile*(convDepth+8) + convDepth*(128+8))
		tile = 128
	}
	t.across = tilesOf(n, tile)
	old := a.DType.IsHalf() && q.dev.gpu.Major < 8
	return t, !old && most < 1<<31 && min(m, n, c.N) > 0 && max(c.KH, c.KW) <= convMost && max(t.down, z) < convZ
}

// runConv launches a kernel of conv.cu or conv_last.cu.
func (q *Queue) runConv(ks [2]*kernel, t convTiles) {
	k := ks[t.size]
	q.run(k, cuda.Dim{X: t.across, Y: t.down, Z: t.z}, cuda.Dim{X: convLanes}, max(t.shared, k.shared))
}

// padded is the channels of a group with channels last.
func padded(channels int) int { return (channels + 7) &^ 7 }

// lastSizes are the elements of the two operands of a product with channels last.
func lastSizes(c ops.Conv, product int) (first, second int) {
	in, out, taps := padded(c.In/c.Groups), padded(c.Out/c.Groups), c.KH*c.KW
	x, y := c.N*c.Groups*in*c.H*c.W, c.N*c.Groups*out*c.OutH*c.OutW
	return [3]int{x, y, x}[product], [3]int{c.Out * taps * in, c.In * taps * out, y}[product]
}

// channelsLast reports whether conv_last.cu computes a product that conv.cu can compute, too: where the study says that it is faster.
func (q *Queue) channelsLast(a *tensor.Args, c ops.Conv, product int) bool {
	in, out, taps := c.In/c.Groups, c.Out/c.Groups, c.KH*c.KW
	first, second := lastSizes(c, product)
	again := first + second
	can := a.DType.IsHalf() && taps <= lastTaps && max(c.N*c.Groups, tilesOf(max(in, out), lastTile)) < convZ && 2*again <= lastMemory
	channels, work, least := min(in, out), c.N*c.OutH*c.OutW*c.Out*in*taps, &q.dev.last
	return can && channels >= least.channels && channels*taps >= least.reuse && work >= max(least.work, least.reuse*again)
}

// writeLast writes operand i of a, pictures, to p with channels last.
func (q *Queue) writeLast(p cuda.Ptr, a *tensor.Args, i int, c ops.Conv, channels, pixels int) {
	q.args.Reset().Ptr(p)
	q.ptr(a, i).i64(c.Groups).i64(channels).i64(pixels)
	q.run(lastTable[a.DType].pictures, cuda.Dim{X: tilesOf(pixels, lastTile), Y: tilesOf(channels, lastTile), Z: c.N * c.Groups},
		cuda.Dim{X: 32, Y: 8}, 0)
}

// convLast computes y or the gradient of x with channels last, if that is faster and there is memory.
func (q *Queue) convLast(a *tensor.Args, c ops.Conv, t convTiles, product int) bool {
	if !q.channelsLast(a, c, product) {
		return false
	}
	n, w := lastSizes(c, product)
	pictures, ok := q.scratchOr(2*(n+w), true)
	if !ok {
		return false
	}
	in, out, ks := c.In/c.Groups, c.Out/c.Groups, &lastTable[a.DType]
	channels, pixels, kernels := in, c.H*c.W, ks.forward
	if product == convGradX {
		channels, pixels, kernels = out, c.OutH*c.OutW, ks.gradX
	}
	weights := pictures + cuda.Ptr(2*n)
	q.writeLast(pictures, a, 1, c, channels, pixels)
	q.args.Reset().Ptr(weights)
	q.ptr(a, 2).i64(c.Groups).i64(out).i64(in).i64(c.KH * c.KW).args.I32(int(truth(product == convGradX)))
	q.spread(ks.weights, w)
	q.args.Reset()
	q.ptr(a, 0).args.Ptr(pictures).Ptr(weights)
	q.bias(a).conv(a).runConv(kernels, t)
	return true
}

// bias adds the bias if there is one.
func (q *Queue) bias(a *tensor.Args) *Queue {
	if a.N > 3 {
		return q.ptr(a, 3)
	}
	q.args.Ptr(0)
	return q
}

func conv2d(q *Queue, k *kernel, a *tensor.Args) {
	c := ops.ConvOf(a)
	t, ok := q.convAsProduct(a, c, c.Out/c.Groups, c.N*c.OutH*c.OutW, c.Groups)
	if ok && q.convLast(a, c, t, convForward) {
		return
	}
	if q.ptrs(a, 3).bias(a).conv(a); ok {
		q.runConv(convTable[a.DType].forward, t)
		return
	}
	q.spread(k, a.Len[0])
}

// conv2dGradX is a transposed convolution, too, which has a bias.
func conv2dGradX(q *Queue, k *kernel, a *tensor.Args) {
	c := ops.ConvOf(a)
	n := c.N * tilesOf(c.H, c.StrideH) * tilesOf(c.W, c.StrideW) // of the first class of pixels, the largest
	t, ok := q.convAsProduct(a, c, c.In/c.Groups, n, c.Groups*c.StrideH*c.StrideW)
	if ok && q.convLast(a, c, t, convGradX) {
		return
	}
	if q.ptrs(a, 3).bias(a).conv(a); ok {
		q.runConv(convTable[a.DType].gradX, t)
		return
	}
	q.spread(k, a.Len[0])
}

func conv2dGradW(q *Queue, k *kernel, a *tensor.Args) {
	c := ops.ConvOf(a)
	if !q.channelsLast(a, c, convGradW) || !q.gradW(k, a, c, true) {
		q.gradW(k, a, c, false)
	}
}

// gradW computes the gradient of w, if last with channels last. Then it returns false if there is no memory for that, or no product.
func (q *Queue) gradW(k *kernel, a *tensor.Args, c ops.Conv, last bool) bool {
	in, out, taps, pixels := c.In/c.Groups, c.Out/c.Groups, c.KH*c.KW, c.N*c.OutH*c.OutW
	wide, ks, nx, ng := in, &convTable[a.DType], 0, 0
	if last {
		wide, ks = padded(in), &lastTable[a.DType].convKernels
		nx, ng = lastSizes(c, convGradW)
	}
	t, ok := q.convAsProduct(a, c, out, wide*taps, c.Groups)
	if !ok {
		if !last {
			q.ptrs(a, 3).conv(a).args.I32(truthOf(a.F[0]))
			q.blocks(k, a.Len[0])
		}
		return false
	}
	// The sums over pixels are cut by the sizes alone, so that results do not depend on the card.
	parts := max(min(tilesOf(convTasks, t.across*t.down*t.z), pixels/convPart, convParts, (convZ-1)/t.z), 1)
	length := tilesOf(tilesOf(pixels, parts), convDepth) * convDepth
	parts = tilesOf(pixels, length)
	t.z *= parts
	n := parts*c.Out*wide*taps*wideSize(a.DType) + 2*(nx+ng)
	part, ok := q.scratchOr(n, last)
	if !ok {
		return false
	}
	x, g := devPtr(a.X[1]), devPtr(a.X[2])
	if last {
		g = part + cuda.Ptr(n-2*ng)
		x = g - cuda.Ptr(2*nx)
		q.writeLast(x, a, 1, c, in, c.H*c.W)
		q.writeLast(g, a, 2, c, out, c.OutH*c.OutW)
	}
	q.args.Reset().Ptr(part).Ptr(x).Ptr(g)
	q.conv(a).args.I32(length)
	q.runConv(ks.gradW, t)
	q.args.Reset()
	q.ptr(a, 0).args.Ptr(part)
	if last {
		q.i64(c.Out).i64(in).i64(taps)
	} else {
		q.i64(a.Len[0])
	}
	q.i64(parts).args.I32(truthOf(a.F[0]))
	q.spread(ks.ends, a.Len[0])
	return true
}
