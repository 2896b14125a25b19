package launch

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/internal/nofile"
)

// Kind says how a rank's failure came about.
type Kind string

// A primary failure began on the rank that reports it: its function returned an error, or panicked, or misused an operation.
// An echo follows from the failure of another rank: a peer died, or another rank aborted an operation.
const (
	Primary Kind = "primary"
	Echo    Kind = "echo"
)

const (
	// heartbeat is how often a worker sends a heartbeat to its agent.
	heartbeat = 500 * time.Millisecond
	// silentAfter is the time without a message after which a worker counts as silent.
	silentAfter = 2 * heartbeat
)

// message is what a worker writes to its agent, one JSON object per line. With a kind it is a report of a failure, with a step
// progress. Otherwise it has what Show got, the ranks of Without or Late, or a state. An empty one is a heartbeat; with work, the worker
// has done something since the one before.
type message struct {
	Kind Kind            `json:"kind,omitempty"`
	Rank int             `json:"rank"`
	Text string          `json:"text,omitempty"`
	Step *int            `json:"step,omitempty"`
	Show json.RawMessage `json:"show,omitempty"`

	Without []int  `json:"without,omitempty"`
	Late    []int  `json:"late,omitempty"`
	State   *State `json:"state,omitempty"`
	Work    bool   `json:"work,omitempty"`
}

// State is what a rank does, for those who look for the cause of a failure.
type State struct {
	Last  string `json:"last,omitempty"`  // its last operations, one on a line
	Stack string `json:"stack,omitempty"` // of the goroutine of its function; "" if that is over
	All   string `json:"all,omitempty"`   // the stacks of all goroutines
}

// What the agent writes to a worker.
const (
	showTaken byte = 1 // it has read the last report of Show
	askState  byte = 2 // it asks for the State
)

// Worker is a rank's connection to the agent that started it. In a process that no agent started it is nil, and its methods do
// nothing.
type Worker struct {
	conn  net.Conn
	lost  chan struct{}
	asked chan struct{} // holds a token if the agent has read the last report of Show; nil without a Watcher
	mu    sync.Mutex    // serializes writes
	line  []byte        // scratch of Progress

	self atomic.Pointer[self]
}

// self is what Describe got.
type self struct {
	state func() State
	work  func() uint64
}

// connectOnce makes the only Worker of the process: the descriptor can be taken only once.
var connectOnce = sync.OnceValues(func() (*Worker, error) {
	s := os.Getenv("RINGO_AGENT_FD")
	if s == "" {
		return nil, nil
	}
	fd, err := strconv.Atoi(s)
	if err != nil || fd < 3 {
		return nil, fmt.Errorf("RINGO_AGENT_FD=%s (ringo): not an inherited descriptor", s)
	}
	conn, err := takeConn(fd)
	if err != nil {
		return nil, fmt.Errorf("RINGO_AGENT_FD=%s (ringo): %w", s, nofile.Explain(err, "about 10 for a rank without its connections"))
	}
	// In a program that this process starts, the number means another descriptor.
	return newWorker(conn, os.Getenv("RINGO_WATCHED") == "1"), os.Unsetenv("RINGO_AGENT_FD")
})

// ConnectAgent returns this process's connection to the agent that started it, and starts to send heartbeats. If RINGO_AGENT_FD
// is not set, it returns nil and no error. Every call returns the same Worker. It lasts as long as the process. Programs that
// this process starts do not inherit the connection.
func ConnectAgent() (*Worker, error) { return connectOnce() }

// newWorker sends the first heartbeat before it returns. From then on the agent expects heartbeats.
func newWorker(conn net.Conn, watched bool) *Worker {
	w := &Worker{conn: conn, lost: make(chan struct{})}
	if watched {
		w.asked = make(chan struct{}, 1)
		w.asked <- struct{}{}
		setShowBuffers(conn)
	}
	go w.readAgent()
	if w.send(message{}) == nil {
		go w.sendHeartbeats()
	}
	return w
}

// readAgent reads what the agent writes: single bytes. It ends when the agent ends.
func (w *Worker) readAgent() {
	defer close(w.lost)
	for b := make([]byte, 1); ; {
		if _, err := w.conn.Read(b); err != nil {
			return
		}
		if b[0] == askState {
			go func() { _ = w.ReportState() }() // an agent that has ended needs no answer
			continue
		}
		select {
		case w.asked <- struct{}{}:
		default: // there is no Watcher
		}
	}
}

func (w *Worker) sendHeartbeats() {
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for before := uint64(0); ; {
		select {
		case <-tick.C:
			now := before
			if s := w.self.Load(); s != nil {
				now = s.work()
			}
			if w.send(message{Work: now != before}) != nil {
				return
			}
			before = now
		case <-w.lost:
			return
		}
	}
}

// ReportError tells the agent why this rank fails. Call it before the process exits. For a Primary failure, rank is this rank;
// for an Echo it is the rank that failed, or -1. Text is the whole error. The agent prints the earliest primary failure of the
// job. ReportError returns when the message is in the agent's socket. Only the first report of a rank counts.
func (w *Worker) ReportError(kind Kind, rank int, text string) error {
	if w == nil {
		return nil
	}
	if kind != Primary && kind != Echo {
		return fmt.Errorf("launch: report of unknown kind %q", kind)
	}
	return w.send(message{Kind: kind, Rank: rank, Text: text})
}

// Without tells the agent that this rank goes on in a new generation of its group, in which the given ranks are not. With
// Config.Rebuild, these are killed, and the job does not fail because of them. All ranks that go on call it.
func (w *Worker) Without(ranks []int) error {
	if w == nil {
		return nil
	}
	return w.send(message{Without: ranks})
}

// Late tells the agent that an operation waited in vain for these ranks. Those that are alive are asked for their State, and the agents
// print it.
func (w *Worker) Late(ranks []int) { _ = w.send(message{Late: ranks}) }

// Describe says how to learn what this rank does. Other goroutines call both functions: state when the agent asks, and work with each
// heartbeat. The result of work differs from that before if the rank got further.
func (w *Worker) Describe(state func() State, work func() uint64) { w.self.Store(&self{state, work}) }

// ReportState sends the State of this rank to its agent, which keeps it in Config.LogDir.
func (w *Worker) ReportState() error {
	if w == nil {
		return nil
	}
	s := w.self.Load()
	if s == nil { // the rank has not joined the others yet
		return nil
	}
	state := s.state()
	for _, text := range []*string{&state.Last, &state.Stack, &state.All} {
		*text = (*text)[:min(len(*text), maxText)]
	}
	return w.send(message{State: &state})
}

// Progress tells the agent that this rank has completed a step. Steps count from 0 over the whole job, restarts included. Call
// it on one rank: rank 0 of those that are left. If a generation gets further than all before it, the job has all its restarts
// again. Progress allocates nothing.
func (w *Worker) Progress(step int) error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.line = append(strconv.AppendInt(append(w.line[:0], `{"step":`...), int64(step), 10), "}\n"...)
	return w.write(w.line)
}

// maxShow is the longest report in bytes.
const maxShow = 64 << 10

// Asked returns a channel that holds a token if the job is watched (Config.Watch) and the agent has room for one call of Show.
// If nobody watches, it is nil: a channel that never has a token.
func (w *Worker) Asked() <-chan struct{} {
	if w == nil {
		return nil
	}
	return w.asked
}

// Show sends a report of this rank to the Watcher of the job: one JSON value of at most 64 KiB. Call it once for each token
// from Asked. Then the socket always has room, and no rank waits for a slow agent.
func (w *Worker) Show(report []byte) error {
	if len(report) > maxShow {
		return fmt.Errorf("launch: report of %d bytes, want at most %d", len(report), maxShow)
	}
	return w.send(message{Show: report})
}

// setShowBuffers makes the buffers of one end of a socket pair large enough for a report of Show. On macOS they are small.
func setShowBuffers(conn net.Conn) {
	if c, ok := conn.(*net.UnixConn); ok {
		_ = errors.Join(c.SetReadBuffer(2*maxShow), c.SetWriteBuffer(2*maxShow)) // without them, writes wait for the agent
	}
}

// Lost returns a channel that is closed when the agent has ended. Then the job is over: abort and exit. For a nil Worker it is
// nil: a channel that is never closed.
func (w *Worker) Lost() <-chan struct{} {
	if w == nil {
		return nil
	}
	return w.lost
}

func (w *Worker) send(m message) error {
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.write(append(line, '\n'))
}

// write is called with mu held.
func (w *Worker) write(line []byte) error {
	// A stopped agent does not read, but a rank that fails must exit.
	if err := w.conn.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	_, err := w.conn.Write(line)
	return err
}

// inherited is the descriptor of rank 0's listening socket, after its first use.
var inherited struct {
	sync.Mutex
	fd   int
	addr string
}

// Listener returns rank 0's inherited listening socket; nil if there is none. Each call returns another listener of the same
// socket. The inherited descriptor stays open, so the port belongs to the job as long as the process lives. Programs that this
// process starts get neither the descriptor nor RINGO_LISTEN_FD.
func (e Env) Listener() (net.Listener, error) {
	inherited.Lock()
	defer inherited.Unlock()
	fd := e.ListenFD
	if fd == 0 && e.Rank == 0 && e.Addr == inherited.addr {
		fd = inherited.fd // from an earlier call
	}
	if fd == 0 {
		return nil, nil
	}
	l, err := dupListener(fd)
	if err != nil {
		return nil, fmt.Errorf("RINGO_LISTEN_FD=%d (ringo): %w", fd, nofile.Explain(err, "about 10 for a rank without its connections"))
	}
	inherited.fd, inherited.addr = fd, e.Addr
	if err := os.Unsetenv("RINGO_LISTEN_FD"); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}
