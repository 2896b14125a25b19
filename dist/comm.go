package dist

import (
	"context"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/trace"
	"github.com/ringo-ml/ringo/internal/wait"
	"github.com/ringo-ml/ringo/tensor"
)

// comm is the communication of one rank: its engine and all its lanes. A wait for any operation drives all lanes of the rank in turn.
// Otherwise two ranks that wait for two groups in different order would wait for each other forever. If two goroutines of a rank wait
// (for different groups), one sleeps in the engine and drives, and the other sleeps on its lane until the first wakes it.
type comm struct {
	engine  backend.Engine
	rank    int // in the world
	policy  wait.Policy
	trace   *trace.Recorder
	base    time.Time
	dropped dropped
	world   atomic.Pointer[Group] // atomic: other ranks of this process abort it without c.mu
	dev     tensor.Device
	grapher tensor.Grapher  // dev, if it records steps
	labels  context.Context // of the rank's goroutines, for profiles

	mu         sync.Mutex
	lanes      []*lane // all open ones
	active     []*lane // those with operations in flight
	busy       atomic.Int32
	driven     int  // open lanes that do not move by themselves
	leader     bool // a goroutine sleeps in the engine
	waiters    int  // lanes whose waiting is set
	receivers  []*lane
	unreported []*group // failed with operations in flight; perhaps reported since
	spares     []spare
	entries    [flightSize]flightEntry
	entryCount int
	usage      [backend.NumKinds]usage // its wire counts closed lanes only

	atEnd    []func(ctx context.Context) error // what AtEnd registered
	tellLost func(ranks []int) error           // tells the launcher which ranks are lost; nil: no launcher
	tellLate func(ranks []int)                 // is told for which ranks an operation waited in vain
	warnOnce *sync.Once                        // for warnUnwaited
}

// drive makes one step on every lane with operations in flight. It reports whether an operation finished.
func (c *comm) drive() bool {
	moved := false
	for i := 0; i < len(c.active); {
		l := c.active[i]
		if l.advance() {
			moved = true
		}
		if !l.idle() {
			i++
			continue
		}
		// advance may fail the group, but this changes only flags of lanes: only drive changes the list.
		l.active = false
		last := len(c.active) - 1
		c.active[i] = c.active[last]
		c.active = c.active[:last]
		c.busy.Store(int32(last))
	}
	for _, l := range c.receivers {
		l.notify()
	}
	return moved
}

// activate puts a lane with operations in flight on the list.
func (c *comm) activate(l *lane) {
	if !l.active {
		l.active = true
		c.active = append(c.active, l)
		c.busy.Store(int32(len(c.active)))
	}
}

// pollSteps is how many steps one poll makes. With so many, a unit or a bucket of some MiB is moved within a few nodes. Then ranks that
// are not at the same point of their step do not wait for each other where it is used.
const pollSteps = 8

// poll makes some steps, unless another goroutine makes them. Tapes call it once for each node.
func (c *comm) poll() {
	if c.busy.Load() > 0 && c.mu.TryLock() {
		for k := 0; k < pollSteps && c.busy.Load() > 0; k++ {
			c.drive()
		}
		c.mu.Unlock()
	}
}

// wait blocks until operation seq of l is over. c.mu must be held; it is unlocked during sleep. The result is the operation's, or
// ctx.Err() if ctx ended first. With order it is enough that the device waits for the operation.
func (c *comm) wait(ctx context.Context, l *lane, seq uint64, order bool) error {
	return c.waitFor(ctx, l, l, seq, order)
}

// waitFor is wait on behalf of lane by, which belongs to the calling goroutine: its timer and its wake channel are used. Lane l may
// belong to another goroutine, which may wait, too.
func (c *comm) waitFor(ctx context.Context, by, l *lane, seq uint64, order bool) (err error) {
	spin := c.policy.Start()
	armed, start, kind, labeled := false, c.now(), l.kindOf(seq), uint64(0)
	var waited trace.Span
	if c.trace != nil {
		waited = c.waitOf(l, seq)
	}
	if by != l {
		l.waiters++
	}
	defer func() {
		end := max(l.lastProgress, start)
		if err != nil {
			end = c.now()
		}
		l.g.waited += time.Duration(end - start)
		c.usage[kind].waited += end - start
		if c.trace != nil && end > start {
			waited.Start, waited.End = start, end
			c.trace.Add(waited)
		}
		if by != l {
			l.waiters--
		}
		if armed {
			by.deadline.clear()
		}
		if labeled > 0 {
			pprof.SetGoroutineLabels(c.labels)
		}
		if !c.leader {
			c.promote()
		}
	}()
	for {
		moved := c.drive()
		if moved {
			spin.Reset()
		}
		if over, err := l.result(seq); over {
			return err
		}
		if order && l.order(seq) {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if moved { // perhaps the last part of a batch, which the next iteration sees
			continue
		}
		if on, _ := l.current(); !on.async && spin.Again() {
			c.mu.Unlock()
			c.mu.Lock()
			continue
		}
		if !armed {
			l.lastProgress, armed = c.now(), true
		}
		if err := c.park(ctx, l.arm(by), by, l); err != nil && ctx.Err() == nil {
			l.expire(by)
			labeled = l.label(labeled, start)
		}
	}
}

// park sleeps until something happens or one of the contexts ends. c.mu is unlocked during sleep.
func (c *comm) park(ctx, deadline context.Context, by, l *lane) error {
	on, seq := l.current()
	if on.be == nil { // a batch whose parts are over: the next iteration sees it
		return nil
	}
	sleep := deadline
	if ctx.Done() != nil {
		both, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(deadline, cancel)()
		sleep = both
	}
	if c.driven > 0 {
		return c.parkAny(sleep, by)
	}
	c.mu.Unlock()
	err := on.be.Park(sleep, seq)
	c.mu.Lock()
	return err
}

// parkAny sleeps until anything happens on this rank. An operation of another lane may need a step, because a peer waits for it before it
// does what the goroutine of l waits for.
func (c *comm) parkAny(ctx context.Context, l *lane) error {
	if c.leader {
		return c.follow(ctx, l)
	}
	c.leader = true
	c.mu.Unlock()
	err := c.engine.(backend.Parker).Park(ctx)
	c.mu.Lock()
	c.leader = false
	return err
}

// follow sleeps while another goroutine drives.
func (c *comm) follow(ctx context.Context, l *lane) error {
	l.waiting = true
	c.waiters++
	c.mu.Unlock()
	var err error
	select {
	case <-l.wake:
	case <-ctx.Done():
		err = ctx.Err()
	}
	c.mu.Lock()
	l.waiting = false
	c.waiters--
	return err
}

// promote wakes one goroutine that follows. It drives from now on.
func (c *comm) promote() {
	if c.waiters == 0 {
		return
	}
	for _, l := range c.lanes {
		if l.waiting {
			l.notify()
			return
		}
	}
}

func (c *comm) now() int64 {
	if c.trace != nil {
		return c.trace.Now()
	}
	return int64(time.Since(c.base))
}
