package tcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
)

// history is how many operations a group remembers: those in flight, and messages that were sent and not yet received.
const history = 2 * backend.Depth

// group is one rank's end of a group. Its worker, a goroutine, runs the operations in order.
type group struct {
	e          *Engine
	key        key
	opened     bool // guarded by e.mu
	counters   backend.Counters
	writing    atomic.Pointer[link] // the worker is writing to it
	mismatched atomic.Pointer[link] // its rank gave another operation, and will say so
	goodbyes   atomic.Bool          // a peer has left the job
	waitsFor   atomic.Int32         // rank in the group whose message is waited for, last of all; another goroutine may send

	mu      sync.Mutex
	cond    sync.Cond // for done, running, err and answers
	work    sync.Cond // the worker waits for operations
	spec    backend.Spec
	tuner   *algo.Tuner
	hash    uint64 // of the name
	pipes   map[int]*pipe
	peers   []*pipe // by rank in the group; nil for this rank
	ops     backend.History[backend.Issued]
	issued  uint64
	done    uint64
	running bool            // the worker is inside an operation
	mem     *shared         // nil: the data goes over connections
	seen    uint64          // done, as the goroutine that drives mem knows it
	parked  []chan struct{} // of goroutines in Park; each holds one token
	idle    []chan struct{} // for the next Park
	closing bool            // no operation will follow
	endSent bool            // the peers know
	err     error
	asked   uint64 // number of the last query
	answers map[int]uint64

	stallCheck    waiting // of the goroutine that watches the engine
	stallReported bool    // the peer has been told
}

func newGroup(e *Engine, k key) *group {
	g := &group{e: e, key: k, pipes: map[int]*pipe{}, answers: map[int]uint64{}}
	g.cond.L, g.work.L = &g.mu, &g.mu
	return g
}

// open makes the group usable here, with or without a worker that sends messages.
func (g *group) open(s backend.Spec, worker bool) {
	s.Ranks = slices.Clone(s.Ranks)
	peers, machines := make([]*pipe, len(s.Ranks)), make([]string, len(s.Ranks))
	for i, r := range s.Ranks {
		who := &g.e.self
		if r != g.e.cfg.Rank {
			peers[i] = g.pipe(g.e.links[r])
			peers[i].open()
			who = &g.e.links[r].peer
		}
		machines[i] = who.Machine
	}
	g.mu.Lock()
	g.spec, g.hash, g.peers, g.tuner = s, backend.HashString(s.Name), peers, algo.NewTuner(algo.LayoutOf(machines))
	g.mu.Unlock()
	if worker {
		g.e.wg.Add(1)
		go g.run()
	}
}

// pipe returns the pipe to the peer of l: nil when it is no member. Before the group is opened, anyone may be.
func (g *group) pipe(l *link) *pipe {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.pipes[l.peer.Rank]
	if p == nil && g.peers == nil {
		p = newPipe(g, l)
		if p.err, p.closed = g.err, l.closed.Load(); p.closed {
			p.over = backend.ErrLeft
			g.goodbyes.Store(true)
		}
		g.pipes[l.peer.Rank] = p
	}
	return p
}

// Caps says what the engine can do.
func (g *group) Caps() backend.Caps {
	return backend.Caps{Kinds: backend.AllKinds &^ (1 << backend.Batch), Reds: backend.AllReds, DTypes: backend.AllDTypes, RecvAny: true,
		Async: true}
}

// Algorithms returns the names that Op.Algo may have.
func (g *group) Algorithms() []string { return algo.Names() }

// Choice returns the name of the algorithm that runs op.
func (g *group) Choice(op *backend.Op) string { return g.tuner.Choose(op) }

// Counters returns the bytes that this rank has written for the group.
func (g *group) Counters() *backend.Counters { return &g.counters }

// Issue queues an operation for the worker.
func (g *group) Issue(op *backend.Op) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.admit(op); err != nil {
		return err
	}
	if err := g.tuner.Check(op); err != nil {
		return g.opError(op, err)
	}
	r := g.remember(op)
	for _, p := range g.peers {
		if p != nil {
			g.comparePending(p, op.Seq, r.Print)
		}
	}
	g.work.Signal()
	return nil
}

// admit says whether op may be issued now. g.mu is held.
func (g *group) admit(op *backend.Op) error {
	switch {
	case g.err != nil:
		return g.err
	case g.closing:
		return fmt.Errorf("tcp: group %s is closed", g.spec.Name)
	case op.Seq != g.issued+1:
		return fmt.Errorf("tcp: group %s: operation %d issued after %d", g.spec.Name, op.Seq, g.issued)
	case g.issued-g.done >= backend.Depth:
		return fmt.Errorf("tcp: group %s: more than %d operations in flight", g.spec.Name, backend.Depth)
	}
	return nil
}

// remember remembers an operation that is issued. g.mu is held.
func (g *group) remember(op *backend.Op) *backend.Issued {
	g.issued = op.Seq
	r := g.ops.At(op.Seq)
	r.Keep(op, g.hash)
	return r
}

// comparePending compares operation seq, just issued, with what p has already sent. g.mu is held.
func (g *group) comparePending(p *pipe, seq, fingerprint uint64) {
	for len(p.prints) > 0 && p.prints[0].seq <= seq {
		if a := p.prints[0]; a.seq == seq && a.print != fingerprint {
			g.reportMismatch(p, seq)
		}
		p.prints = p.prints[1:]
	}
}

// checkFirst compares the first frame of each operation with this rank's own view of it. Nobody has to ask for the message:
// two ranks that disagree may well wait for something else.
func (g *group) checkFirst(p *pipe, h *header) (first bool) {
	if h.seq <= p.begun.Load() || h.part > 0 {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	p.begun.Store(h.seq)
	if g.mem == nil { // else the peer has said why it sends messages
		g.compare(p, h)
	}
	return true
}

// compare compares the fingerprint of a frame with that of the operation here. g.mu is held.
func (g *group) compare(p *pipe, h *header) {
	switch {
	case g.peers == nil || h.seq > g.issued:
		p.prints = append(p.prints, print{h.seq, h.print})
	case g.issued-h.seq < history && g.ops.At(h.seq).Print != h.print:
		g.reportMismatch(p, h.seq)
	}
}

// reportMismatch sends this rank's view of operation seq to a peer whose fingerprint differs. The peer compares and aborts the
// group with what it finds; until then this rank sends nothing and no operation ends well. g.mu is held.
func (g *group) reportMismatch(p *pipe, seq uint64) {
	if p.link.unusable.Load() {
		op := g.ops.At(seq).Copy.Asked().String()
		go g.fail(&backend.Error{Rank: p.link.peer.Rank, Host: p.link.peer.where(), Group: g.spec.Name, Op: op, Seq: seq,
			Cause: errors.New("gave a different operation, and has left the job")}, true)
		return
	}
	g.mismatched.Store(p.link)
	p.link.post(&header{typ: frameMismatch, gen: g.key.gen, group: g.key.id, seq: seq}, backend.EncodeJSON(g.describe(seq), maxPayload))
}

// describe returns the descriptor of an operation that was issued. g.mu is held.
func (g *group) describe(seq uint64) backend.Desc {
	op := &g.ops.At(seq).Copy
	d := backend.DescOf(op, g.spec.Name)
	d.Choice = g.tuner.Choose(op)
	return d
}

// receiveMismatch handles a peer's accusation.
func (g *group) receiveMismatch(l *link, seq uint64, b []byte) error {
	var theirs backend.Desc
	if err := json.Unmarshal(b, &theirs); err != nil {
		return fmt.Errorf("broke the protocol: descriptor: %w", err)
	}
	g.mu.Lock()
	known := g.peers != nil && seq <= g.issued && g.issued-seq < history
	mine := theirs
	if known {
		mine = g.describe(seq)
	}
	g.mu.Unlock()
	g.fail(backend.Disagreement(&mine, &theirs, g.e.cfg.Rank, l.peer.Rank), true)
	return nil
}

// Progress returns how far the worker is. An error shows only when the worker no longer touches any buffer.
func (g *group) Progress() (uint64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil && !g.running {
		return g.done, g.err
	}
	return g.done, nil
}

// Park sleeps until operation seq is done, ctx ends, or the group has failed.
func (g *group) Park(ctx context.Context, seq uint64) error {
	g.mu.Lock()
	wake := g.wakeChannel()
	g.parked = append(g.parked, wake)
	for g.done < seq && (g.err == nil || g.running) && ctx.Err() == nil {
		g.mu.Unlock()
		select {
		case <-wake:
		case <-ctx.Done():
		}
		g.mu.Lock()
	}
	i := slices.Index(g.parked, wake)
	g.parked = slices.Delete(g.parked, i, i+1)
	select {
	case <-wake: // a token that came meanwhile is not for the next one
	default:
	}
	g.idle = append(g.idle, wake)
	over, err := g.done >= seq, g.err
	g.mu.Unlock()
	switch {
	case over:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return err
}

// wakeChannel returns a channel to sleep on. g.mu is held.
func (g *group) wakeChannel() chan struct{} {
	n := len(g.idle)
	if n == 0 {
		return make(chan struct{}, 1)
	}
	wake := g.idle[n-1]
	g.idle = g.idle[:n-1]
	return wake
}

// wakeAll wakes whoever waits for done, running, err or answers. g.mu is held.
func (g *group) wakeAll() {
	g.cond.Broadcast()
	for _, wake := range g.parked {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// HasPosted reports whether the peer of a point-to-point group has started operation seq.
func (g *group) HasPosted(seq uint64) bool {
	for _, p := range g.peers {
		if p != nil && p.begun.Load() < seq {
			return false
		}
	}
	return true
}

// Abort fails the group on all ranks and waits until the worker has let go of its buffers.
func (g *group) Abort(cause error) error {
	if cause == nil {
		cause = errors.New("aborted")
	}
	g.fail(cause, true)
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.running {
		g.cond.Wait()
	}
	return nil
}

// Close ends the worker. Peers may still finish their part.
func (g *group) Close() error {
	g.drain(time.Now().Add(g.e.cfg.Timeout))
	g.sendEnd(0)
	g.stopWorker()
	g.e.forget(g)
	return nil
}
