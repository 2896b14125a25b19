//go:build linux || darwin

package launch

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// job is the supervisor's state; only Run's goroutine touches it, except output.
type job struct {
	config   *Config
	procs    []*proc
	events   chan event
	output   output
	live     int
	ranks    []outcome
	cause    *cause    // earliest primary failure
	echo     *cause    // earliest echo
	stopped  os.Signal // the signal that ended the job
	printed  bool      // all output is passed on, nobody uses output any more
	deadline *time.Timer
}

// outcome is what became of a rank.
type outcome struct {
	report  *message // its first
	failed  bool
	killed  bool // by this agent, because it did not end
	silence time.Duration
	heard   bool // silence means something
	status  syscall.WaitStatus
}

// cause is a failure: of rank, as the rank by tells it.
type cause struct {
	rank, by int
	text     string
}

// Run starts the ranks, waits for all of them and leaves no process of theirs. The error is an *ExitError when the job
// ran and did not end well, any other when it could not be started.
//
// After the first failure the other ranks have the timeout of an operation and 2 s to report and end; then they are
// killed. After a signal they have 5 s. What a worker leaves in its process group is killed when it ends.
func Run(c Config) error {
	if err := c.check(); err != nil {
		return err
	}
	if _, err := exec.LookPath(c.Args[0]); err != nil {
		return err
	}
	j := &job{config: &c, events: make(chan event), ranks: make([]outcome, c.Ranks), deadline: time.NewTimer(0)}
	j.deadline.Stop()
	done := make(chan struct{})
	defer close(done)
	startErr := make(chan error)
	go func() {
		// Linux kills a worker when the thread that forked it ends, so one thread forks and stays.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		startErr <- j.start()
		<-done
	}()
	if err := <-startErr; err != nil {
		j.killAll()
		j.supervise()
		return fmt.Errorf("launch: starting rank %d of %d: %w", len(j.procs), c.Ranks, err)
	}
	j.supervise()
	return j.result()
}

// start forks all workers. Rank 0 gets a listening socket, so no one else can take the port.
func (j *job) start() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	listener, err := l.(*net.TCPListener).File()
	if err != nil {
		return err
	}
	defer listener.Close()
	env := j.config.environment(l.Addr().String())
	for rank := range j.config.Ranks {
		p, err := startProc(rank, j, env, listener)
		if err != nil {
			return err
		}
		j.procs = append(j.procs, p)
		j.live++
	}
	return nil
}

// supervise returns when all workers have ended and their output is passed on.
func (j *job) supervise() {
	for j.live > 0 {
		select {
		case e := <-j.events:
			j.handle(e)
		case s := <-j.config.Signals:
			j.interrupt(s)
		case <-j.deadline.C:
			j.killAll()
		}
	}
	j.deadline.Stop()
	j.printed = j.awaitOutput()
}

// awaitOutput returns when all output is passed on. A reader such as a pager may take its time; a signal ends the
// waiting, which is then false.
func (j *job) awaitOutput() bool {
	var limit <-chan time.Time
	if j.stopped != nil {
		limit = time.After(lastOutput)
	}
	for _, p := range j.procs {
		select {
		case <-p.printed:
		case <-limit:
			return false
		case s := <-j.config.Signals:
			j.stopped = s
			return false
		}
	}
	return true
}

func (j *job) handle(e event) {
	r, p := &j.ranks[e.rank], j.procs[e.rank]
	pid := p.cmd.Process.Pid
	switch {
	case e.ended:
		j.live--
		r.status = e.status
		if r.report != nil || e.status == 0 {
			return
		}
		text := fmt.Sprintf("exited with status %d", e.status.ExitStatus())
		if e.status.Signaled() {
			text = fmt.Sprintf("was killed by signal %v", e.status.Signal())
		}
		if !r.killed {
			j.fail(Primary, cause{rank: e.rank, by: e.rank, text: fmt.Sprintf("rank %d (pid %d) %s", e.rank, pid, text)})
		}
	case r.report == nil:
		r.report = e.report
		c := cause{rank: e.rank, by: e.rank, text: fmt.Sprintf("rank %d (pid %d) failed: %s", e.rank, pid, e.report.Text)}
		if blamed := e.report.Rank; e.report.Kind == Echo && blamed != e.rank && blamed >= 0 && blamed < len(j.procs) {
			c.rank = blamed
			c.text = fmt.Sprintf("rank %d (pid %d) failed, as rank %d saw it: %s", blamed, j.procs[blamed].cmd.Process.Pid,
				e.rank, e.report.Text)
		}
		j.fail(e.report.Kind, c)
	}
}

// fail notes the failure of rank c.by and starts the countdown with the first one.
func (j *job) fail(kind Kind, c cause) {
	j.ranks[c.by].failed = true
	if j.stopped != nil {
		return
	}
	if j.cause == nil && j.echo == nil {
		j.deadline.Reset(j.config.patience())
	}
	switch {
	case kind == Primary && j.cause == nil:
		j.cause = &c
	case kind == Echo && j.echo == nil:
		j.echo = &c
	}
}

// interrupt passes a signal on; a second one kills.
func (j *job) interrupt(s os.Signal) {
	number, ok := s.(syscall.Signal)
	if !ok {
		return
	}
	if j.stopped != nil {
		j.killAll()
		return
	}
	j.stopped = s
	j.deadline.Reset(grace)
	for _, p := range j.procs {
		p.signal(number)
	}
}

// killAll kills the workers that have not ended.
func (j *job) killAll() {
	for rank, p := range j.procs {
		r := &j.ranks[rank]
		p.mu.Lock()
		ended := p.reaped
		p.mu.Unlock()
		if ended || r.killed {
			continue
		}
		r.killed = true
		r.silence, r.heard = p.silence()
		p.signal(syscall.SIGKILL)
	}
}

// result says how the job ended.
func (j *job) result() error {
	var text []string
	code := 0
	first := j.cause
	if first == nil {
		first = j.echo
	}
	if first != nil {
		code = exitCode(j.ranks[first.by])
		text = append(text, first.text)
		if n := j.failedBeside(first); n == 1 {
			text = append(text, "and 1 rank failed because of it")
		} else if n > 1 {
			text = append(text, fmt.Sprintf("and %d ranks failed because of it", n))
		}
	}
	if number, ok := j.stopped.(syscall.Signal); ok {
		code = 128 + int(number)
		text = append(text, fmt.Sprintf("ended by signal %v", number))
	}
	for rank, r := range j.ranks {
		if !r.killed {
			continue
		}
		line := fmt.Sprintf("rank %d (pid %d) did not end by itself and was killed", rank, j.procs[rank].cmd.Process.Pid)
		if r.heard && r.silence > 2*heartbeat {
			line += fmt.Sprintf("; its last sign of life was %.1f s before that", r.silence.Seconds())
		}
		text = append(text, line)
	}
	if !j.printed {
		text = append(text, "the rest of the output was not read")
	} else if err := j.output.err; err != nil {
		code = max(code, 1)
		text = append(text, fmt.Sprintf("output was lost: %v", err))
	}
	if code == 0 {
		return nil
	}
	return &ExitError{Code: code, Text: strings.Join(text, "\n")}
}

// failedBeside counts the ranks that failed or were killed, other than the one at fault.
func (j *job) failedBeside(first *cause) int {
	n := 0
	for rank, r := range j.ranks {
		if rank != first.rank && (r.failed || r.killed) {
			n++
		}
	}
	return n
}

// exitCode is the shell's: 128 + n for signal n. A rank that reported a failure and then exited with 0, or had to be
// killed, failed with 1.
func exitCode(r outcome) int {
	switch {
	case r.killed:
		return 1
	case r.status.Signaled():
		return 128 + int(r.status.Signal())
	}
	return max(r.status.ExitStatus(), 1)
}
