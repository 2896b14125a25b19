package nccl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/peer"
	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/nccl"
	"github.com/ringo-ml/ringo/internal/wait"
)

// Config is what an Engine works with.
type Config struct {
	// Control has met the other ranks. It belongs to the Engine from then on.
	Control backend.Engine
	// Device is the rank's GPU: one for each rank, unless NCCL_MULTI_RANK_GPU_ENABLE=1 is set (NCCL 2.30).
	Device *cuda.Device
	// Compute is the stream that produces what operations read, and waits for their results.
	Compute *cuda.Stream
}

// Engine is one rank's part in a job whose device memory NCCL moves.
type Engine struct {
	Config
	lib     *nccl.Lib
	pool    *cuda.Pool
	reduce  sync.Mutex // guards reducer
	reducer *peer.Reducer
	wg      sync.WaitGroup // goroutines: those that issue, aborts, and the end of communicators

	mu     sync.Mutex        // guards what follows, and all ends
	turn   *sync.Cond        // of the goroutines that issue, with mu
	ends   []*endpoint       // that are open
	splits map[uint64]*split // those of groups that are not open yet
	ticket uint64            // of the last operation that may be queued
	asking time.Time         // when the watcher's call began, of the driver or of NCCL; zero: it is in none
	closed bool
	asked  []*endpoint // of the watcher: whom it asks
	stand  *time.Timer // does the watcher's work while that is in a call

	bell     sync.Mutex // guards what follows
	signaled bool
	wake     context.CancelFunc // of the goroutine in Park
	stir     chan struct{}      // there is something to watch
	quit     chan struct{}
	ended    chan struct{}
}

// New makes the engine of a rank. The error says what is missing.
func New(c Config) (*Engine, error) {
	lib, err := nccl.Load()
	if err != nil {
		return nil, err
	}
	if os.Getenv("NCCL_COMM_BLOCKING") == "0" {
		return nil,
			errors.New("nccl: NCCL_COMM_BLOCKING=0 makes calls return before an operation is queued, and what waits for it would not: unset it")
	}
	if os.Getenv("NCCL_COMM_SPLIT_SHARE_RESOURCES") == "1" {
		return nil, errors.New(
			"nccl: with NCCL_COMM_SPLIT_SHARE_RESOURCES=1 an abort of one group also ends the operations of another, with wrong results: unset it")
	}
	reducer, err := peer.NewReducer(c.Device)
	if err != nil {
		return nil, err
	}
	e := &Engine{Config: c, lib: lib, splits: map[uint64]*split{}, reducer: reducer, pool: c.Device.NewPool("nccl"),
		stir: make(chan struct{}, 1), quit: make(chan struct{}), ended: make(chan struct{})}
	e.turn = sync.NewCond(&e.mu)
	e.stand = time.AfterFunc(calm, e.standIn)
	e.stand.Stop()
	go e.watch()
	return e, nil
}

// Name returns "nccl".
func (e *Engine) Name() string { return "nccl" }

// Version says which NCCL it is.
func (e *Engine) Version() string { return e.lib.String() }

// Open makes this rank's end of a group. The communicator is made by the group's first operation on device memory.
func (e *Engine) Open(s backend.Spec) (backend.Backend, error) {
	ctl, err := e.Control.Open(s)
	e.mu.Lock()
	defer e.mu.Unlock()
	from := e.splits[s.ID]
	delete(e.splits, s.ID)
	if err != nil {
		from.giveBack()
		return nil, err
	}
	b := &endpoint{e: e, spec: s, ctl: ctl, from: from, users: 1, quiet: make(chan struct{}), idle: make(chan struct{})}
	e.ends = append(e.ends, b)
	if b.from != nil {
		b.start()
	}
	return b, nil
}

// closeTime is how long Close waits for splits, and for NCCL to end communicators: their other ranks may be gone. A variable for tests.
var closeTime = 10 * time.Second

// Close ends the rank's part in the job.
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	for _, b := range slices.Clone(e.ends) {
		b.close()
	}
	for _, s := range e.splits { // of groups that were never opened
		s.giveBack()
	}
	clear(e.splits)
	e.mu.Unlock()
	done := make(chan error, 1)
	go func() { done <- e.end() }()
	var err error
	select {
	case err = <-done:
	case <-time.After(closeTime):
		err = e.giveUp()
	}
	return errors.Join(err, e.Control.Close())
}

// end waits until all ends have left and nobody makes a call any more. Then the memory is given back.
func (e *Engine) end() error {
	e.mu.Lock()
	for len(e.ends) > 0 {
		e.turn.Wait()
	}
	e.mu.Unlock()
	close(e.quit)
	<-e.ended
	e.wg.Wait()
	return e.onThread(e.pool.Close)
}

// giveUp fails what Close has waited for too long.
func (e *Engine) giveUp() error {
	err := fmt.Errorf("nccl: a call of the driver or of NCCL does not end within %v: communicators and memory are given back only after it",
		closeTime)
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, b := range e.ends {
		b.failSplit(err)
	}
	return err
}

// Crowd counts the ranks of this process that are awake; nil when the control engine does not.
func (e *Engine) Crowd() *wait.Crowd {
	if c, ok := e.Control.(backend.Crowder); ok {
		return c.Crowd()
	}
	return nil
}

// Finish tells the others that this rank issues no operation any more.
func (e *Engine) Finish() {
	if f, ok := e.Control.(backend.Finisher); ok {
		f.Finish()
	}
}

// Leave tells the others that this rank takes no part in Survivors any more.
func (e *Engine) Leave() {
	if l, ok := e.Control.(backend.Leaver); ok {
		l.Leave()
	}
}

// Survivors agrees with the other members of a failed group who is left.
func (e *Engine) Survivors(ctx context.Context, s backend.Spec, timeout time.Duration) ([]int, error) {
	r, ok := e.Control.(backend.Rebuilder)
	if !ok {
		return nil, fmt.Errorf("engine %s cannot rebuild a group", e.Control.Name())
	}
	return r.Survivors(ctx, s, timeout)
}

// Park sleeps until anything may have got further: on the device, or in the control engine.
func (e *Engine) Park(ctx context.Context) error {
	e.bell.Lock()
	if e.signaled {
		e.signaled = false
		e.bell.Unlock()
		return nil
	}
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	e.wake = cancel
	e.bell.Unlock()
	e.look()
	err := e.Control.(backend.Parker).Park(both)
	e.bell.Lock()
	e.wake, e.signaled = nil, false
	e.bell.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if both.Err() != nil {
		return nil
	}
	return err
}

// ring ends the current or the next Park.
func (e *Engine) ring() {
	e.bell.Lock()
	defer e.bell.Unlock()
	e.signaled = true
	if e.wake != nil {
		e.wake()
	}
}

// parked reports whether a goroutine waits in Park.
func (e *Engine) parked() bool {
	e.bell.Lock()
	defer e.bell.Unlock()
	return e.wake != nil
}

// look wakes the goroutine that watches.
func (e *Engine) look() {
	select {
	case e.stir <- struct{}{}:
	default:
	}
}

// onThread calls f with the device's context current.
func (e *Engine) onThread(f func() error) error {
	if err := e.Device.Lock(); err != nil {
		return err
	}
	defer e.Device.Unlock()
	return f()
}
