package tcp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/shm"
)

const (
	maxEarlyGroups = 4096                   // groups that peers may use before this rank has opened them
	maxEarlyBytes  = 128 << 20              // bytes that a peer may send to them
	answerTimeout  = 500 * time.Millisecond // a busy machine answers in 0.1 to 0.4 s; who is stopped, never
	stallInterval  = 50 * time.Millisecond  // for peers that have been silent for too long
)

// key names a group in frames.
type key struct {
	id  uint64
	gen uint32
}

// Engine is one rank's part in a job of processes: a connection to every other rank. Join makes it.
type Engine struct {
	cfg   Config
	self  member
	began time.Time
	links []*link // by rank; nil for this rank
	stop  chan struct{}
	event chan struct{} // something may have got further
	wg    sync.WaitGroup
	// onLost is told first of a lost connection: during rendezvous it is no failure of a group. onReject is told when rank 0 gives the
	// job up.
	onLost   func(*link, error) bool
	onReject func(error)

	mu            sync.Mutex
	groups        map[key]*group
	early         int               // of groups: not opened here yet
	newest        map[uint64]uint32 // newest generation opened of a group
	closedGroups  map[key]int       // closed here: how many members may still say something
	closing       bool
	firstErr      error                    // first failure of any group
	mem           atomic.Pointer[shm.Host] // nil: no shared memory
	firstLost     *link                    // the first connection that was lost to a rank that no new generation has left behind
	agreements    map[key]*agreement
	connected     bool     // all links are up
	earlyRebuilds []func() // what was heard of rounds before
}

func newEngine(c Config, self member) *Engine {
	return &Engine{cfg: c, self: self, began: time.Now(), links: make([]*link, c.Size), stop: make(chan struct{}),
		event: make(chan struct{}, 1), onLost: func(*link, error) bool { return false }, onReject: func(error) {}, groups: map[key]*group{},
		newest: map[uint64]uint32{}, closedGroups: map[key]int{}, agreements: map[key]*agreement{}}
}

// Name returns "tcp".
func (e *Engine) Name() string { return "tcp" }

// now is a monotonic clock in nanoseconds.
func (e *Engine) now() int64 { return int64(time.Since(e.began)) }

// Open makes this rank's end of a group.
func (e *Engine) Open(s backend.Spec) (backend.Backend, error) {
	if s.Rank < 0 || s.Rank >= len(s.Ranks) || s.Ranks[s.Rank] != e.cfg.Rank {
		return nil, fmt.Errorf("tcp: rank %d opens group %s as rank %d of %v", e.cfg.Rank, s.Name, s.Rank, s.Ranks)
	}
	for _, r := range s.Ranks {
		if r < 0 || r >= e.cfg.Size {
			return nil, fmt.Errorf("tcp: group %s has rank %d, the job has %d ranks", s.Name, r, e.cfg.Size)
		}
	}
	e.mu.Lock()
	if e.closing {
		e.mu.Unlock()
		return nil, errors.New("tcp: the engine is closed")
	}
	k := key{s.ID, e.cfg.Gen + s.Gen}
	g := e.groups[k]
	switch {
	case g != nil && g.opened || e.closedGroups[k] > 0:
		e.mu.Unlock()
		return nil, fmt.Errorf("tcp: group %s is opened twice", s.Name)
	case g == nil:
		g = newGroup(e, k)
		e.groups[k] = g
	default:
		e.early--
	}
	e.newest[s.ID] = max(e.newest[s.ID], k.gen)
	g.opened = true
	h := e.mem.Load()
	forced := h != nil && h.Holds(s.Ranks) && s.Messages != ""
	if h != nil && (forced || !h.Holds(s.Ranks)) {
		h = nil
	}
	var inherited error
	if parent := e.groups[key{s.Parent, k.gen}]; s.Parent != 0 && parent != nil && parent.opened {
		inherited = parent.failure()
	}
	g.open(s, h == nil)
	if forced {
		g.sendForced()
	}
	lost := e.lostAmong(s.Ranks)
	e.mu.Unlock()
	var be backend.Backend = g
	if h != nil {
		m, err := e.openShared(g, s, h)
		if err != nil {
			g.fail(err, true)
			return nil, err
		}
		be = m
	}
	if inherited != nil {
		g.fail(inherited, false)
	}
	if lost != nil {
		g.fail(g.peerError(lost.peer, fmt.Errorf("connection lost before the group was made: %w", lost.lostErr)), true)
	}
	return be, nil
}

// find returns the group of a frame, making it when it is not opened here yet; nil for one that is over.
func (e *Engine) find(l *link, h *header, create bool) (*group, error) {
	k := key{h.group, h.gen}
	e.mu.Lock()
	defer e.mu.Unlock()
	if g := e.groups[k]; g != nil {
		return g, nil
	}
	newest := e.newest[k.id]
	if newest > k.gen && h.typ == frameData { // only then: an answer to an answer would have no end
		e.postAbort(l, k, &backend.Error{Rank: l.peer.Rank, Host: l.peer.where(), Seq: h.seq,
			Cause: fmt.Errorf("generation %d is over, this is generation %d", k.gen-e.cfg.Gen, newest-e.cfg.Gen)})
	}
	if !create || newest > k.gen || e.closedGroups[k] > 0 || e.closing {
		return nil, nil
	}
	if e.early == maxEarlyGroups {
		return nil, fmt.Errorf("broke the protocol: uses more than %d groups that are not opened here", maxEarlyGroups)
	}
	e.early++
	g := newGroup(e, k)
	e.groups[k] = g
	return g, nil
}

// dispatch handles one frame that came on w. It never waits for anything but the rest of the frame. An error ends the link.
func (e *Engine) dispatch(w *wire, h *header) error {
	l := w.l
	if h.gen < e.cfg.Gen {
		return fmt.Errorf("broke the protocol: frame of generation %d, this is generation %d", h.gen, e.cfg.Gen)
	}
	switch h.typ {
	case frameAlive, frameQuery, frameStatus, frameEnd, frameGoodbye, frameFarewell, frameCredit, frameWaiting:
		if h.length != 0 {
			return errors.New("broke the protocol: payload in a frame without one")
		}
	case frameReject:
		return e.receiveReject(w, h)
	case frameRebuild:
		return e.receiveRebuild(w, h)
	case frameHello, frameWelcome, frameTable:
		return errors.New("broke the protocol: rendezvous is over")
	}
	switch h.typ {
	case frameAlive:
		return nil
	case frameGoodbye:
		l.wireDone(w)
		return nil
	case frameFarewell:
		l.setPeerDone()
		return nil
	}
	g, err := e.find(l, h, h.typ == frameData || h.typ == frameWaiting || h.typ == frameAbort ||
		h.typ == frameForced || h.typ == frameEnd && h.seq > 0)
	if err != nil {
		return err
	}
	if g == nil {
		return e.ignore(w, h)
	}
	p := g.pipe(l)
	if p == nil {
		return fmt.Errorf("broke the protocol: frame for group %016x, but it is not a member of that group", h.group)
	}
	return e.deliver(g, p, w, h)
}

// deliver handles a frame for a group.
func (e *Engine) deliver(g *group, p *pipe, w *wire, h *header) error {
	l := w.l
	switch h.typ {
	case frameData:
		if g.checkFirst(p, h) { // who receives from any rank looks for it
			defer e.wake()
		}
		return p.receive(h, w)
	case frameCredit:
		return p.credited(h.total)
	case frameEnd:
		if e.noteEnd(g, p, h) {
			g.peerEnded(p, h)
		}
	case frameQuery:
		issued, _ := g.progress()
		l.post(&header{typ: frameStatus, gen: h.gen, group: h.group, seq: issued, total: h.total}, nil)
	case frameWaiting:
		g.receiveWaiting(p, h)
	case frameStatus:
		g.receiveStatus(l.peer.Rank, h)
	case frameMismatch, frameAbort, frameForced:
		b, err := w.payload(h)
		switch {
		case err != nil:
			return err
		case h.typ == frameAbort:
			return e.receiveAbort(g, b)
		case h.typ == frameMismatch:
			return g.receiveMismatch(l, h.seq, b)
		}
		g.receiveForced(p, string(b))
	}
	return nil
}

// ignore skips a frame for a group that is over here, or was never opened.
func (e *Engine) ignore(w *wire, h *header) error {
	if h.typ == frameQuery {
		w.l.post(&header{typ: frameStatus, gen: h.gen, group: h.group, total: h.total}, nil)
	}
	if k := (key{h.group, h.gen}); h.typ == frameEnd && e.isClosed(k) {
		e.memberEnded(k)
	}
	_, err := w.payload(h)
	return err
}

// noteEnd writes down where a member ends, unless the group was closed here a moment ago.
func (e *Engine) noteEnd(g *group, p *pipe, h *header) bool {
	e.mu.Lock()
	open := e.groups[g.key] == g
	if open {
		g.mu.Lock()
		if p.over == nil {
			p.last, p.over = h.seq, backend.ErrClosed
		}
		g.mu.Unlock()
	}
	e.mu.Unlock()
	if !open && e.isClosed(g.key) {
		e.memberEnded(g.key)
	}
	return open
}

func (e *Engine) isClosed(k key) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closedGroups[k] > 0
}

// wake wakes Park.
func (e *Engine) wake() {
	if h := e.mem.Load(); h != nil {
		h.Wake()
		return
	}
	select {
	case e.event <- struct{}{}:
	default:
	}
}

// Park sleeps until any group of this rank may have got further since the last Park, or until ctx ends.
func (e *Engine) Park(ctx context.Context) error {
	if h := e.mem.Load(); h != nil {
		return h.Park(ctx)
	}
	select {
	case <-e.event:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// postAbort tells the peer why group k has failed.
func (e *Engine) postAbort(l *link, k key, err *backend.Error) {
	lost := (*lostError)(nil)
	l.post(&header{typ: frameAbort, gen: k.gen, group: k.id}, err.Encode(errors.As(err.Cause, &lost), maxPayload))
}

// receiveAbort handles a peer's abort.
func (e *Engine) receiveAbort(g *group, b []byte) error {
	failure, lost, err := backend.DecodeError(b)
	if err != nil {
		return fmt.Errorf("broke the protocol: abort: %w", err)
	}
	if lost && failure.Cause != nil {
		failure.Cause = &lostError{failure.Cause}
	}
	g.receiveError(failure)
	return nil
}

// failedAbove returns the failure of the group that g was made from, or of one further up.
func (e *Engine) failedAbove(g *group) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !g.opened || g.spec.Parent == 0 {
		return nil
	}
	for up := e.groups[key{g.spec.Parent, g.key.gen}]; up != nil && up.opened; up = e.groups[key{up.spec.Parent, g.key.gen}] {
		if err := up.failure(); err != nil {
			return err
		}
	}
	return nil
}

// failChildren fails the groups that were made from g.
func (e *Engine) failChildren(g *group, err error) {
	e.mu.Lock()
	if e.firstErr == nil {
		e.firstErr = err
	}
	var made []*group
	for _, c := range e.groups {
		if c.opened && c != g && c.spec.Parent == g.key.id && c.key.gen == g.key.gen {
			made = append(made, c)
		}
	}
	e.mu.Unlock()
	for _, c := range made {
		c.fail(err, false)
	}
}

// forget drops a closed group. The groups made from it become those of its parent, whose failure must reach them.
func (e *Engine) forget(g *group) {
	e.mu.Lock()
	for _, c := range e.groups {
		if c.opened && c.spec.Parent == g.key.id && c.key.gen == g.key.gen {
			c.spec.Parent = g.spec.Parent
		}
	}
	delete(e.groups, g.key)
	e.closedGroups[g.key] = 1 + g.openMembers()
	e.mu.Unlock()
	e.memberEnded(g.key)
}

// memberEnded counts who will say nothing more in a group that is closed here. After the last one it need not be remembered.
func (e *Engine) memberEnded(k key) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closedGroups[k]--; e.closedGroups[k] > 0 {
		return
	}
	delete(e.closedGroups, k)
	if e.newest[k.id] == k.gen {
		delete(e.newest, k.id)
	}
}
