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

// drainMax is how much is read from a pipe after its worker has ended. No pipe holds more, but a process that left the
// worker's process group may still write to it.
const drainMax = 1 << 20

var processStart = time.Now()

// uptime returns how long this process has run, by a clock that nobody can set.
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
	worked        atomic.Bool   // it got further
	outputDone    chan struct{} // closed when all output is passed on

	killed  bool          // by the agent; only the agent's goroutine uses it
	silence time.Duration // from the last heartbeat until it was killed; 0 if there was no heartbeat

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

// startProc starts a worker and watches it. The calling thread must live longer than the worker.
func startProc(a *agent, local int, env []string, listener *os.File) (*proc, error) {
	rank := a.start.First + local
	cmd := exec.Command(a.config.Args[0], a.config.Args[1:]...)
	cmd.SysProcAttr = workerAttr()
	cmd.Env = append(env[:len(env):len(env)], fmt.Sprintf("RINGO_RANK=%d", rank), fmt.Sprintf("RINGO_LOCAL_RANK=%d", local))
	log, err := a.openLog(rank, "log")
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
	p := &proc{local: local, rank: rank, start: a.start, cmd: cmd, conn: conn, pipes: [2]*os.File{stdout, stderr},
		outputDone: make(chan struct{})}
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

// openLog creates a log file of a rank; it returns nil if no log is wanted. The file is always new: an existing file of an
// earlier job, or a link, stays as it is.
func (a *agent) openLog(rank int, ending string) (*os.File, error) {
	if a.config.LogDir == "" {
		return nil, nil
	}
	dir := filepath.Join(a.config.LogDir, "job-"+url.PathEscape(a.start.Job))
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	name := fmt.Sprintf("generation-%d-rank-%d", a.start.Gen, rank)
	f, err := os.OpenFile(filepath.Join(dir, name+"."+ending), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	for i := 2; errors.Is(err, os.ErrExist); i++ {
		f, err = os.OpenFile(filepath.Join(dir, fmt.Sprintf("%s.%d.%s", name, i, ending)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	}
	return f, err
}

func closeFiles(files ...*os.File) {
	for _, f := range files {
		f.Close() // a nil file is an error, not a panic
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

// watch starts the goroutines that read from the worker. They end after the worker. The last event says that it has ended.
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
			_, _ = io.Copy(io.MultiWriter(file, screen), &drainReader{from: p.pipes[i]}) // a lineWriter never fails; errors of the pipe mean its end
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

// drainReader reads what a worker writes. A read deadline means that the worker has ended. Then drainReader reads what is
// still in the pipe, and returns EOF. It does not wait for the pipe to be closed: a process that left the worker's process
// group may hold the other end open.
type drainReader struct {
	from interface {
		io.Reader
		syscall.Conn
	}
	ended bool
	read  int // bytes since then
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
	failed := raw.Control(func(fd uintptr) { // not raw.Read, which fails after the deadline
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

// watchWriter gives the output of a rank to the Watcher.
type watchWriter struct {
	watcher   Watcher
	gen, rank int
}

// Write gets whole lines.
func (w watchWriter) Write(lines []byte) (int, error) {
	w.watcher.Printed(w.gen, w.rank, lines)
	return len(lines), nil
}

// forwardShow sends a report of the worker to the Watcher. The byte that it writes back asks the worker for the next report.
// The socket has room for this byte, because the worker reads all of them.
func (p *proc) forwardShow(a *agent, report []byte) {
	if a.config.Watch != nil {
		a.config.Watch.Shown(p.start.Gen, p.rank, report)
	} else {
		a.wire.send(note{Show: &shown{Gen: p.start.Gen, Rank: p.rank, What: report}})
	}
	p.write(showTaken)
}

// write sends a byte to the worker.
func (p *proc) write(b byte) { _, _ = p.conn.Write([]byte{b}) } // fails if the worker has ended

// readReports reads the worker's messages, passes reports on, and notes the time of heartbeats.
func (p *proc) readReports(a *agent) {
	for in := json.NewDecoder(&drainReader{from: p.conn}); ; {
		var m message
		if err := in.Decode(&m); err != nil {
			return
		}
		p.lastHeartbeat.Store(int64(uptime()))
		if m.Work {
			p.worked.Store(true)
		}
		switch {
		case m.Kind != "" || m.Step != nil || m.State != nil || len(m.Without)+len(m.Late) > 0:
			a.events <- event{local: p.local, report: &m}
		case len(m.Show) > 0 && len(m.Show) <= maxShow && p.start.Watch:
			p.forwardShow(a, m.Show)
		}
	}
}

// reap kills the rest of the worker's process group after the worker has ended, and takes its status.
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

// isSilent reports whether the worker has stopped to send heartbeats. Some programs never send any.
func (p *proc) isSilent() bool {
	last := p.lastHeartbeat.Load()
	return last != 0 && uptime()-time.Duration(last) > silentAfter
}

// kill kills the worker, unless it has ended.
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
