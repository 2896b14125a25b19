package cuda

import (
	"fmt"
	"strings"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor"
)

// tiling is how a kernel of attention_mma*.cu cuts up a head: a block of four warps has a tile of 64*m rows (BLOCK_M)
// and goes through tiles of n rows (BLOCK_N).
type tiling struct{ m, n int }

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
// product. dropTilings are for dropout, which needs more registers, where they differ. With documents some tiles are smaller.
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
	48:  {tiling{2, 48}, tiling{2, 48}, tiling{1, 64}},
	64:  {tiling{2, 48}, tiling{2, 48}, tiling{1, 64}},
	80:  {tiling{2, 48}, tiling{2, 32}, tiling{1, 48}},
	96:  {tiling{2, 32}, tiling{2, 32}, tiling{1, 32}},
	112: {tiling{2, 32}, tiling{1, 48}, tiling{1, 32}},
	128: {tiling{2, 32}, tiling{1, 48}, tiling{1, 32}},
}

// mmaTable has the kernels by type, head width/16 - 1, and with dropout and documents.
var mmaTable = func() (table [tensor.NumDTypes][mmaMax / mmaWidth][2][2]mmaKernels) {
	for _, t := range []tensor.DType{tensor.BFloat16, tensor.Float16} {
		for i := range tilings {
			hd := mmaWidth * (i + 1)
			for drop := range 2 {
				for docs := range 2 {
					c := tilings[i]
					if other, ok := dropTilings[hd]; ok && drop == 1 {
						c = other
					}
					if docs == 1 {
						c.forward.n, c.q.m, c.kv.n = c.forward.n-16, 1, c.kv.n-16
						if drop == 1 && hd == 112 {
							c.q.n = 32 // with more, a thread of sm_100 keeps registers in memory
						}
					}
					with := fmt.Sprintf("-DHD=%d -DDROP=%d -DDOCS=%d", hd, drop, docs)
					ks := mmaKernels{
						newMMA("attention_mma", t, hd, with, c.forward, 1, 0),
						newMMA("attention_mma_q", t, hd, with, c.q, 2, 0),
						newMMA("attention_mma_kv", t, hd, with, c.kv, 2, 2*8*c.kv.n),
					}
					ks.forward.soon = []*kernel{ks.q.kernel, ks.kv.kernel}
					table[t][i][drop][docs] = ks
				}
			}
		}
	}
	return table
}()

// newMMA makes a kernel with these in shared memory: `own` tiles of BLOCK_M rows, two pairs of tiles of BLOCK_N rows, and `more` bytes.
func newMMA(name string, t tensor.DType, hd int, with string, c tiling, own, more int) mmaKernel {
	k := newKernel(name+".cu", name, elems[t])
	k.defines = append(strings.Fields(with), fmt.Sprintf("-DM=%d", c.m), fmt.Sprintf("-DBLOCK_N=%d", c.n))
	k.shared = (64*c.m*own+4*c.n)*(hd+8)*t.Size() + more
	return mmaKernel{k, c}
}

// onTensorCores returns the kernels for a launch of attention; operands before `wide`, but number lse, are read and written by 16 bytes.
// It returns nil where the plain kernel computes it: other types than bfloat16 and float16, heads of other widths, windows and caps of
// scores, memory that does not begin at a multiple of 16 bytes, devices before sm_80, and 2^36 elements or 2^29 steps, keys or places of
// offset and more.
func onTensorCores(q *Queue, a *tensor.Args, wide, lse, masks int) *mmaKernels {
	hd, s, offset := a.I[0], shapesOf(a), a.I[7]
	windowed := a.I[5] != 0 || a.F[2] != 0
	if windowed || !a.DType.IsHalf() || hd%mmaWidth != 0 || hd > mmaMax || q.dev.gpu.Major < 8 || q.dev.plain {
		return nil
	}
	const limit = 1 << 29 // NOT_CAUSAL
	if s.batch*s.steps*s.qstep >= 1<<36 || s.batch*s.keys*s.kstep >= 1<<36 || s.steps >= limit || s.keys >= limit || offset >= limit ||
		-offset >= limit {
		return nil
	}
	for i := range wide {
		if i != lse && uintptr(a.X[i])%16 != 0 {
			return nil
		}
	}
	drop, docs := 0, 0
	if a.F[1] != 0 {
		drop = 1
	}
	if operands(a) == 3 && a.X[masks+2] != nil {
		docs = 1
	}
	return &mmaTable[a.DType][hd/mmaWidth-1][drop][docs]
}

// runMMA launches a kernel on a grid of blocks, which is headGrid or keyGrid.
func (q *Queue) runMMA(k mmaKernel, a *tensor.Args, grid func(a *tensor.Args, rows int) cuda.Dim, masks int) {
	q.heads(a, 0)
	q.masks(a, masks)
	q.run(k.kernel, grid(a, 64*k.m), cuda.Dim{X: mmaLanes}, k.shared)
}

// attentionGradMMA is attentionGrads: first the queries, whose kernel leaves the logarithmic sums and the sums of gradient times output for
// the other.
func attentionGradMMA(q *Queue, ks *mmaKernels, a *tensor.Args) {
	o := gradOperandsOf(a)
	stats := q.scratch(a.Len[o.lse] * 8)
	q.args.Reset()
	q.ptr(a, 0).args.Ptr(stats)
	q.parts(a, o.in).ptr(a, o.out).ptr(a, o.gout).ptr(a, o.lse).lseGrad(a, o)
	q.runMMA(ks.q, a, headGrid, o.masks)
	q.args.Reset()
	q.keyGrads(a)
	q.parts(a, o.in).ptr(a, o.gout).args.Ptr(stats)
	q.runMMA(ks.kv, a, keyGrid, o.masks)
}
