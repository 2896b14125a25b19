package cuda

import (
	"unsafe"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor"
)

// masks is struct Masks of attention.cu.
type masks struct {
	lengths, queryDocs, keyDocs, bad cuda.Ptr
	op                               uint32
	_                                uint32
}

// masks adds struct Masks: operands from i on of cross-attention. Self-attention has none.
func (q *Queue) masks(a *tensor.Args, i int) {
	m := masks{bad: badAddress(q.dev), op: uint32(q.op)}
	if operands(a) == 3 {
		m.lengths, m.queryDocs, m.keyDocs = devPtr(a.X[i]), devPtr(a.X[i+1]), devPtr(a.X[i+2])
	}
	q.args.Struct(unsafe.Pointer(&m), int(unsafe.Sizeof(m)))
}
