package launch

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"time"
)

// Kind says how a rank's failure came about.
type Kind string

// A primary failure began on the rank that reports it: its function returned an error, it panicked, it misused an
// operation. An echo is the news of another rank's failure: a peer that died, an operation that another rank aborted.
const (
	Primary Kind = "primary"
	Echo    Kind = "echo"
)

const (
	// heartbeat is how often a worker tells its agent that it is alive.
	heartbeat = 500 * time.Millisecond
	// silentAfter is how long a worker says nothing before it counts as silent.
	silentAfter = 2 * heartbeat
)

// message is what a worker writes to its agent, one JSON object per line: a report if it has a kind, progress if it has a
// step, what Show was given, the ranks that it goes on without, a heartbeat otherwise.
type message struct {
	Kind Kind            `json:"kind,omitempty"`
	Rank int             `json:"rank"`
	Text string          `json:"text,omitempty"`
	Step *int            `json:"step,omitempty"`
	Show json.RawMessage `json:"show,omitempty"`

	Without []int `json:"without,omitempty"`
}

// Worker is a rank's connection to the agent that started it. A nil Worker, which every process has that no agent started,
// does nothing.
type Worker struct {
	conn  net.Conn
	lost  chan struct{}
	asked chan struct{} // holds a token when the agent has taken the last of Show; nil when nobody watches
	mu    sync.Mutex    // serializes writes
	line  []byte        // scratch of Progress
}

// connectOnce makes the process's only Worker: the descriptor can be taken once.
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
		return nil, fmt.Errorf("RINGO_AGENT_FD=%s (ringo): %w", s, err)
	}
	// A program that this process starts must not take another descriptor for the agent.
	return newWorker(conn, os.Getenv("RINGO_WATCHED") == "1"), os.Unsetenv("RINGO_AGENT_FD")
})

// ConnectAgent returns this process's connection to the agent that started it, and starts its heartbeats. It is nil,
// without an error, when RINGO_AGENT_FD is not set. Every call returns the same Worker; it lasts as long as the process.
// Programs that this process starts do not inherit the connection.
func ConnectAgent() (*Worker, error) { return connectOnce() }

// newWorker sends the first heartbeat before it returns: the agent knows from then on that the worker speaks to it.
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

// readAgent reads from the agent, which writes a byte for each message of Show that it has taken. Read ends when the agent does.
func (w *Worker) readAgent() {
	defer close(w.lost)
	for taken := make([]byte, 1); ; {
		if _, err := w.conn.Read(taken); err != nil {
			return
		}
		select {
		case w.asked <- struct{}{}:
		default: // nobody watches
		}
	}
}

func (w *Worker) sendHeartbeats() {
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if w.send(message{}) != nil {
				return
			}
		case <-w.lost:
			return
		}
	}
}

// ReportError tells the agent why this rank fails, before the process exits: rank is this rank, text the whole error.
// The agent prints the earliest primary failure of the job. ReportError returns when the agent's socket holds the
// message; later reports of the same rank do not replace the first.
func (w *Worker) ReportError(kind Kind, rank int, text string) error {
	if w == nil {
		return nil
	}
	if kind != Primary && kind != Echo {
		return fmt.Errorf("launch: report of unknown kind %q", kind)
	}
	return w.send(message{Kind: kind, Rank: rank, Text: text})
}

// Without tells the agent that this rank goes on in a new generation of its group, which others of the job are not in. With
// Config.Rebuild these are ended, and their failure is not that of the job. All ranks that go on say so.
func (w *Worker) Without(ranks []int) error {
	if w == nil {
		return nil
	}
	return w.send(message{Without: ranks})
}

// Progress tells the agent that this rank has completed a step, counted from 0 over the whole life of the job, restarts
// included. Call it on one rank, rank 0 of those that are left: a job that gets further than any generation before it may be restarted as often
// as at first. Progress allocates nothing.
func (w *Worker) Progress(step int) error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.line = append(strconv.AppendInt(append(w.line[:0], `{"step":`...), int64(step), 10), "}\n"...)
	return w.write(w.line)
}

// maxShow bounds what Show takes.
const maxShow = 64 << 10

// Asked holds a token when somebody watches the job (Config.Watch) and the agent has room for one call of Show. It is nil, a
// channel on which nothing ever arrives, when nobody watches.
func (w *Worker) Asked() <-chan struct{} {
	if w == nil {
		return nil
	}
	return w.asked
}

// Show sends a report of this rank, one JSON value of at most 64 KiB, to whoever watches the job. Call it once for each token
// from Asked: then the socket always has room, and a slow agent holds nobody up.
func (w *Worker) Show(report []byte) error {
	if len(report) > maxShow {
		return fmt.Errorf("launch: report of %d bytes, want at most %d", len(report), maxShow)
	}
	return w.send(message{Show: report})
}

// setShowBuffers makes the buffers of one end of a socket pair hold what Show sends; macOS' are small.
func setShowBuffers(conn net.Conn) {
	if c, ok := conn.(*net.UnixConn); ok {
		_ = errors.Join(c.SetReadBuffer(2*maxShow), c.SetWriteBuffer(2*maxShow)) // writes would wait for the agent, not fail
	}
}

// Lost is closed when the agent is gone: the job is over, the worker should abort and exit. For a nil Worker it is nil,
// a channel on which nothing ever arrives.
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

// write needs mu.
func (w *Worker) write(line []byte) error {
	// A stopped agent does not read; a rank that fails must exit all the same.
	if err := w.conn.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	_, err := w.conn.Write(line)
	return err
}

// inherited is the descriptor of rank 0's listening socket, once it was used.
var inherited struct {
	sync.Mutex
	fd   int
	addr string
}

// Listener returns rank 0's inherited listening socket, nil when there is none. Each call returns a listener of its own
// on the same socket; the inherited descriptor stays open, so the port is the job's as long as the process lives. It is closed
// in programs that this process starts; so they do not get RINGO_LISTEN_FD either.
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
		return nil, fmt.Errorf("RINGO_LISTEN_FD=%d (ringo): %w", fd, err)
	}
	inherited.fd, inherited.addr = fd, e.Addr
	if err := os.Unsetenv("RINGO_LISTEN_FD"); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}
