package tensor

import (
	"encoding/binary"
	"hash/crc64"
	"math"
)

var ecma = crc64.MakeTable(crc64.ECMA)

// Repeats returns a checksum of what the Backward that runs on the tape of p differentiates: the rows of the batch, the operations of the
// forward pass, the parameters with their versions, and the values of everything else that operations read. Two Backwards with one checksum
// have the same gradients. known is false where that cannot be said: without rows, with random numbers, with functions that may have values
// of their own (a Checkpoint, a Function without Types), and in a captured step. It reads these values on the host. An owner of gradients
// asks for it in GradReady.
func (p *Param) Repeats() (sum uint64, known bool) {
	if p.last == nil {
		return 0, false
	}
	t := p.last.t
	if t.drew || t.root == nil || t.Recording() != nil {
		return 0, false
	}
	batches, all := t.fed.Batches()
	if len(batches) == 0 || !all {
		return 0, false
	}
	s := &digest{sum: math.Float64bits(t.scale)}
	for _, b := range batches {
		if b.N == 0 {
			return 0, false
		}
		for _, i := range pack(b) {
			s.number(uint64(i))
		}
	}
	for i := range t.recorded {
		if !s.node(t.node(i)) {
			return 0, false
		}
	}
	return s.sum, true
}

type digest struct {
	sum uint64
	buf [8]byte
}

func (s *digest) number(v uint64) {
	binary.LittleEndian.PutUint64(s.buf[:], v)
	s.sum = crc64.Update(s.sum, ecma, s.buf[:])
}

// node adds an operation, and reports whether it is known what it computes.
func (s *digest) node(n *Node) bool {
	s.number(uint64(n.op))
	for _, i := range n.I {
		s.number(uint64(i))
	}
	for _, f := range n.F {
		s.number(math.Float64bits(f))
	}
	switch {
	case n.op == OpCheckpoint:
		return false
	case n.op == OpApply:
		if _, typed := n.call.f.(Typed); !typed {
			return false
		}
		s.sum = crc64.Update(s.sum, ecma, []byte(n.call.f.Name()))
	}
	for i, h := range n.in {
		switch {
		case h == nil:
		case h.base != nil:
			s.sum = crc64.Update(s.sum, ecma, []byte(h.base.p.name))
			s.number(uint64(h.base.p.version))
		case n.need&(1<<i) == 0 && !s.values(h):
			return false
		}
	}
	return true
}

// values adds the values of a tensor that was not computed from parameters, and reports whether they are still there.
func (s *digest) values(h *header) bool {
	if h.st == nil || h.st.ptr == nil {
		return false
	}
	for _, d := range h.dims[:h.ndim] {
		s.number(uint64(d))
	}
	x := ToHost(h.tensor())
	if x.h.ld == 0 {
		s.sum = crc64.Update(s.sum, ecma, x.Bytes())
		return true
	}
	for _, v := range Floats(x) {
		s.number(math.Float64bits(v))
	}
	return true
}
