package backend

import "unsafe"

// EagerBytes is the largest input that is posted together with its operation: it needs one synchronization, not two.
const EagerBytes = 256

// Depth is the number of operations that one rank may have in flight in a group. A Window remembers 2*Depth postings: a
// rank posts operation s+2*Depth only after it has seen every peer post s+Depth, hence finish s.
const Depth = 64

// Posting is an operation as a Window shows it to peers: a copy, with addresses that are valid for the reader.
type Posting struct {
	Op    Op
	Print uint64 // Fingerprint
	Group string // name that the poster gives the group
	eager [EagerBytes]byte
	n     int
}

// Fill copies op, and the input with it when it is at most EagerBytes long.
// The V forms are never eager: their counts are read until all ranks are done. Neither is what is in a device's memory.
func (p *Posting) Fill(op *Op, group string, print uint64) {
	p.Op, p.Group, p.Print, p.n = *op, group, print, -1
	v := op.Kind == AllGatherV || op.Kind == ReduceScatterV || op.Kind == AllToAllV
	if !v && op.Src.Bytes <= EagerBytes && !op.OnDevice() {
		p.n = copy(p.eager[:], unsafe.Slice((*byte)(op.Src.Ptr), op.Src.Bytes))
	}
}

// Eager returns the input that was posted with the operation, and whether there is one.
func (p *Posting) Eager() ([]byte, bool) {
	if p.n < 0 {
		return nil, false
	}
	return p.eager[:p.n], true
}

// Window is the memory of the ranks of a group as one of them sees it. Peers' memory may be touched only between Enter
// and Leave. Post, Finish and the numbers that they publish order memory: what a rank wrote before Post or Finish is
// seen by a peer that has read the number.
type Window interface {
	Rank() int
	Size() int
	// Post publishes op under its number and wakes the peers that waited for nobody else.
	Post(op *Op)
	// Posted returns the number of the last operation that peer has posted.
	Posted(peer int) uint64
	// Posting returns what peer posted as operation seq. It stays valid until this rank finishes seq.
	Posting(peer int, seq uint64) *Posting
	// Finish says that this rank no longer touches any peer's memory for operation seq, and wakes the peers that waited
	// for nobody else.
	Finish(seq uint64)
	// Finished returns the number of the last operation that peer has finished.
	Finished(peer int) uint64
	// Enter reports whether peers' memory may be touched: false after an abort. Leave ends it; keep the time between
	// the two to a few blocks, an abort waits for it.
	Enter() bool
	Leave()
	// Aborted reports an abort between Enter and Leave.
	Aborted() bool
	// Touch is called before each block that is read from or written to peer's memory. It reports whether to go on
	// (fault injection may drop one), and counts the bytes.
	Touch(peer int, kind Kind, bytes int) bool
}

// Remote is implemented by a Window in which peers' addresses mean nothing to the reader: it says where their memory is.
// What an operation reads from one peer, or writes to it, comes in order and without gaps.
type Remote interface {
	// Input returns bytes lo to hi of the input that peer posted for the operation in progress, or the first of them: never
	// less than what is left up to the next multiple of BlockAlign, counted from where this rank began to read. False: they
	// are not there yet, or the group has failed.
	Input(peer, lo, hi int) ([]byte, bool)
	// Output returns bytes lo to hi of peer's result, after Input gave the same bytes.
	Output(peer, lo, hi int) []byte
}

// BlockAlign is what the pieces in which a Remote may hold a buffer are multiples of.
const BlockAlign = 16 << 10
