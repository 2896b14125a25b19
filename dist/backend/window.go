package backend

import "unsafe"

// EagerBytes is the largest input that is posted together with its operation. Such an operation needs one synchronization instead of two.
const EagerBytes = 256

// Depth is the number of operations that one rank may have in flight in a group. A Window keeps 2*Depth postings. That is enough: a rank
// posts operation s+2*Depth only after all peers have posted s+Depth, and so have finished s.
const Depth = 64

// Posting is an operation as a Window shows it to peers: a copy, with addresses that the reader can use.
type Posting struct {
	Op    Op
	Print uint64 // Fingerprint
	Group string // the group's name on the rank that posted
	eager [EagerBytes]byte
	n     int
}

// Fill copies op, and also its input if that is at most EagerBytes long. V forms are never eager, because their counts are read until all
// ranks are done; nor are operations on device memory.
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

// HasInput reports whether peers read a copy of the input: the one that was posted, or the one on the device. Then each rank does its own
// part of the operation alone, and none has to wait until the others have finished.
func (p *Posting) HasInput() bool { return p.n >= 0 || p.Op.Copied != nil }

// Window is the memory of the ranks of a group, as one rank sees it. A rank may access peers' memory only between Enter and Leave. Post
// and Finish are also memory fences: if a peer has read the number that they publish, it sees all earlier writes.
type Window interface {
	Rank() int
	Size() int
	// Post publishes op under its number. It wakes the peers that may wait for this rank alone.
	Post(op *Op)
	// Posted returns the number of the last operation that peer has posted.
	Posted(peer int) uint64
	// Posting returns what peer posted as operation seq. It stays valid until this rank finishes seq.
	Posting(peer int, seq uint64) *Posting
	// Finish says that this rank no longer uses any peer's memory for operation seq. It wakes the peers that may wait for this rank
	// alone.
	Finish(seq uint64)
	// Finished returns the number of the last operation that peer has finished.
	Finished(peer int) uint64
	// Enter reports whether peers' memory may be accessed; after an abort it returns false. Leave ends the access. Do only a few blocks
	// of work between the two, because an abort waits for it.
	Enter() bool
	Leave()
	// Aborted reports whether there was an abort. It is called between Enter and Leave.
	Aborted() bool
	// Touch is called before each block that is read from or written to peer's memory, and counts the bytes. It reports whether to move
	// the block: fault injection may drop one.
	Touch(peer int, kind Kind, bytes int) bool
}

// Remote is implemented by a Window whose peers' addresses cannot be used by the reader. It returns where their memory is. An operation
// reads from one peer, or writes to it, in order and without gaps.
type Remote interface {
	// Input returns bytes lo to hi of the input that peer posted for the current operation, or only the first of them: at least up to the
	// next multiple of BlockAlign, counted from where this rank began to read. It returns false if they are not there yet, or if the
	// group has failed.
	Input(peer, lo, hi int) ([]byte, bool)
	// Output returns bytes lo to hi of peer's result, after Input gave the same bytes.
	Output(peer, lo, hi int) []byte
}

// BlockAlign is the unit of the pieces of a Remote's buffer: each piece is a multiple of it.
const BlockAlign = 16 << 10
