package tcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/shm"
	"github.com/ringo-ml/ringo/tensor"
)

// listenShared offers this rank's memory to the ranks of its host. Without it, the job goes over sockets.
func (e *Engine) listenShared() *shm.Listener {
	c := &e.cfg
	if c.NoShared || c.Size == 1 {
		e.self.NoShmReason = shmOff
		return nil
	}
	d, err := shm.Listen(shm.Config{Rank: c.Rank, Size: c.Size, Secret: c.Secret, Job: c.Job, Gen: c.Gen})
	if err != nil {
		e.self.NoShmReason = err.Error()
		return nil
	}
	e.self.ShmSocket = d.Name()
	return d
}

// share sets up shared memory with the other ranks of this host, if there are any and all of them offer theirs. All ranks
// of a host use it, in every group that has no members elsewhere, or none does.
func (e *Engine) share(ctx context.Context, d *shm.Listener) {
	here := e.here()
	if len(here) == 1 || !allOffer(here, e.cfg.Rank) {
		return
	}
	sockets := map[int]string{}
	for _, m := range here {
		if m.Rank != e.cfg.Rank {
			sockets[m.Rank] = m.ShmSocket
		}
	}
	h, err := d.Rendezvous(ctx, sockets)
	if err != nil {
		slog.Warn(noShared, "rank", e.cfg.Rank, "reason", err.Error())
	}
	if !e.agree(ctx, here, err == nil) {
		if h != nil {
			h.Close()
		}
		return
	}
	e.mem.Store(h)
}

const (
	noShared = "no shared memory: all ranks of this host use sockets"
	shmOff   = "RINGO_SHM=0" // a reason that needs no warning
)

// here returns the ranks of this host, in order.
func (e *Engine) here() (out []*member) {
	for r, l := range e.links {
		switch {
		case r == e.cfg.Rank:
			out = append(out, &e.self)
		case l.peer.Machine == e.self.Machine:
			out = append(out, &l.peer)
		}
	}
	return out
}

// allOffer reports whether all ranks of a host offer their memory. If not, the first of them says so, unless all were asked not
// to, or the system has no shared memory for anybody.
func allOffer(here []*member, self int) bool {
	not, wanted := (*member)(nil), false
	for _, m := range here {
		if m.ShmSocket == "" && (not == nil || not.NoShmReason == shmOff) {
			not = m
		}
		wanted = wanted || m.NoShmReason != shmOff
	}
	if not != nil && wanted && here[0].Rank == self && runtime.GOOS == "linux" {
		slog.Warn(noShared, "rank", not.Rank, "reason", not.NoShmReason)
	}
	return not == nil
}

// agree reports whether ok is true on all ranks of this host. A failure shows again in the first operation of the job.
func (e *Engine) agree(ctx context.Context, here []*member, ok bool) bool {
	s := backend.Spec{ID: backend.HashString("shared memory"), Name: "shared memory"}
	for i, m := range here {
		s.Ranks = append(s.Ranks, m.Rank)
		if m.Rank == e.cfg.Rank {
			s.Rank = i
		}
	}
	g, err := e.Open(s)
	if err != nil {
		return false
	}
	defer g.(backend.Closer).Close()
	var votes int32
	if ok {
		votes = 1
	}
	m := backend.Mem{Ptr: unsafe.Pointer(&votes), Bytes: 4}
	op := backend.Op{Kind: backend.AllReduce, Red: backend.Min, DType: tensor.Int32, Seq: 1, Count: 1, Src: m, Dst: m}
	if g.Issue(&op) != nil {
		return false
	}
	if err := g.Park(ctx, 1); err != nil {
		_ = g.Abort(err)
		return false
	}
	return votes == 1
}

// Alloc returns n bytes of zeroed memory that the ranks of this host read and write in place. It is there while the
// engine is open, or owner is reachable. Without shared memory it is an error.
func (e *Engine) Alloc(n int) (p, owner tensor.Ptr, err error) {
	h := e.mem.Load()
	if h == nil {
		return nil, nil, errors.New("tcp: no shared memory")
	}
	return h.Alloc(n)
}

// Free gives memory of Alloc back. No operation may use it any more.
func (e *Engine) Free(p tensor.Ptr) error {
	h := e.mem.Load()
	if h == nil {
		return errors.New("tcp: no shared memory")
	}
	return h.Free(p)
}

// shared is a group whose members, all on one host, exchange data through memory. Failures travel as in any other group.
type shared struct {
	*group
	end *shm.End
}

// openShared makes g a group over shared memory.
func (e *Engine) openShared(g *group, spec backend.Spec, h *shm.Host) (*shared, error) {
	end, err := h.Open(spec, g.key.gen)
	if err != nil {
		return nil, err
	}
	s := &shared{g, end}
	g.mu.Lock()
	g.mem = s
	failed := g.err != nil
	g.mu.Unlock()
	if failed { // before it was opened here
		end.Fail()
	}
	for _, p := range g.peers {
		if p != nil {
			g.checkForced(p)
		}
	}
	return s, nil
}

// sendForced tells the members that this rank opens the group over messages, for an algorithm that is forced here. Those
// for whom it is not would wait for each other.
func (g *group) sendForced() {
	for _, p := range g.peers {
		if p != nil {
			p.link.post(&header{typ: frameForced, gen: g.key.gen, group: g.key.id}, []byte(g.spec.Messages))
		}
	}
}

// receiveForced handles a member's word that it opens the group over messages.
func (g *group) receiveForced(p *pipe, algorithm string) {
	g.mu.Lock()
	p.forced = algorithm[:min(len(algorithm), 64)]
	g.mu.Unlock()
	g.checkForced(p)
}

// checkForced fails the group when this rank has it in shared memory and the peer has not.
func (g *group) checkForced(p *pipe) {
	g.mu.Lock()
	differ := g.mem != nil && p.forced != ""
	err := &backend.Error{Rank: p.link.peer.Rank, Host: p.link.peer.where(), Group: g.spec.Name,
		Want: fmt.Sprintf("algorithm %q over messages (rank %d)", p.forced, p.link.peer.Rank),
		Got:  fmt.Sprintf("%q in shared memory (rank %d)", "direct", g.e.cfg.Rank), Cause: errors.New("force one on all ranks, or on none")}
	g.mu.Unlock()
	if differ {
		g.fail(err, true)
	}
}

// Name returns "shm".
func (s *shared) Name() string { return "shm" }

// Caps says what shared memory can do. The rank itself moves the data.
func (s *shared) Caps() backend.Caps {
	c := s.group.Caps()
	c.Async = false
	return c
}

// Algorithms returns the names that Op.Algo may have.
func (s *shared) Algorithms() []string { return []string{"direct"} }

// Choice returns "direct".
func (s *shared) Choice(*backend.Op) string { return "direct" }

// Counters returns the bytes that this rank has read from and written to the memory of peers.
func (s *shared) Counters() *backend.Counters { return s.end.Counters() }

// Issue posts op for the peers.
func (s *shared) Issue(op *backend.Op) error {
	s.mu.Lock()
	err := s.admit(op)
	if err == nil && op.Algo != "" && op.Algo != "direct" && op.Algo != backend.RankOrder {
		err = s.opError(op, fmt.Errorf("algorithm %q cannot do %v in shared memory, which has: direct", op.Algo, op.Kind))
	}
	if err == nil {
		s.remember(op)
	}
	s.mu.Unlock()
	if err == nil {
		s.end.Start(op)
	}
	return err
}

// Progress moves a few blocks of the oldest operation. An error shows only when no peer touches a buffer any more.
func (s *shared) Progress() (uint64, error) {
	done, err := s.end.Step()
	if s.advance(done) || err == nil && !s.end.Failed() && !s.goodbyes.Load() {
		return done, nil
	}
	if err != nil {
		s.fail(s.opError(s.current(), err), true)
	} else if !s.end.Failed() {
		s.deserted()
	}
	err = s.failure()
	if err != nil {
		done, _ = s.end.Step() // waits for the peers
		s.advance(done)
	}
	return done, err
}

// advance notes that operations up to done are over.
func (s *shared) advance(done uint64) bool {
	if done == s.seen {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen, s.done = done, done
	s.wakeAll()
	return true
}

// current returns the operation that is in progress.
func (s *shared) current() *backend.Op {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &s.ops.At(s.done + 1).Copy
}

// deserted fails the group when a peer will never issue the operation in progress.
func (s *shared) deserted() {
	s.mu.Lock()
	seq, waiting := s.done+1, s.issued > s.done
	s.mu.Unlock()
	if err := s.group.Deserted(seq); waiting && err != nil {
		s.fail(err, true)
	}
}

// Park sleeps until something happened in any group of this rank.
func (s *shared) Park(ctx context.Context, _ uint64) error { return s.e.Park(ctx) }

// Suspects returns the ranks that operation seq waits for. One whose process does not answer is not just absent, and those
// that have begun the operation, and answer, wait for it too.
func (s *shared) Suspects(seq uint64) (absent, stalled []int) {
	missing, stalled := s.end.Suspects(seq)
	s.mu.Lock()
	monitors := s.monitors(seq)
	s.mu.Unlock()
	if monitors {
		return missing, stalled
	}
	_, silent := s.ask(seq)
	var lost []int
	for _, i := range missing {
		if slices.Contains(silent, i) {
			lost = append(lost, i)
		} else {
			absent = append(absent, i)
		}
	}
	if len(lost) > 0 {
		stalled = slices.DeleteFunc(stalled, func(i int) bool { return !slices.Contains(silent, i) })
	}
	return absent, append(stalled, lost...)
}

// HasPosted reports whether the peer of a point-to-point group has started its operation seq.
func (s *shared) HasPosted(seq uint64) bool { return s.end.Reached(1-s.spec.Rank, seq) }

// Abort fails the group on all ranks. Progress then waits until no peer touches this rank's buffers.
func (s *shared) Abort(cause error) error {
	if cause == nil {
		cause = errors.New("aborted")
	}
	s.fail(cause, true)
	return nil
}

// drain drives the group until no operation is in flight, it has failed, or the deadline is over.
func (s *shared) drain(deadline time.Time) {
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	for {
		done, err := s.Progress()
		if issued, _ := s.progress(); err != nil || done == issued {
			return
		}
		if s.Park(ctx, done+1) != nil {
			s.fail(errors.New("closed with operations in flight"), true)
		}
	}
}

// Close leaves the group. Peers may still finish their part.
func (s *shared) Close() error {
	err := s.group.Close()
	s.end.Close()
	return err
}
