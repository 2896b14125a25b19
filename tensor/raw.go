package tensor

// Raw is a Tensor as those see it who own memory: devices, engines of package dist, packages that share parameters out. A model needs
// none of its methods. Convert a Tensor to it: tensor.Raw(x).Settle().
type Raw Tensor

// Keep makes x, and every view of it, keep owner reachable: Go memory, or an object whose cleanup gives x's memory back.
func (x Raw) Keep(owner Ptr) { Tensor(x).hdr().st.heap = owner }

// Borrow marks x's memory as used by operation seq of f until the fence passes: step memory is not reused before,
// and Tape.Reset waits for it. In debug mode (RINGO_DEBUG=1) writing to borrowed step memory is a Failure.
func (x Raw) Borrow(f Fence, seq uint64) {
	s := Tensor(x).hdr().st
	s.busy()
	s.pending = append(s.pending, Pending{f, seq})
	s.numPending++
}

// Place makes x, which FromPtr made, and all views of it refer to memory at p: that of a parameter while it is gathered.
// nil takes the memory away; using x then panics. What was in flight on the memory before must be over.
func (x Raw) Place(p Ptr) { Tensor(x).hdr().st.ptr = p }

// Spoil fills x with NaN in debug mode (RINGO_DEBUG=1), to show who reads memory that was given up.
func (x Raw) Spoil() {
	if h := Tensor(x).hdr(); debugMode && h.ld == 0 {
		spoil(h.st.dev, h.ptr(), h.n*h.dtype.Size())
	}
}

// Settle waits until no collective uses x's memory.
func (x Raw) Settle() { Tensor(x).hdr().st.waitUsers() }

// Count counts bytes of x's memory, which was Uncounted, as what its device has of kind k: until Uncount, or until neither x
// nor a view of it is reachable. It may be called once for each kind that is in the memory.
func (x Raw) Count(k MemoryKind, bytes int) { Tensor(x).hdr().st.count(k, bytes) }

// Uncount says that the memory of x was given back.
func (x Raw) Uncount() {
	if a := Tensor(x).hdr().st.acct; a != nil {
		a.close()
	}
}
