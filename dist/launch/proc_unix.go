//go:build linux || darwin

package launch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// drainMax bounds what is read from a dead worker: no pipe holds more, but something that left the worker's process group
// may go on writing.
const drainMax = 1 << 20

var processStart = time.Now()

// uptime is how long this process has run, whatever is done to the clock on the wall.
func uptime() time.Duration { return time.Since(processStart) }

// procFiles is how many descriptors a worker takes here: its socket, two pipes, its log, and a handle.
const procFiles = 5

// proc is one worker process.
type proc struct {
	local         int // its number on this host
	rank          int // in the world
	start         start
	cmd           *exec.Cmd
	conn          *net.UnixConn // the agent's end of the socket
	pipes         [2]*os.File   // read ends of stdout and stderr
	lastHeartbeat atomic.Int64  // uptime at the last message; 0 before the first
	outputDone    chan struct{} // closed when all output is passed on

	killed  bool          // by the agent; only the agent's goroutine touches it
	silence time.Duration // before that; 0 when the worker never gave a sign of life

	mu     sync.Mutex
	reaped bool
}

// event is what the agent learns about a worker: a message, or its end.
type event struct {
	local  int
	report *message
	ended  bool
	status syscall.WaitStatus
}

// startProc forks a worker and watches it. The calling thread must outlive it.
func startProc(a *agent, local int, env []string, listener *os.File) (*proc, error) {
	rank := a.start.First + local
	cmd := exec.Command(a.config.Args[0], a.config.Args[1:]...)
	cmd.SysProcAttr = workerAttr()
	cmd.Env = append(env[:len(env):len(env)], fmt.Sprintf("RINGO_RANK=%d", rank), fmt.Sprintf("RINGO_LOCAL_RANK=%d", local))
	log, err := a.openLog(rank)
	if err != nil {
		return nil, err
	}
	conn, theirs, err := socketPair()
	if err != nil {
		closeFiles(log)
		return nil, err
	}
	if a.start.Watch {
		setShowBuffers(conn)
	}
	stdout, cmdStdout, err := os.Pipe()
	stderr, cmdStderr, err2 := os.Pipe()
	defer closeFiles(theirs, cmdStdout, cmdStderr)
	p := &proc{local: local, rank: rank, start: a.start, cmd: cmd, conn: conn, pipes: [2]*os.File{stdout, stderr}, outputDone: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = cmdStdout, cmdStderr
	cmd.ExtraFiles = []*os.File{theirs}
	if rank == 0 {
		cmd.ExtraFiles = append(cmd.ExtraFiles, listener)
		cmd.Env = append(cmd.Env, fmt.Sprintf("RINGO_LISTEN_FD=%d", listenFD))
	}
	if err = errors.Join(err, err2); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		closeFiles(stdout, stderr, log)
		conn.Close()
		return nil, err
	}
	p.watch(a, log)
	return p, nil
}

// openLog makes the file that keeps the output of a rank, nil when nobody asked for it. It is always a new one: what is there, a
// link or the file of an earlier job of this name, stays as it is.
func (a *agent) openLog(rank int) (*os.File, error) {
	if a.config.LogDir == "" {
		return nil, nil
	}
	dir := filepath.Join(a.config.LogDir, "job-"+url.PathEscape(a.start.Job))
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	name := fmt.Sprintf("generation-%d-rank-%d", a.start.Gen, rank)
	f, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	for i := 2; errors.Is(err, os.ErrExist); i++ {
		f, err = os.OpenFile(filepath.Join(dir, fmt.Sprintf("%s.%d.log", name, i)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	}
	return f, err
}

func closeFiles(files ...*os.File) {
	for _, f := range files {
		f.Close() // of a nil file it is an error, no panic
	}
}

// socketPair returns the agent's end and the worker's.
func socketPair() (*net.UnixConn, *os.File, error) {
	syscall.ForkLock.RLock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "worker"), os.NewFile(uintptr(fds[1]), "agent")
	defer ours.Close()
	conn, err := net.FileConn(ours) // a copy
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return conn.(*net.UnixConn), theirs, nil
}

// watch starts the goroutines that read from the worker. They end after the worker did; its end is the last event.
func (p *proc) watch(a *agent, log *os.File) {
	var printers, reader sync.WaitGroup
	prefix := fmt.Sprintf("[%d] ", p.rank)
	if a.config.Raw {
		prefix = ""
	}
	var both output // stdout and stderr share the log
	for i, to := range []io.Writer{a.config.Stdout, a.config.Stderr} {
		screen, file := &lineWriter{out: &a.output, to: to, prefix: prefix}, &lineWriter{out: &both, to: io.Discard}
		if log != nil {
			file.to = log
		}
		if a.config.Watch != nil {
			file.to = io.MultiWriter(watchWriter{a.config.Watch, p.start.Gen, p.rank}, file.to)
		}
		printers.Go(func() {
			_, _ = io.Copy(io.MultiWriter(file, screen), &drainReader{from: p.pipes[i]}) // a lineWriter never fails, and the end says all
			file.Flush()
			screen.Flush()
			p.pipes[i].Close()
		})
	}
	reader.Go(func() { p.readReports(a) })
	go func() {
		printers.Wait()
		if log != nil {
			a.output.fail(errors.Join(both.err, log.Close()))
		}
		close(p.outputDone)
	}()
	go func() {
		awaitExit(p.cmd)
		status := p.reap()
		now := time.Now()
		for _, f := range p.pipes {
			_ = f.SetReadDeadline(now)
		}
		_ = p.conn.SetReadDeadline(now)
		reader.Wait()
		p.conn.Close()
		a.events <- event{local: p.local, ended: true, status: status}
	}()
}

// drainReader reads from a worker. A deadline says that the worker is dead: what it wrote is there, and all of it is read,
// however late that happens. Then comes the end, though something that left the worker's process group may still hold the
// other side open.
type drainReader struct {
	from interface {
		io.Reader
		syscall.Conn
	}
	ended bool
	read  int // since
}

func (u *drainReader) Read(b []byte) (n int, err error) {
	if !u.ended {
		if n, err = u.from.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		u.ended = true
	}
	raw, err := u.from.SyscallConn()
	if err != nil {
		return 0, err
	}
	failed := raw.Control(func(fd uintptr) { // raw.Read would heed the deadline
		for {
			if n, err = syscall.Read(int(fd), b[:min(len(b), drainMax-u.read)]); err != syscall.EINTR {
				return
			}
		}
	})
	if failed != nil || err != nil || n <= 0 { // EAGAIN: it is empty
		return 0, io.EOF
	}
	u.read += n
	return n, nil
}

// watchWriter is where what a rank prints goes for whoever watches the job.
type watchWriter struct {
	watcher   Watcher
	gen, rank int
}

// Write passes on whole lines.
func (w watchWriter) Write(lines []byte) (int, error) {
	w.watcher.Printed(w.gen, w.rank, lines)
	return len(lines), nil
}

// forwardShow passes on a report for whoever watches the job. The byte asks for the next one; the worker waits for nothing, so the
// socket has room for it.
func (p *proc) forwardShow(a *agent, report []byte) {
	if a.config.Watch != nil {
		a.config.Watch.Shown(p.start.Gen, p.rank, report)
	} else {
		a.wire.send(note{Show: &shown{Gen: p.start.Gen, Rank: p.rank, What: report}})
	}
	_, _ = p.conn.Write([]byte{1}) // a worker that has ended needs none
}

// readReports passes on what the worker says and notes its heartbeats.
func (p *proc) readReports(a *agent) {
	for in := json.NewDecoder(&drainReader{from: p.conn}); ; {
		var m message
		if err := in.Decode(&m); err != nil {
			return
		}
		p.lastHeartbeat.Store(int64(uptime()))
		switch {
		case m.Kind != "" || m.Step != nil || len(m.Without) > 0:
			a.events <- event{local: p.local, report: &m}
		case len(m.Show) > 0 && len(m.Show) <= maxShow && p.start.Watch:
			p.forwardShow(a, m.Show)
		}
	}
}

// reap ends what the dead worker left in its process group, and takes its status.
func (p *proc) reap() syscall.WaitStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	_ = p.cmd.Wait() // the status is in ProcessState
	p.reaped = true
	status, _ := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return status
}

// signal sends a signal to the worker's process group, unless the worker has ended.
func (p *proc) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		_ = syscall.Kill(-p.cmd.Process.Pid, s)
	}
}

func (p *proc) isReaped() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reaped
}

// isSilent reports whether the worker has stopped giving signs of life; some programs never give any.
func (p *proc) isSilent() bool {
	last := p.lastHeartbeat.Load()
	return last != 0 && uptime()-time.Duration(last) > silentAfter
}

// kill ends the worker, unless it has ended.
func (p *proc) kill() {
	if p.isReaped() || p.killed {
		return
	}
	p.killed = true
	if last := p.lastHeartbeat.Load(); last != 0 {
		p.silence = uptime() - time.Duration(last)
	}
	p.signal(syscall.SIGKILL)
}
