package launch

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	// maxNote is the longest note in bytes. The text of a report is cut to maxText before.
	maxNote = 1 << 20
	maxText = 64 << 10
	// maxQueuedShows is the length of the queue from which on reports for the Watcher are dropped.
	maxQueuedShows = 16
)

// wire is a connection between an agent and the coordinator. Notes are queued, so the sender never waits for a slow peer. A
// peer that is silent for the timeout is lost.
type wire struct {
	conn       net.Conn
	scanner    *bufio.Scanner
	timeout    time.Duration // 0 for ever: both ends are this process
	wakeup     chan struct{} // there is something in the queue
	writerDone chan struct{} // closed when the writer has ended

	mu      sync.Mutex
	queue   []note
	closing bool
}

func newWire(conn net.Conn, patience time.Duration) *wire {
	w := &wire{conn: conn, scanner: bufio.NewScanner(conn), timeout: patience, wakeup: make(chan struct{}, 1), writerDone: make(chan struct{})}
	w.scanner.Buffer(nil, maxNote)
	go w.write()
	return w
}

// send queues a note and never waits. If the peer is lost, the note is, too. Only the newest progress stays in the queue, and
// reports for the Watcher are dropped if the peer is slow.
func (w *wire) send(n note) {
	w.mu.Lock()
	last := len(w.queue) - 1
	switch {
	case n.Progress != nil && last >= 0 && w.queue[last].Progress != nil:
		w.queue[last] = n
	case n.Show == nil || len(w.queue) < maxQueuedShows:
		w.queue = append(w.queue, n)
	}
	w.mu.Unlock()
	w.wake()
}

// finish closes the connection after all notes are sent.
func (w *wire) finish() {
	w.mu.Lock()
	w.closing = true
	w.mu.Unlock()
	w.wake()
}

func (w *wire) wake() {
	select {
	case w.wakeup <- struct{}{}:
	default:
	}
}

// write sends the queued notes, and heartbeats.
func (w *wire) write() {
	defer close(w.writerDone)
	defer w.conn.Close() // ends the reader, too
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		w.mu.Lock()
		notes, closing := w.queue, w.closing
		w.queue = nil
		w.mu.Unlock()
		if len(notes) == 0 && !closing {
			select {
			case <-w.wakeup:
				continue
			case <-beat.C:
				notes = []note{{}}
			}
		}
		for _, n := range notes {
			if w.writeNote(n) != nil {
				return
			}
		}
		if closing {
			return
		}
	}
}

func (w *wire) writeNote(n note) error {
	line, err := json.Marshal(n)
	if err != nil {
		return err
	}
	if w.timeout > 0 {
		if err := w.conn.SetWriteDeadline(time.Now().Add(w.timeout)); err != nil {
			return err
		}
	}
	_, err = w.conn.Write(append(line, '\n'))
	return err
}

// read returns the next note, which may be a heartbeat. The error says why no more notes will come.
func (w *wire) read() (n note, err error) {
	if w.timeout > 0 {
		if err := w.conn.SetReadDeadline(time.Now().Add(w.timeout)); err != nil {
			return n, errEnded
		}
	}
	if !w.scanner.Scan() {
		return n, w.readError(w.scanner.Err())
	}
	err = json.Unmarshal(w.scanner.Bytes(), &n)
	return n, err
}

var errEnded = errors.New("the connection ended")

// readError makes the error of a read one that users understand.
func (w *wire) readError(err error) error {
	switch {
	case err == nil, errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), errors.Is(err, io.ErrClosedPipe),
		errors.Is(err, syscall.ECONNRESET):
		return errEnded
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("no heartbeat for %v", w.timeout)
	}
	return err
}
