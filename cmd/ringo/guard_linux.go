package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringo-ml/ringo/dist/launch"
)

// guardLimit is how long a guard waits for processes that it has killed.
const guardLimit = 10 * time.Second

// guard runs the next process of `ringo run`, and then kills all processes of the job that are left. Only the goroutine that made it
// uses it. Only this goroutine reaps children, so a pid that it signals is never that of a new process.
type guard struct {
	part       string
	child      *os.Process
	foreign    map[int]bool     // children from before: a program that calls exec keeps its children
	lifeline   *os.File         // one end of a pipe: when this process ends, the child reads EOF
	childEnded <-chan os.Signal // a child has ended
	signals    chan os.Signal
	result     *launch.ExitError // of the child; nil while it runs
}

// guard runs the next process and returns when no process of the job is left. A guard is a subreaper: a descendant whose parent ends
// becomes its child, in whatever session or process group it is. There are two guards, because the first one may be killed. Then the
// watcher notices it, and all descendants are still descendants of the watcher.
func (r *runCmd) guard() error {
	runtime.LockOSThread() // the kernel kills the agent when the thread that forked it ends
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl PR_SET_CHILD_SUBREAPER: %w", err)
	}
	g := &guard{part: r.part, foreign: map[int]bool{}, signals: make(chan os.Signal, 4)}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	defer signal.Stop(ended)
	g.childEnded = ended
	notifySignals(g.signals, syscall.SIGQUIT)
	defer signal.Stop(g.signals)
	for _, pid := range children() {
		g.foreign[pid] = true
	}
	if err := g.start(r.folder); err != nil {
		return err
	}
	defer g.lifeline.Close()
	orphaned := make(chan struct{})
	if r.part == partWatcher {
		defer os.RemoveAll(r.folder)
		go func() { _, _ = io.Copy(io.Discard, os.Stdin); close(orphaned) }()
	}
	for g.result == nil {
		select {
		case s := <-g.signals:
			_ = g.child.Signal(s) // it may have ended
		case <-g.childEnded:
			g.reap()
		case <-orphaned:
			g.result = &launch.ExitError{Code: 128 + int(syscall.SIGKILL)}
		}
	}
	return g.killRest()
}

// start starts the next process.
func (g *guard) start(folder string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	next := partWatcher
	attr := &syscall.SysProcAttr{Setsid: true} // not reached by signals of the terminal or to the process group
	if g.part == partWatcher {
		next = partAgent
		attr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	}
	input, alive, err := os.Pipe()
	if err != nil {
		return err
	}
	defer input.Close()
	g.lifeline = alive
	env := append(os.Environ(), partEnv+"="+next, folderEnv+"="+folder)
	g.child, err = os.StartProcess(self, os.Args, &os.ProcAttr{Env: env, Files: []*os.File{input, os.Stdout, os.Stderr}, Sys: attr})
	if err != nil {
		alive.Close()
	}
	return err
}

// reap takes the status of all children that have ended. It returns the children of the job that still run.
func (g *guard) reap() (left []int) {
	for {
		var s syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &s, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil: // ECHILD
			return nil
		case pid == 0:
			return slices.DeleteFunc(children(), func(pid int) bool { return g.foreign[pid] })
		case pid == g.child.Pid && s.Signaled() && s.Signal() == syscall.SIGPIPE: // as any program whose reader stops reading
			g.result = &launch.ExitError{Code: 128 + int(s.Signal())}
		case pid == g.child.Pid && s.Signaled():
			g.result = &launch.ExitError{Code: 128 + int(s.Signal()), Text: fmt.Sprintf("its process %d was ended by signal %v", pid, s.Signal())}
		case pid == g.child.Pid:
			g.result = &launch.ExitError{Code: s.ExitStatus()} // it has printed the reason
		default:
			delete(g.foreign, pid) // a new process may get this number
		}
	}
}

// killRest kills the processes that are left. When one is killed, its children become children of this process, and SIGCHLD comes.
func (g *guard) killRest() error {
	result, limit := g.result, time.After(guardLimit)
	for left := g.reap(); len(left) > 0; left = g.reap() {
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL) // an error means that it has ended
		}
		select {
		case <-g.childEnded:
		case <-limit:
			return &launch.ExitError{Code: max(result.Code, 1),
				Text: strings.TrimPrefix(fmt.Sprintf("%s\nprocesses %v cannot be killed", result.Text, left), "\n")}
		}
	}
	if result.Code == 0 {
		return nil
	}
	return result
}

// children lists the processes whose parent is this one. A pattern of package filepath would list the files of every process.
func children() (pids []int) {
	processes, _ := os.ReadDir("/proc")
	for _, p := range processes {
		text, err := os.ReadFile("/proc/" + p.Name() + "/stat")
		pid, other := strconv.Atoi(p.Name())
		if err != nil || other != nil {
			continue // it has ended, or is no process
		}
		_, after, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')')+1:]), " ")
		fields := strings.Fields(after) // state, parent
		if len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid()) {
			pids = append(pids, pid)
		}
	}
	return pids
}
