package cuda

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// heads is struct Heads of attention.cu for the types that are computed in float32 and float64.
type heads[W float32 | float64] struct {
	steps, heads, hd int64
	tile, causal     int32
	scale, keep      W
	limit, key       uint64
	first, stride    int64
	elems            int64
	keys, kv         int64
	qstep, kstep     int64
	offset, window   int64
	softCap          W
}

// shapes of attention; in qkv all heads have keys of their own, and parts of three are behind each other.
type shapes struct{ batch, steps, keys, heads, kv, qstep, kstep int }

// operands is how many operands are queries, keys and values: three, or qkv.
func operands(a *tensor.Args) int {
	if a.Op == ops.OpAttention || a.Op == ops.OpAttentionGrad {
		return 1
	}
	return 3
}

func shapesOf(a *tensor.Args) shapes {
	hd := a.I[0]
	if operands(a) == 1 {
		heads := a.Dim[2] / (3 * hd)
		return shapes{a.Dim[0], a.Dim[1], a.Dim[1], heads, heads, a.Dim[2], a.Dim[2]}
	}
	return shapes{a.Dim[0], a.Dim[1], a.Dim[3], a.Dim[2] / hd, a.Dim[4] / hd, a.Dim[2], a.Dim[4]}
}

// partsOf returns the addresses of queries, keys and values, or of their gradients: operands from i on, or thirds of operand i.
func partsOf(a *tensor.Args, i int) (x [3]cuda.Ptr) {
	for part := range x {
		if operands(a) == 1 {
			x[part] = devPtr(a.X[i]) + cuda.Ptr(part*a.Dim[2]/3*a.DType.Size())
		} else {
			x[part] = devPtr(a.X[i+part])
		}
	}
	return x
}

// parts adds them.
func (q *Queue) parts(a *tensor.Args, i int) *Queue {
	x := partsOf(a, i)
	q.args.Ptr(x[0]).Ptr(x[1]).Ptr(x[2])
	return q
}

const (
	attentionLanes    = 256 // LANES
	attentionFeatures = 16  // FEATURES
	sharedBytes       = 48 << 10
)

// attentionTile is the largest tile of which `tiles` matrices of hd features and `scores` of scores fit in shared memory; 0 if
// there is none.
func attentionTile(t tensor.DType, hd, tiles, scores int) (tile, shared int) {
	for tile = 32; tile >= 8; tile /= 2 {
		shared = (tiles*tile*(hd+1) + scores*tile*(tile+1)) * wideSize(t)
		if shared <= sharedBytes && hd <= attentionFeatures*attentionLanes/tile {
			return tile, shared
		}
	}
	return 0, 0
}

// dropLimit is the least random number of 32 bits that keeps an element; of drop near 1 it is 1<<32: none does.
func dropLimit(drop float64) uint64 { return uint64(math.RoundToEven(drop * 0x1p32)) }

func setHeads[W float32 | float64](q *Queue, a *tensor.Args, tile int) {
	s := shapesOf(a)
	h := heads[W]{steps: int64(s.steps), heads: int64(s.heads), hd: int64(a.I[0]), tile: int32(tile), causal: int32(a.I[1]),
		scale: W(a.F[0]), key: a.Key, first: int64(a.I[2]), stride: int64(a.I[3]), elems: int64(a.I[4]),
		keys: int64(s.keys), kv: int64(s.kv), qstep: int64(s.qstep), kstep: int64(s.kstep), offset: int64(a.I[7]),
		window: int64(a.I[5]), softCap: W(a.F[2])}
	if p := a.F[1]; p != 0 {
		h.keep, h.limit = W(1/(1-p)), dropLimit(p)
	}
	q.args.Struct(unsafe.Pointer(&h), int(unsafe.Sizeof(h)))
}

// heads adds struct Heads.
func (q *Queue) heads(a *tensor.Args, tile int) {
	if a.DType == tensor.Float64 {
		setHeads[float64](q, a, tile)
	} else {
		setHeads[float32](q, a, tile)
	}
}

// headGrid is a block for each tile of `rows` queries of each head of the batch. All are in x: y ends at 65535.
func headGrid(a *tensor.Args, rows int) cuda.Dim {
	s := shapesOf(a)
	return cuda.Dim{X: s.batch * s.heads * tilesOf(s.steps, rows)}
}

// keyGrid is headGrid for keys.
func keyGrid(a *tensor.Args, rows int) cuda.Dim {
	s := shapesOf(a)
	return cuda.Dim{X: s.batch * s.kv * tilesOf(s.keys, rows)}
}

func noTile(q *Queue, a *tensor.Args) {
	panic(&tensor.Failure{Op: q.op.String(), Err: fmt.Errorf("%v: heads of %d features do not fit: too many for %v", q.dev, a.I[0], a.DType)})
}

// attention computes OpAttention: operands are output, logarithmic sums, qkv, see attention.launch of package ops; and
// OpCrossAttention: output, logarithmic sums, queries, keys, values, masks.
func attention(q *Queue, k *kernel, a *tensor.Args) {
	const in, masks = 2, 5
	q.ptrs(a, 2).parts(a, in)
	if ks := onTensorCores(q, a, in+operands(a), 1, masks); ks != nil {
		if hopper := q.onHopper(a, masks); hopper != nil {
			attentionWGMMA(q, hopper, a, in, masks)
			return
		}
		q.runMMA(ks.forward, a, headGrid, masks)
		return
	}
	tile, shared := attentionTile(a.DType, a.I[0], 3, 1)
	if tile == 0 {
		noTile(q, a)
	}
	q.heads(a, tile)
	q.masks(a, masks)
	q.run(k, headGrid(a, tile), cuda.Dim{X: attentionLanes}, shared)
}

// gradOperands says where OpAttentionGrad and OpCrossAttentionGrad have their operands: the gradient of qkv, or those of queries, keys and
// values, these, the output, its gradient, and the logarithmic sums, masks, and the gradient of these sums.
type gradOperands struct{ in, out, gout, lse, masks, glse int }

func gradOperandsOf(a *tensor.Args) gradOperands {
	n := operands(a)
	return gradOperands{n, 2 * n, 2*n + 1, 2*n + 2, 9, 12}
}

// lseGrad adds the address of the gradient of the logarithmic sums, 0 if there is none.
func (q *Queue) lseGrad(a *tensor.Args, o gradOperands) {
	if operands(a) == 1 {
		q.args.Ptr(0)
	} else {
		q.ptr(a, o.glse)
	}
}

// keyGrads adds the addresses of the gradients of keys and values.
func (q *Queue) keyGrads(a *tensor.Args) {
	x := partsOf(a, 0)
	q.args.Ptr(x[1]).Ptr(x[2])
}

// attentionGrads makes the kernels of OpAttentionGrad and OpCrossAttentionGrad. Keys and values are one kernel and queries another, so
// that each sum has one block and a fixed order.
func attentionGrads() (r [tensor.NumDTypes]tensor.Kernel) {
	for _, t := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16, tensor.Float16} {
		delta, kv := newKernel("attention.cu", "attention_delta", elems[t]), newKernel("attention.cu", "attention_grad_kv", elems[t])
		r[t] = cell(newKernel("attention.cu", "attention_grad_q", elems[t]), func(q *Queue, k *kernel, a *tensor.Args) {
			o := gradOperandsOf(a)
			if ks := onTensorCores(q, a, o.lse, -1, o.masks); ks != nil {
				if hopper := q.onHopper(a, o.masks); hopper != nil {
					attentionGradWGMMA(q, hopper, a)
				} else {
					attentionGradMMA(q, ks, a)
				}
				return
			}
			tile, shared := attentionTile(a.DType, a.I[0], 4, 2)
			if tile == 0 {
				noTile(q, a)
			}
			deltas := q.scratch(a.Len[o.lse] * wideSize(t))
			q.args.Reset().Ptr(deltas)
			q.ptr(a, o.out).ptr(a, o.gout).lseGrad(a, o)
			q.i64(a.Len[o.lse]).heads(a, tile)
			q.spread(delta, a.Len[o.lse])
			inputs := func() {
				q.parts(a, o.in).ptr(a, o.gout).ptr(a, o.lse).args.Ptr(deltas)
				q.heads(a, tile)
				q.masks(a, o.masks)
			}
			q.args.Reset()
			q.keyGrads(a)
			inputs()
			q.run(kv, keyGrid(a, tile), cuda.Dim{X: attentionLanes}, shared)
			q.args.Reset()
			q.ptr(a, 0)
			inputs()
			q.run(k, headGrid(a, tile), cuda.Dim{X: attentionLanes}, shared)
		})
	}
	return r
}

var attentionKernels = map[tensor.Op][tensor.NumDTypes]tensor.Kernel{
	ops.OpAttention:          floats("attention.cu", "attention", attention),
	ops.OpAttentionGrad:      attentionGrads(),
	ops.OpCrossAttention:     floats("attention.cu", "attention", attention),
	ops.OpCrossAttentionGrad: attentionGrads(),
}
