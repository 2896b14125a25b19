package shm

import (
	"sync/atomic"
	"unsafe"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/compare"
)

// Segment 0 begins with a directory; the blocks of the groups lie behind it.
const (
	maxGroups = 8192 // groups and lanes of messages that a rank may have open at the same time
	magic     = 0x31304d48534f474e
)

// directory is what a rank shows all peers.
type directory struct {
	magic    uint64
	_        [120]byte
	doorbell atomic.Uint32
	_        [124]byte
	// changes counts the groups that were opened: a reader that did not find one looks again when it has grown.
	changes atomic.Uint64
	top     atomic.Uint64 // no entry from here on was ever used
	_       [112]byte
	dir     [maxGroups]entry
}

// entry says where a group's block is. off is written last; 0: none.
type entry struct {
	id, gen, off atomic.Uint64
	_            uint64
}

// paddedCounter is a number with two cache lines of its own: processors fetch them in pairs.
type paddedCounter struct {
	atomic.Uint64
	_ [120]byte
}

// blockHeader is the beginning of the block that a rank has for a group.
type blockHeader struct {
	members  uint64
	name     [120]byte
	posted   paddedCounter // last operation that this rank posted
	finished paddedCounter // last operation for which it touches no peer's memory any more
	busy     paddedCounter // 1: it is touching the memory of peers
	aborted  paddedCounter // 1: it must not begin to. Any rank of the group sets it
	closed   paddedCounter // peers that have closed the group and look at this block no more
}

// consumed is how many pieces a rank has taken out of the slots of one peer: those for it alone, and those for everyone.
type consumed struct {
	own, all atomic.Uint64
	_        [112]byte
}

// desc is a posted operation.
type desc struct {
	seq, print              uint64
	kind, red, dtype, flags uint8
	ndim, algoLen           uint8
	srcs, dsts              uint16 // number of counts
	count, root, peer, tag  int64
	row                     int64
	factor                  float64
	src, dst                ref
	small                   [backend.EagerBytes]byte
	dims                    [tensor.MaxNDim]int64
	algo                    [32]byte
	agreed                  compare.Agreement
}

// ref is memory in segment 1 of the rank that posted it.
type ref struct{ off, n uint64 }

// Flags of a desc.
const (
	staged           = 1 << iota // the input is not in the heap, it comes through slots
	standsForBarrier             // it describes the Of of a Barrier
)

// A block is: a blockHeader, a counter per channel (pieces put there), a consumed per member, the descs, the slots of each channel.
// Channel i holds what only member i reads; the one of the rank itself what all read.
const (
	slotBytes = 8 * backend.BlockAlign // half of it, or one piece a step, is slower at 16 MiB: 2–4 ms instead of 1.8
	slots     = 8                      // of a channel
	postings  = 2 * backend.Depth
)

// layout says where things are in a block of a group of n.
type layout struct{ n, channels, consumed, descs, descBytes, slots, size int }

func layoutOf(n int) layout {
	l := layout{n: n, channels: int(unsafe.Sizeof(blockHeader{}))}
	l.consumed = l.channels + n*int(unsafe.Sizeof(paddedCounter{}))
	l.descs = l.consumed + n*int(unsafe.Sizeof(consumed{}))
	l.descBytes = (int(unsafe.Sizeof(desc{})) + 16*n + 127) &^ 127
	l.slots = (l.descs + postings*l.descBytes + pageBytes - 1) &^ (pageBytes - 1)
	l.size = l.slots + n*slots*slotBytes
	return l
}

// block is a group's block of one rank, as mapped here.
type block struct {
	*blockHeader
	base   unsafe.Pointer
	layout *layout
}

func (b *block) channel(i int) *paddedCounter {
	return (*paddedCounter)(unsafe.Add(b.base, b.layout.channels+i*int(unsafe.Sizeof(paddedCounter{}))))
}

func (b *block) consumed(i int) *consumed {
	return (*consumed)(unsafe.Add(b.base, b.layout.consumed+i*int(unsafe.Sizeof(consumed{}))))
}

func (b *block) desc(seq uint64) *desc {
	return (*desc)(unsafe.Add(b.base, b.layout.descs+int(seq%postings)*b.layout.descBytes))
}

// counts are the numbers behind a desc: two per member.
func (b *block) counts(d *desc) []int64 {
	return unsafe.Slice((*int64)(unsafe.Add(unsafe.Pointer(d), unsafe.Sizeof(desc{}))), 2*b.layout.n)
}

// slot is the place of piece number k of a channel.
func (b *block) slot(channel int, k uint64) []byte {
	off := b.layout.slots + (channel*slots+int(k%slots))*slotBytes
	return unsafe.Slice((*byte)(unsafe.Add(b.base, off)), slotBytes)
}
