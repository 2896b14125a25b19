package cuda

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor"
)

// tiling is how a kernel of attention_mma*.cu cuts up a head: a block of four warps has 64*m rows of its own and meets tiles of
// `others` rows.
type tiling struct{ m, others int }

// mmaKernel is such a kernel for one type and head width.
type mmaKernel struct {
	*kernel
	tiling
}

// mmaKernels compute attention on tensor cores.
type mmaKernels struct{ forward, q, kv mmaKernel }

const (
	mmaWidth = 16  // heads have a multiple of so many features,
	mmaMax   = 128 // and so many at most
	mmaLanes = 128 // LANES
)

// mmaTilings are the tilings of a head width.
type mmaTilings struct{ forward, q, kv tiling }

// tilings, for each head width over 16, are large ones that need no more than the 255 registers that a thread can have, and 99
// KiB of shared memory, which all devices have. A warp with more rows of its own (m = 2) reads less from shared memory for each
// product. dropTilings are for dropout, which needs more registers, where they differ.
var tilings = [mmaMax / mmaWidth]mmaTilings{
	{tiling{2, 64}, tiling{2, 32}, tiling{1, 64}},
	{tiling{2, 64}, tiling{2, 48}, tiling{2, 32}},
	{tiling{2, 64}, tiling{2, 32}, tiling{2, 32}},
	{tiling{2, 64}, tiling{2, 48}, tiling{2, 32}},
	{tiling{2, 64}, tiling{2, 32}, tiling{1, 64}},
	{tiling{2, 48}, tiling{2, 32}, tiling{1, 64}},
	{tiling{2, 32}, tiling{2, 32}, tiling{1, 48}},
	{tiling{2, 48}, tiling{1, 48}, tiling{1, 48}},
}
var dropTilings = map[int]mmaTilings{
	16:  {tiling{2, 48}, tiling{2, 32}, tiling{1, 64}},
	48:  {tiling{2, 64}, tiling{2, 48}, tiling{2, 32}},
	64:  {tiling{2, 48}, tiling{2, 48}, tiling{1, 64}},
	80:  {tiling{2, 48}, tiling{2, 32}, tiling{1, 64}},
	96:  {tiling{2, 32}, tiling{2, 32}, tiling{1, 64}},
	128: {tiling{2, 32}, tiling{1, 48}, tiling{1, 48}},
}

// mmaTable has the kernels by type, head width/16 - 1, and with dropout.
var mmaTable = func() (table [tensor.NumDTypes][mmaMax / mmaWidth][2]mmaKernels) {
	for _, t := range []tensor.DType{tensor.BFloat16, tensor.Float16} {
		for i, c := range tilings {
			hd := mmaWidth * (i + 1)
			for drop := range 2 {
				if other, ok := dropTilings[hd]; ok && drop == 1 {
					c = other
				}
				table[t][i][drop] = mmaKernels{
					newMMA("attention_mma", t, hd, drop, c.forward, 1, 0),
					newMMA("attention_mma_q", t, hd, drop, c.q, 2, 0),
					newMMA("attention_mma_kv", t, hd, drop, c.kv, 2, 2*8*c.kv.others),
				}
			}
		}
	}
	return table
}()

// newMMA makes a kernel that has `own` tiles of its own, two pairs of tiles of the others, and some more bytes in shared memory.
func newMMA(name string, t tensor.DType, hd, drop int, c tiling, own, more int) mmaKernel {
	k := newKernel(name+".cu", name, elems[t])
	k.defines = []string{fmt.Sprintf("-DHD=%d", hd), fmt.Sprintf("-DDROP=%d", drop), fmt.Sprintf("-DM=%d", c.m), fmt.Sprintf("-DOTHERS=%d", c.others)}
	k.shared = (64*c.m*own+4*c.others)*(hd+8)*t.Size() + more
	return mmaKernel{k, c}
}

// onTensorCores returns the kernels for a launch of attention; operand `stats` is numbers in float32, all others are read and
// written by 16 bytes. It returns nil where the plain kernel computes it: other types than bfloat16 and float16, heads of other
// widths, memory that does not begin at a multiple of 16 bytes, devices before sm_80, and 2^36 elements or 2^30 steps and more.
func onTensorCores(q *Queue, a *tensor.Args, stats int) *mmaKernels {
	hd, steps := a.I[0], a.Dim[1]
	if !a.DType.IsHalf() || hd%mmaWidth != 0 || hd > mmaMax || q.dev.gpu.Major < 8 || q.dev.plain {
		return nil
	}
	if a.Dim[0]*steps*a.Dim[2] >= 1<<36 || steps >= 1<<30 {
		return nil
	}
	for i := range a.N {
		if i != stats && uintptr(a.X[i])%16 != 0 {
			return nil
		}
	}
	drop := 0
	if a.F[1] != 0 {
		drop = 1
	}
	return &mmaTable[a.DType][hd/mmaWidth-1][drop]
}

// runMMA launches a kernel with a block for each tile of each head of the batch.
func (q *Queue) runMMA(k mmaKernel, a *tensor.Args) {
	q.heads(a, 0)
	q.run(k.kernel, headGrid(a, 64*k.m), cuda.Dim{X: mmaLanes}, k.shared)
}

// attentionMMA is OpAttention, see attention.
func attentionMMA(q *Queue, ks *mmaKernels, a *tensor.Args) {
	q.ptrs(a, 3).runMMA(ks.forward, a)
}

// attentionGradMMA is OpAttentionGrad, see attentionGrads: first the queries, whose kernel leaves the logarithmic sums and the
// sums of gradient times output for the other.
func attentionGradMMA(q *Queue, ks *mmaKernels, a *tensor.Args) {
	stats := q.scratch(a.Len[4] * 8)
	q.args.Reset()
	q.ptr(a, 0).args.Ptr(stats)
	q.ptr(a, 1).ptr(a, 2).ptr(a, 3).ptr(a, 4).runMMA(ks.q, a)
	q.args.Reset()
	q.ptr(a, 0).ptr(a, 1).ptr(a, 3).args.Ptr(stats)
	q.runMMA(ks.kv, a)
}
