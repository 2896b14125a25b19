package mpi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/mpi"
	"github.com/ringo-ml/ringo/internal/wait"
)

// Engine is one rank's part in an MPI job. Join makes it.
type Engine struct {
	lib        *mpi.Lib
	limit      int // the largest count of a call
	rank, size int
	timeout    time.Duration
	processes  []string     // by rank: the host, and behind a comma the process
	ctl, data  uintptr      // communicators of all ranks: what ranks tell each other; Send
	group      uintptr      // MPI's group of all ranks
	calls      chan func()  // to the pinned goroutine
	wanted     atomic.Int32 // goroutines that wait for mu, and are not in Progress

	mu     sync.Mutex // whoever has it makes calls of MPI, unless away
	flag   int32      // MPI writes it
	away   string     // a call that may wait and is made without mu
	inbox  request
	letter []byte // the message that is read now
	active []*request
	spares []*request
	outbox []*request
	woken  bool   // a goroutine of an operation has something to do, or others shall have a turn
	moves  uint64 // how often an operation may have got further

	open    map[uint64]*endpoint
	ends    []*endpoint           // the same, in the order in which they were opened
	early   map[uint64][]*message // of groups that are not open here yet
	past    map[uint64]int        // closed here: how many members may still say something
	left    []bool                // ranks that issue nothing more, with this one
	tags    []int32               // by rank: of the next Send
	turn    []*endpoint           // groups whose communicator is to be made, see claim
	stepAt  time.Time             // of the last step
	turnAt  time.Time             // when others had a turn
	movedAt time.Time             // of the last step in which something got further
	failed  error                 // of the first group
	bye     error                 // why a rank ends without MPI_Finalize: so does this one
	frozen  error                 // no call of MPI may be made any more: it would go on with an operation that failed
	over    bool                  // MPI_Finalize was called, or is left out
}

// Name returns "mpi".
func (e *Engine) Name() string { return "mpi" }

// String says which library it is, with what thread level.
func (e *Engine) String() string {
	return fmt.Sprintf("%v, MPI_THREAD_SERIALIZED, %d ranks", e.lib, e.size)
}

var joined atomic.Bool // MPI can be initialized once in a process

// Join initializes MPI and returns the engine of this rank. size is the number of ranks that the launcher has started, or 0 if it does not
// tell. It waits for the other ranks.
func Join(timeout time.Duration, size int) (*Engine, error) {
	lib, err := mpi.Load()
	if err != nil {
		return nil, err
	}
	if joined.Swap(true) {
		return nil, errors.New("mpi: this process has been a rank of an MPI job: MPI cannot begin again after MPI_Finalize")
	}
	runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))) // with one, Go takes it away every 20 µs while MPI is in a call
	limit := map[bool]int{false: math.MaxInt32, true: math.MaxInt}[lib.Large]
	e := &Engine{lib: lib, limit: limit, timeout: timeout, calls: make(chan func()),
		open: map[uint64]*endpoint{}, early: map[uint64][]*message{}, past: map[uint64]int{}}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for ever: MPI_Finalize is for the thread of MPI_Init_thread
		err := e.begin(size)
		if done <- err; err == nil {
			e.keep()
		}
	}()
	if err := <-done; err != nil {
		return nil, err
	}
	return e, nil
}

// begin initializes MPI, and makes the communicators of the job.
func (e *Engine) begin(size int) error {
	if err := e.lib.Initialize(); err != nil {
		return err
	}
	all := e.lib.Of[mpi.World]
	rank, n := new(int32), new(int32)
	if err := errors.Join(e.lib.ReturnErrors(all), e.lib.Do("MPI_Comm_rank", all, uintptr(unsafe.Pointer(rank))),
		e.lib.Do("MPI_Comm_size", all, uintptr(unsafe.Pointer(n)))); err != nil {
		return err
	}
	if e.rank, e.size = int(*rank), int(*n); size > 0 && e.size != size {
		return fmt.Errorf("mpi: %v sees %d of the %d ranks: the mpiexec that started them belongs to another library; "+
			"use its own mpiexec, or set RINGO_MPI_LIB to the library of that mpiexec", e.lib, e.size, size)
	}
	e.left, e.tags = make([]bool, e.size), make([]int32, e.size)
	for _, c := range []*uintptr{&e.ctl, &e.data} {
		if err := e.lib.Do("MPI_Comm_dup", all, uintptr(unsafe.Pointer(c))); err != nil {
			return err
		}
		if err := e.lib.ReturnErrors(*c); err != nil {
			return err
		}
	}
	if err := e.lib.Do("MPI_Comm_group", e.data, uintptr(unsafe.Pointer(&e.group))); err != nil {
		return err
	}
	if err := e.gatherPlaces(); err != nil {
		return err
	}
	e.inbox, e.letter = request{own: make([]byte, maxMessage)}, make([]byte, maxMessage)
	e.listen()
	return e.inbox.err
}

// gatherPlaces finds out where all ranks are.
func (e *Engine) gatherPlaces() error {
	const each = 256
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	mine, all := make([]byte, each), make([]byte, each*e.size)
	copy(mine, fmt.Sprintf("%.200s, pid %d", host, os.Getpid()))
	if err := e.lib.Do("MPI_Allgather", uintptr(unsafe.Pointer(&mine[0])), each, e.lib.Of[mpi.Byte],
		uintptr(unsafe.Pointer(&all[0])), each, e.lib.Of[mpi.Byte], e.data); err != nil {
		return err
	}
	for place := range slices.Chunk(all, each) {
		e.processes = append(e.processes, string(bytes.TrimRight(place, "\x00")))
	}
	return nil
}

// lock is for goroutines that do not only look: they come before those that wait for operations.
func (e *Engine) lock() {
	e.wanted.Add(1)
	e.mu.Lock()
	e.wanted.Add(-1)
}

// callable reports whether a call of MPI may be made.
func (e *Engine) callable() bool { return e.away == "" && e.frozen == nil && !e.over }

// step lets MPI move data, handles messages, and does what can be done for b, or for all ends. e.mu is held.
func (e *Engine) step(b *endpoint) {
	if !e.callable() {
		return
	}
	moves := e.moves
	e.stepAt = time.Now()
	if e.stepAt.Sub(e.turnAt) > stretch {
		e.turnAt, e.woken = e.stepAt, true
	}
	if b == nil || b.request == nil || !b.request.hurry(e) {
		e.receive(b)
		e.testAll()
	}
	if b != nil {
		b.step()
	} else {
		for i := 0; i < len(e.ends); i++ { // the list may become longer or shorter
			e.ends[i].step()
		}
	}
	if e.moves != moves {
		e.movedAt = e.stepAt
	}
}

// Pauses of goroutines that wait. MPI cannot wake them.
const (
	spinTime = 5 * time.Millisecond   // while data moves, MPI moves it only as fast as it is asked
	soonTime = 200 * time.Microsecond // the next part of an operation is near: who naps makes the others nap
	soonest  = 20 * time.Microsecond
	latest   = 500 * time.Microsecond
	calm     = 2 * time.Millisecond  // of the pinned goroutine
	calmest  = 16 * time.Millisecond // of it, while others make steps
	stretch  = 4 * time.Millisecond  // Go stops who runs for 10 ms, and for a while looks after it every 20 µs
)

// Park sleeps until anything may have got further, or until ctx ends. It drives all operations of the rank.
func (e *Engine) Park(ctx context.Context) error {
	e.lock()
	moves := e.moves
	e.mu.Unlock()
	for pause, began := soonest, time.Now(); ctx.Err() == nil; {
		if e.wanted.Load() > 0 {
			runtime.Gosched()
		}
		e.mu.Lock()
		e.step(nil)
		moved, woken, moving := e.moves != moves || e.frozen != nil || e.over, e.woken, len(e.active) > 0
		soon := e.away == "" && e.stepAt.Sub(e.movedAt) < soonTime // away, no step is made, and its time stands still
		e.woken = false
		e.mu.Unlock()
		if moved || pause == latest { // what moved before this call is seen then, at the latest
			return nil
		}
		switch {
		case woken:
			runtime.Gosched()
		case soon || moving && time.Since(began) < spinTime:
			wait.Yield()
		default:
			wait.Nap(pause)
			pause = min(pause+pause/2, latest)
		}
	}
	return ctx.Err()
}

// keep is the pinned goroutine after MPI_Init_thread. It makes the calls that wait, and drives what nobody waits for.
func (e *Engine) keep() {
	pause := calm
	clock := time.NewTimer(pause)
	for {
		select {
		case call, open := <-e.calls:
			if !open {
				return
			}
			call()
		case <-clock.C:
			pause = e.look(pause)
			clock.Reset(pause)
		}
	}
}

// look makes a step if nobody else has, and returns when to look again. A goroutine that waits for an operation, and so makes steps, is
// left alone for longer and longer: whenever another one runs, it may lose its core.
func (e *Engine) look(pause time.Duration) time.Duration {
	pause = min(2*pause, calmest)
	if e.mu.TryLock() {
		defer e.mu.Unlock()
		if time.Since(e.stepAt) >= calm/2 {
			e.step(nil)
			pause = calm
		}
	}
	return pause
}

// Open makes this rank's end of a group.
func (e *Engine) Open(s backend.Spec) (backend.Backend, error) {
	if s.Rank < 0 || s.Rank >= len(s.Ranks) || s.Ranks[s.Rank] != e.rank {
		return nil, fmt.Errorf("mpi: rank %d opens group %s as rank %d of %v", e.rank, s.Name, s.Rank, s.Ranks)
	}
	if r := slices.Max(s.Ranks); r >= e.size || slices.Min(s.Ranks) < 0 {
		return nil, fmt.Errorf("mpi: group %s has rank %d, the job has %d ranks", s.Name, r, e.size)
	}
	e.lock()
	defer e.mu.Unlock()
	if _, closed := e.past[s.ID]; closed || e.open[s.ID] != nil {
		return nil, fmt.Errorf("mpi: group %s is opened twice", s.Name)
	}
	if e.over {
		return nil, errors.New("mpi: the engine is closed")
	}
	b := newEndpoint(e, s)
	e.open[s.ID] = b
	e.ends = append(e.ends, b)
	for _, r := range s.Ranks {
		if e.left[r] && r != e.rank {
			b.noteStop(r, 0, backend.ErrLeft)
		}
	}
	for _, m := range e.early[s.ID] {
		if m.kind == msgEnd && e.left[m.from] {
			b.stops[b.index(int(m.from))] = nil // msgLeft did not say after which operation: this does
		}
		b.dispatch(m)
	}
	delete(e.early, s.ID)
	if up := e.open[s.Parent]; up != nil && up.err != nil {
		b.fail(up.err, false)
	}
	if e.frozen != nil {
		b.fail(e.frozen, false)
	}
	return b, nil
}

// forget drops a closed end. Groups made from it become those of its parent, whose failure must reach them.
func (e *Engine) forget(b *endpoint, open int) {
	for _, c := range e.ends {
		if c.spec.Parent == b.spec.ID {
			c.spec.Parent = b.spec.Parent
		}
	}
	delete(e.open, b.spec.ID)
	e.ends = slices.DeleteFunc(e.ends, func(x *endpoint) bool { return x == b })
	if open > 0 {
		e.past[b.spec.ID] = open
	}
}

// failAll fails every group: MPI itself does not work any more.
func (e *Engine) failAll(cause error) {
	for _, b := range slices.Clone(e.ends) {
		b.fail(cause, true)
	}
}

// freeze is the end of this rank's part: MPI has begun an operation that failed, and cannot end it. All groups fail, and hear so. After
// that no call of MPI is made, because each may write to the memory of that operation.
func (e *Engine) freeze(cause *backend.Error) {
	why := fmt.Errorf("MPI cannot end an operation that has begun, so this rank can only end: %w", cause)
	for _, b := range e.ends {
		if b.err == nil {
			b.err = &backend.Error{Rank: e.rank, Host: e.processes[e.rank], Group: b.spec.Name, Seq: b.done, Cause: why}
			b.tellAbort(cause)
			b.wake()
		}
	}
	e.toAll(head{kind: msgBye}, []byte(cut(cause.Error())))
	e.frozen = why
}

// until makes steps until something is so, and reports whether it was within d. e.mu is held, but not while it sleeps.
func (e *Engine) until(d time.Duration, is func() bool) bool {
	for end := time.Now().Add(d); !is(); {
		if time.Now().After(end) {
			return false
		}
		e.step(nil)
		e.mu.Unlock()
		wait.Nap(soonest)
		e.lock()
	}
	return true
}

// Finish tells the others that this rank issues no operation any more.
func (e *Engine) Finish() {
	e.lock()
	defer e.mu.Unlock()
	for _, b := range e.ends {
		b.sendEnd(1)
	}
	e.left[e.rank] = true
	e.toAll(head{kind: msgLeft}, nil)
}

// toAll sends a message to all other ranks of the job.
func (e *Engine) toAll(h head, text []byte) {
	for r := range e.size {
		if r != e.rank {
			e.post(r, h, text)
		}
	}
}

// Close ends the rank's part in the job: together with the others by MPI_Finalize. If a rank has failed, nobody calls that, because it
// would wait for ranks that may have ended. mpiexec ends all processes when the first has ended so. So all return why.
func (e *Engine) Close() error {
	e.lock()
	defer e.mu.Unlock()
	if e.over {
		return nil
	}
	err := e.failed
	if e.left[e.rank] {
		err = e.rendezvous()
	}
	if e.left[e.rank] && err == nil {
		done := make(chan error, 1)
		e.mu.Unlock()
		e.calls <- func() { done <- e.finalize() }
		err = <-done
		close(e.calls)
		e.lock()
		return err
	}
	e.toAll(head{kind: msgBye}, []byte(cut(fmt.Sprint(cmp.Or(err, errEarly)))))
	e.until(100*time.Millisecond, func() bool { return !e.callable() || len(e.active) == 0 })
	e.over = true
	return err
}

var errEarly = errors.New("a rank has ended early")

// rendezvous waits until all ranks close the job. A rank that calls MPI_Finalize early would wait there, and would not answer.
func (e *Engine) rendezvous() error {
	r := &request{call: "MPI_Ibarrier"}
	if e.callable() {
		r.err = e.lib.Do(r.call, e.ctl, uintptr(unsafe.Pointer(&r.handle)))
		r.over = r.err != nil
	}
	over := e.until(e.timeout, func() bool { return cmp.Or(e.bye, e.frozen) != nil || e.test(r) })
	if err := cmp.Or(e.bye, e.frozen, r.err); over || err != nil {
		return err
	}
	return fmt.Errorf("mpi: not all ranks have ended within %v of rank %d", e.timeout, e.rank)
}

// finalize cancels the receive of messages and calls MPI_Finalize.
func (e *Engine) finalize() error {
	e.lock()
	defer e.mu.Unlock()
	if err := e.lib.Do("MPI_Cancel", uintptr(unsafe.Pointer(&e.inbox.handle))); err != nil {
		return err
	}
	for !e.test(&e.inbox) {
	}
	e.over = true
	return e.lib.Finalize()
}
