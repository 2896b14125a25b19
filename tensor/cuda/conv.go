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

// convKernels are the kernels of conv.cu for a type, with tiles of 64 and of 128 rows.
type convKernels struct {
	forward, gradX, gradW [2]*kernel
	ends                  *kernel
}

var convTable = func() (table [tensor.NumDTypes]*convKernels) {
	for _, t := range floatTypes {
		of := func(name string) (k [2]*kernel) {
			return [2]*kernel{newKernel("conv.cu", name+"_64", elems[t]), newKernel("conv.cu", name+"_128", elems[t])}
		}
		table[t] = &convKernels{of("conv"), of("conv_grad_x"), of("conv_grad_w"), newKernel("conv.cu", "conv_grad_w_ends", elems[t])}
	}
	return table
}()

// conv adds the sizes of a convolution: struct Conv of pictures.cu.
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

func (q *Queue) runConv(ks [2]*kernel, t convTiles) {
	q.run(ks[t.size], cuda.Dim{X: t.across, Y: t.down, Z: t.z}, cuda.Dim{X: convLanes}, t.shared)
}

// biased adds three operands, and a bias if there is one.
func (q *Queue) biased(a *tensor.Args) *Queue {
	q.ptrs(a, 3)
	if a.N > 3 {
		return q.ptr(a, 3)
	}
	q.args.Ptr(0)
	return q
}

func conv2d(q *Queue, k *kernel, a *tensor.Args) {
	q.biased(a).conv(a)
	c := ops.ConvOf(a)
	if t, ok := q.convAsProduct(a, c, c.Out/c.Groups, c.N*c.OutH*c.OutW, c.Groups); ok {
		q.runConv(convTable[a.DType].forward, t)
		return
	}
	q.spread(k, a.Len[0])
}

// conv2dGradX is a transposed convolution, too, which has a bias.
func conv2dGradX(q *Queue, k *kernel, a *tensor.Args) {
	q.biased(a).conv(a)
	c := ops.ConvOf(a)
	n := c.N * tilesOf(c.H, c.StrideH) * tilesOf(c.W, c.StrideW) // of the first class of pixels, the largest
	if t, ok := q.convAsProduct(a, c, c.In/c.Groups, n, c.Groups*c.StrideH*c.StrideW); ok {
		q.runConv(convTable[a.DType].gradX, t)
		return
	}
	q.spread(k, a.Len[0])
}

func conv2dGradW(q *Queue, k *kernel, a *tensor.Args) {
	c := ops.ConvOf(a)
	pixels := c.N * c.OutH * c.OutW
	t, ok := q.convAsProduct(a, c, c.Out/c.Groups, c.In/c.Groups*c.KH*c.KW, c.Groups)
	if !ok {
		q.ptrs(a, 3).conv(a).args.I32(truthOf(a.F[0]))
		q.blocks(k, a.Len[0])
		return
	}
	// The sums over pixels are cut by the sizes alone, so that results do not depend on the card.
	parts := max(min(tilesOf(convTasks, t.across*t.down*t.z), pixels/convPart, convParts, (convZ-1)/t.z), 1)
	length := tilesOf(tilesOf(pixels, parts), convDepth) * convDepth
	parts = tilesOf(pixels, length)
	t.z *= parts
	part, ks := q.scratch(parts*a.Len[0]*wideSize(a.DType)), convTable[a.DType]
	q.args.Reset().Ptr(part)
	q.ptr(a, 1).ptr(a, 2).conv(a).args.I32(length)
	q.runConv(ks.gradW, t)
	q.args.Reset()
	q.ptr(a, 0).args.Ptr(part)
	q.i64(a.Len[0]).i64(parts).args.I32(truthOf(a.F[0]))
	q.spread(ks.ends, a.Len[0])
}
