package shm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
)

// Host is one rank's view of the memory that the ranks of its host share. [Listener.Rendezvous] makes it.
type Host struct {
	rank      int
	ctl       *segment
	directory *directory
	doorbell  *doorbell
	blocks    *allocator // of segment 0
	heap      *allocator // of segment 1
	peers     map[int]*peer
	fault     Fault

	mu          sync.Mutex
	freeEntries []int // of the directory
	retired     []*closedGroup
	ends        map[*End]bool
	closed      bool
}

// Fault is called before a block of `bytes` bytes is read from or written to peer's memory by rank; when it returns true,
// the block is dropped and not counted. Tests inject delays and losses with it.
type Fault func(rank, peer, bytes int) (drop bool)

// SetFault installs a fault for tests. Call it before groups are opened.
func (h *Host) SetFault(f Fault) { h.fault = f }

// key names a group on all ranks.
type key struct{ id, gen uint64 }

// peer is another rank of the host.
type peer struct {
	rank      int
	ctl, heap *segment
	directory *directory
	doorbell  remoteDoorbell
}

// newHost makes this rank's segments, in a job of so many ranks. The files are what peers need to map them and to ring.
func newHost(rank, ranks int) (h *Host, files [3]*os.File, err error) {
	h = &Host{rank: rank, peers: map[int]*peer{}, ends: map[*End]bool{}}
	sizes, err := readLimits().segments(ranks)
	if err != nil {
		return nil, files, err
	}
	var segments [2]*segment
	for i := range segments {
		if segments[i], files[i], err = createSegment(rank, i, sizes[i]); err != nil {
			segments[0].unmap()
			return nil, files, errors.Join(err, closeFiles(files[:i]))
		}
	}
	h.ctl = segments[control]
	h.blocks, h.heap = newAllocator(h.ctl), newAllocator(segments[heap])
	h.directory = (*directory)(h.ctl.at(0))
	_, err = h.blocks.alloc(int(unsafe.Sizeof(directory{})))
	if err == nil {
		h.directory.magic = magic
		h.doorbell, err = newDoorbell(&h.directory.doorbell)
	}
	if err != nil {
		segments[0].unmap()
		segments[1].unmap()
		return nil, files, errors.Join(err, closeFiles(files[:2]))
	}
	files[2] = h.doorbell.file
	return h, files, nil
}

func closeFiles(files []*os.File) error {
	var errs []error
	for _, f := range files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// newPeer maps what a peer has sent: its two segments and its eventfd. It takes the descriptors, whatever comes of it.
func newPeer(rank int, fds []int) (_ *peer, err error) {
	p := &peer{rank: rank, doorbell: remoteDoorbell{fd: -1}}
	defer func() {
		if err != nil {
			p.unmap()
		}
	}()
	for i, fd := range fds {
		switch {
		case err != nil || i > 2:
			unix.Close(fd)
		case i == control:
			p.ctl, err = mapSegment(fd, rank, control)
			unix.Close(fd)
		case i == heap:
			p.heap, err = mapSegment(fd, rank, heap)
			unix.Close(fd)
		default:
			p.doorbell.fd = fd
		}
	}
	if err != nil {
		return nil, err
	}
	if len(fds) != 3 {
		return nil, fmt.Errorf("shm: rank %d sent %d descriptors, want 3", rank, len(fds))
	}
	p.directory = (*directory)(p.ctl.at(0))
	if p.directory.magic != magic {
		return nil, p.ctl.errorf("begins with %#x, want %#x", p.directory.magic, uint64(magic))
	}
	p.doorbell.state = &p.directory.doorbell
	return p, nil
}

func (p *peer) unmap() {
	p.ctl.unmap()
	p.heap.unmap()
	if p.doorbell.fd >= 0 {
		unix.Close(p.doorbell.fd)
	}
}

// find returns the peer's block of e's group; nil: it has not opened it. looked remembers that. When it has only opened a
// later generation, that is an error.
func (p *peer) find(e *End, looked *atomic.Uint64) (*block, error) {
	k, lay, later := e.key, &e.lay, uint64(0)
	changes := p.directory.changes.Load()
	if looked.Load() == changes+1 {
		return nil, nil
	}
	top := min(p.directory.top.Load(), maxGroups)
	for i := range top {
		d := &p.directory.dir[i]
		off := d.off.Load()
		gen := d.gen.Load()
		if off == 0 || d.id.Load() != k.id || gen < k.gen || d.off.Load() != off {
			continue
		}
		if gen > k.gen {
			later = gen - k.gen
			continue
		}
		if has := uint64(len(p.ctl.b)); off%pageBytes != 0 || uint64(lay.size) > has || off > has-uint64(lay.size) {
			return nil, p.ctl.errorf("a group's block of %d bytes at %#x, it has %#x", lay.size, off, len(p.ctl.b))
		}
		b := blockAt(p.ctl, int(off), lay)
		if b.members != uint64(lay.n) {
			return nil, p.ctl.errorf("group %s has %d members there, %d here", b.groupName(), b.members, lay.n)
		}
		return b, nil
	}
	if later > 0 {
		return nil, fmt.Errorf("generation %d is over, this is generation %d", e.spec.Gen, uint64(e.spec.Gen)+later)
	}
	looked.Store(changes + 1)
	return nil, nil
}

func blockAt(s *segment, off int, lay *layout) *block {
	base := s.at(off)
	return &block{blockHeader: (*blockHeader)(base), base: base, layout: lay}
}

// Holds reports whether all ranks are on this host.
func (h *Host) Holds(ranks []int) bool {
	for _, r := range ranks {
		if r != h.rank && h.peers[r] == nil {
			return false
		}
	}
	return true
}

// Open makes this rank's end of a group, in generation gen of the job. It does not wait for peers.
func (h *Host) Open(s backend.Spec, gen uint32) (*End, error) {
	n := len(s.Ranks)
	e := &End{h: h, spec: s, key: key{s.ID, uint64(gen)}, n: n, me: s.Rank, hash: backend.HashString(s.Name), lay: layoutOf(n),
		views: make([]atomic.Pointer[block], n), looked: make([]atomic.Uint64, n), remote: make([]peerPosting, n),
		channels: make([]channelState, n), drainedTo: 1}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, errors.New("shm: closed")
	}
	h.sweep()
	entry, err := h.newEntry()
	if err != nil {
		return nil, err
	}
	if e.off, err = h.blocks.alloc(e.lay.size); err != nil {
		h.freeEntries = append(h.freeEntries, entry)
		return nil, err
	}
	e.mine, e.entry = blockAt(h.ctl, e.off, &e.lay), entry
	h.ctl.populate(e.off, e.lay.slots)
	e.mine.members = uint64(n)
	copy(e.mine.name[:len(e.mine.name)-1], s.Name)
	e.views[e.me].Store(e.mine)
	e.direct = algo.NewDirect(s, e)
	h.ends[e] = true
	d := &h.directory.dir[entry]
	d.id.Store(e.key.id)
	d.gen.Store(e.key.gen)
	d.off.Store(uint64(e.off))
	h.directory.changes.Add(1)
	return e, nil
}

// newEntry needs h.mu.
func (h *Host) newEntry() (int, error) {
	if k := len(h.freeEntries); k > 0 {
		entry := h.freeEntries[k-1]
		h.freeEntries = h.freeEntries[:k-1]
		return entry, nil
	}
	entry := h.directory.top.Load()
	if entry == maxGroups {
		return 0, fmt.Errorf("shm: more than %d groups and pairs of ranks that exchange messages are open", maxGroups)
	}
	h.directory.top.Store(entry + 1)
	return int(entry), nil
}

// closedGroup is a group that this rank has closed. The block stays until no peer looks at it any more.
type closedGroup struct {
	e        *End
	notified []bool // who knows that this rank looks at its block no more
}

// retire closes e. The block of a failed group is kept as long as the rank lives: a stopped peer may still use it.
func (h *Host) retire(e *End) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	delete(h.ends, e)
	if e.failed.Load() {
		return
	}
	h.retired = append(h.retired, &closedGroup{e, make([]bool, e.n)})
	h.sweep()
}

// sweep gives back the blocks of groups that all members have closed. It needs h.mu.
func (h *Host) sweep() {
	keep := h.retired[:0]
	for _, g := range h.retired {
		if !h.reclaim(g) {
			keep = append(keep, g)
		}
	}
	clear(h.retired[len(keep):])
	h.retired = keep
}

func (h *Host) reclaim(g *closedGroup) bool {
	e, all := g.e, true
	for i := range e.n {
		if i == e.me || g.notified[i] {
			continue
		}
		b := e.view(i)
		if b == nil {
			all = false
			continue
		}
		b.closed.Add(1)
		g.notified[i] = true
	}
	if !all || e.mine.closed.Load() < uint64(e.n-1) {
		return false
	}
	h.directory.dir[e.entry].off.Store(0)
	h.freeEntries = append(h.freeEntries, e.entry)
	return h.blocks.release(e.off) == nil
}

// Park sleeps until any group of this rank may have got further since the last Park, or until ctx ends.
func (h *Host) Park(ctx context.Context) error { return h.doorbell.park(ctx) }

// Wake ends a Park.
func (h *Host) Wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.doorbell.forceRing()
	}
}

// Alloc returns n bytes of zeroed memory that peers read and write in place. It is there while the Host is open, or owner is
// reachable.
func (h *Host) Alloc(n int) (p, owner unsafe.Pointer, err error) {
	off, err := h.heap.alloc(n)
	if err != nil {
		return nil, nil, err
	}
	h.heap.seg.populate(off, n)
	return h.heap.seg.at(off), unsafe.Pointer(h.heap.seg), nil
}

// Free gives memory of Alloc back. No operation may use it any more.
func (h *Host) Free(p unsafe.Pointer) error {
	off, ok := h.heap.seg.offset(p, 0)
	if !ok {
		return fmt.Errorf("shm: %p is not in shared memory", p)
	}
	return h.heap.release(off)
}

// place returns where a buffer lies in the heap; false: peers cannot reach it there.
func (h *Host) place(m backend.Mem) (int, bool) {
	off, ok := h.heap.seg.offset(m.Ptr, m.Bytes)
	return off, ok && h.heap.shared(off, m.Bytes)
}

// Close gives all memory back, that of Alloc as soon as it is not reachable. Peers go on with theirs.
func (h *Host) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	h.sweep()
	h.closed = true
	for e := range h.ends {
		e.mu.Lock()
		e.closed = true
		e.mu.Unlock()
	}
	h.doorbell.close()
	for _, p := range h.peers {
		p.unmap()
	}
	h.ctl.unmap()
	h.heap.close()
}
