package cuda

import (
	"fmt"
	"math"
	"strings"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor"
)

// wgmmaKernel is a kernel of attention_wgmma*.cu: `groups` warpgroups have 64 rows each, and go through tiles of n rows (BLOCK_N).
type wgmmaKernel struct {
	*kernel
	groups, n int
}

func (k wgmmaKernel) rows() int    { return 64 * k.groups }
func (k wgmmaKernel) threads() int { return 128*k.groups + 128 } // one more group copies

// wgmmaKernels compute attention on compute capability 9.0, for one type, with or without documents or dropout: of heads of up to width
// features, which are filled up with zeros.
type wgmmaKernels struct {
	width          int
	forward, q, kv wgmmaKernel
}

const (
	wgmmaLeast = 48       // narrower heads are left to attention_mma: too much would be filled up
	wgmmaL2    = 24 << 20 // bytes of keys and values that stay in L2
	wgmmaHeads = 16       // so many heads go together at least
)

// wgmmaTable has the kernels by type, for heads of 64 and of 128, plain, with documents and with dropout, which needs more registers.
var wgmmaTable = func() (table [tensor.NumDTypes][2][3]wgmmaKernels) {
	const stages = 2 // of both kinds of tiles, where no other number is given
	for _, t := range []tensor.DType{tensor.BFloat16, tensor.Float16} {
		for i := range table[t] {
			for variant := range table[t][i] {
				hd := 64 << i
				// new makes a kernel with these in shared memory: `own` tiles of its rows, `tiles` of n rows, and `more` bytes.
				make := func(name string, groups, n, own, tiles, more int, defines string) wgmmaKernel {
					k := newKernel(name+".cu", name, elems[t])
					k.specific = true
					k.shared = (own*64*groups+tiles*n)*hd*2 + more + 1280 // barriers and what aligns the tiles
					k.defines = append(strings.Fields(defines), fmt.Sprintf("-DHD=%d", hd), fmt.Sprintf("-DWGS=%d", groups),
						fmt.Sprintf("-DBLOCK_N=%d", n), fmt.Sprintf("-DDOCS=%d", truth(variant == 1)), fmt.Sprintf("-DDROP=%d", truth(variant == 2)))
					return wgmmaKernel{k, groups, n}
				}
				ks := wgmmaKernels{width: hd}
				switch {
				case hd == 64 && variant == 2:
					ks.forward = make("attention_wgmma", 2, 128, 2, 2*stages, 0, "")
					ks.q = make("attention_wgmma_q", 2, 96, 2*2, 3+2, 0, "-DSTAGES=3 -DSTAGES2=2")
				case hd == 64:
					ks.forward = make("attention_wgmma", 3, 128, 2, 2*stages, 0, "")
					ks.q = make("attention_wgmma_q", 3, 64, 2*2, 4+3, 0, "-DSTAGES=4 -DSTAGES2=3")
				case variant == 2:
					ks.forward = make("attention_wgmma", 2, 128, 2, 2*stages, 0, "")
					ks.q = make("attention_wgmma_q", 2, 80, 2, 3+2, 0, "-DSTAGES=3 -DSTAGES2=2 -DOWN=1")
				default:
					ks.forward = make("attention_wgmma", 2, 128, 2, 2*stages, 0, "")
					ks.q = make("attention_wgmma_q", 2, 96, 2, 3+2, 0, "-DSTAGES=3 -DSTAGES2=2 -DOWN=1")
				}
				if hd == 64 {
					ks.kv = make("attention_wgmma_kv", 2, 96, 2*2, 2*3, 3*96*8, "-DSTAGES=3 -DTURNS=0")
				} else {
					ks.kv = make("attention_wgmma_kv", 2, 64, 2, 2*4, 4*64*8, "-DSTAGES=4 -DOWN=1 -DTURNS=0")
				}
				table[t][i][variant] = ks
			}
		}
	}
	return table
}()

// wgmmaParams is struct Params of attention_wgmma.cuh.
type wgmmaParams struct {
	steps, keys, heads, kv       int32
	causal, offset, tiles, works int32
	group, all                   int32
	scale                        float32
	padded, hd                   int32
	op                           uint32
	lengths, next                cuda.Ptr
	queryDocs, keyDocs, bad      cuda.Ptr
	qstep, kstep                 int64
	key                          uint64
	limit                        uint32
	keep                         float32
	first, stride, elems         int64
}

// onHopper returns the kernels of a launch that onTensorCores accepts, or nil if those of other devices compute it: on such devices,
// without RINGO_HOPPER=1, for narrow heads, without queries or keys, with documents and dropout, where a head's dropout does not begin at
// a multiple of four, and where nothing is kept.
func (q *Queue) onHopper(a *tensor.Args, masks int) *wgmmaKernels {
	s, hd := shapesOf(a), a.I[0]
	if !q.dev.hopper || hd < wgmmaLeast || min(s.batch, s.steps, s.keys, s.heads) == 0 || s.batch*s.heads*s.steps >= 1<<31 {
		return nil
	}
	variant := 0
	if operands(a) == 3 && a.X[masks+2] != nil {
		variant = 1
	}
	if a.F[1] != 0 {
		ofHead := s.steps * s.keys
		if variant != 0 || s.keys%4 != 0 || a.I[2]%4 != 0 || a.I[3]%4 != 0 || a.I[4]%ofHead != 0 || dropLimit(a.F[1]) > math.MaxUint32 {
			return nil
		}
		variant = 2
	}
	return &wgmmaTable[a.DType][truth(hd > 64)][variant]
}

// wgmmaParams is what k, one of ks, needs to know. It is to be called before q.args are set.
func (q *Queue) wgmmaParams(a *tensor.Args, ks *wgmmaKernels, k wgmmaKernel, masks int) wgmmaParams {
	s, next := shapesOf(a), q.counters()
	p := wgmmaParams{steps: int32(s.steps), keys: int32(s.keys), heads: int32(s.heads), kv: int32(s.kv), causal: int32(a.I[1]),
		offset: int32(a.I[7]), scale: float32(a.F[0]), hd: int32(a.I[0]), padded: int32(tilesOf(s.steps, ks.kv.n) * ks.kv.n),
		next: next, bad: badAddress(q.dev), op: uint32(q.op), qstep: int64(s.qstep), kstep: int64(s.kstep), key: a.Key,
		first: int64(a.I[2]), stride: int64(a.I[3]), elems: int64(a.I[4]), keep: 1}
	if drop := a.F[1]; drop != 0 {
		p.keep, p.limit = float32(1/(1-drop)), uint32(dropLimit(drop))
	}
	if operands(a) == 3 {
		p.lengths, p.queryDocs, p.keyDocs = devPtr(a.X[masks]), devPtr(a.X[masks+1]), devPtr(a.X[masks+2])
	}
	shared := s.heads / s.kv
	rows, heads, inL2 := s.steps, s.heads, wgmmaL2/(4*s.keys*a.I[0])*shared // heads of queries, by their keys and values
	if k.kernel == ks.kv.kernel {
		rows, heads, inL2 = s.keys, s.kv, wgmmaL2/(4*s.steps*a.I[0]*shared)
	}
	tiles, all := tilesOf(rows, k.rows()), s.batch*heads
	p.tiles, p.works, p.all = int32(tiles), int32(tiles*all), int32(all)
	p.group = int32(min(all, max(wgmmaHeads, inL2)))
	return p
}

// heads4 adds the tensor map of rows of heads, in boxes of n rows of a head.
func (q *Queue) heads4(a *tensor.Args, p cuda.Ptr, rows, heads, step, n int) *Queue {
	hd, batch := a.I[0], a.Dim[0]
	if err := q.tmap.SetHeads(q.dev.gpu, a.DType == tensor.BFloat16, p, [4]int{hd, rows, heads, batch}, step, n); err != nil {
		panic(q.dev.fail(q.op.String(), err))
	}
	q.args.TensorMap(&q.tmap)
	return q
}

// runWGMMA launches k with the parameters in q.args, and p.
func (q *Queue) runWGMMA(k wgmmaKernel, p wgmmaParams) {
	q.args.Struct(unsafe.Pointer(&p), int(unsafe.Sizeof(p)))
	q.run(k.kernel, cuda.Dim{X: min(q.dev.sms, int(p.works))}, cuda.Dim{X: k.threads()}, k.shared)
}

// attentionWGMMA is attention: operands are output, logarithmic sums, queries, keys and values, or all in one.
func attentionWGMMA(q *Queue, ks *wgmmaKernels, a *tensor.Args, in, masks int) {
	s, k, x := shapesOf(a), ks.forward, partsOf(a, in)
	p := q.wgmmaParams(a, ks, k, masks)
	q.args.Reset()
	q.ptrs(a, 2).heads4(a, x[0], s.steps, s.heads, s.qstep, k.rows())
	q.heads4(a, x[1], s.keys, s.kv, s.kstep, k.n).heads4(a, x[2], s.keys, s.kv, s.kstep, k.n)
	q.runWGMMA(k, p)
}

// attentionGradWGMMA is attentionGradMMA.
func attentionGradWGMMA(q *Queue, ks *wgmmaKernels, a *tensor.Args) {
	s, o := shapesOf(a), gradOperandsOf(a)
	x, grads, width := partsOf(a, o.in), partsOf(a, 0), s.heads*a.I[0]
	out, gout := devPtr(a.X[o.out]), devPtr(a.X[o.gout])
	k, p, ofKeys := ks.q, q.wgmmaParams(a, ks, ks.q, o.masks), q.wgmmaParams(a, ks, ks.kv, o.masks)
	stats := q.scratch(s.batch * s.heads * int(p.padded) * 8)
	q.args.Reset().Ptr(grads[0]).Ptr(stats).Ptr(out).Ptr(gout)
	q.ptr(a, o.lse).lseGrad(a, o)
	q.heads4(a, x[0], s.steps, s.heads, s.qstep, k.rows())
	q.heads4(a, x[1], s.keys, s.kv, s.kstep, k.n).heads4(a, x[2], s.keys, s.kv, s.kstep, k.n)
	q.heads4(a, gout, s.steps, s.heads, width, k.rows()).heads4(a, out, s.steps, s.heads, width, k.rows())
	q.runWGMMA(k, p)
	k = ks.kv
	q.args.Reset().Ptr(grads[1]).Ptr(grads[2]).Ptr(stats)
	q.heads4(a, x[0], s.steps, s.heads, s.qstep, k.n)
	q.heads4(a, x[1], s.keys, s.kv, s.kstep, k.rows()).heads4(a, x[2], s.keys, s.kv, s.kstep, k.rows())
	q.heads4(a, gout, s.steps, s.heads, width, k.n)
	q.runWGMMA(k, ofKeys)
}
