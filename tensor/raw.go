package tensor

import (
	"github.com/ringo-ml/ringo/tensor/memory"
)

// Raw is a Tensor with the methods that owners of memory need: devices, engines of package dist, packages that divide parameters over
// ranks. A model needs none of them. Convert a Tensor: tensor.Raw(x).Settle().
type Raw Tensor

// Keep keeps owner reachable as long as x or a view of it is. owner is Go memory, or an object whose cleanup frees x's memory.
func (x Raw) Keep(owner Ptr) { Tensor(x).hdr().st.heap = owner }

// Renew returns x anew, for other values in its memory. Who has kept x, a batch, cannot use it any more.
func (x Raw) Renew() Tensor {
	h := Tensor(x).hdr()
	h.gen++
	return h.tensor()
}

// Borrow marks x's memory as used by operation seq of f until that is over. Step memory is not reused before, and Tape.Reset waits for it.
// If f is a User, a kernel that reads what the operation still writes, or writes what it still uses, is a Failure.
func (x Raw) Borrow(f Fence, seq uint64) {
	s := Tensor(x).hdr().st
	s.busy()
	s.pending = append(s.pending, Pending{f, seq})
	s.numPending++
}

// Place makes x, which FromPtr made, and all its views refer to memory at p, as when a parameter is gathered. nil takes the memory away:
// then using x panics. Operations on the old memory must be over.
func (x Raw) Place(p Ptr) { Tensor(x).hdr().st.ptr = p }

// Spoil fills x with NaN in debug mode (RINGO_DEBUG=1), to find readers of memory that was freed.
func (x Raw) Spoil() {
	if h := Tensor(x).hdr(); debugMode && h.ld == 0 {
		spoil(h.st.dev, h.ptr(), h.n*h.dtype.Size())
	}
}

// Settle waits until no collective uses x's memory.
func (x Raw) Settle() { Tensor(x).hdr().st.waitUsers() }

// Count counts bytes of x's memory, which was Uncounted, for use u of its device. They count until Uncount, or until x and its views are
// not reachable. It may be called once for each use of the memory.
func (x Raw) Count(u memory.Use, bytes int) { Tensor(x).hdr().st.count(u, bytes) }

// Uncount says that the memory of x was freed.
func (x Raw) Uncount() {
	if a := Tensor(x).hdr().st.acct; a != nil {
		a.Close()
	}
}

// Number sets Rows.Number, when x's memory holds another batch.
func (x Raw) Number(n int) {
	if r := Tensor(x).hdr().rows; r != nil {
		r.Number = n
	}
}
