//go:build linux || darwin

package launch

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/ringo-ml/ringo/internal/nofile"
)

// agent starts the workers of this host when the coordinator says so, and reports what happens to them. Only Run's goroutine
// uses it, except for output.
type agent struct {
	config    *Config
	wire      *wire
	inbox     chan incoming
	events    chan event
	output    output
	notices   chan string   // lines for the user; a terminal that does not read must not block the agent
	forks     chan func()   // functions that forkLoop runs
	stop      chan struct{} // ends forkLoop and the reader of wire
	listeners chan *os.File // from the coordinator in this process; nil on other nodes
	bind      string        // address of the interface that routes to the other nodes
	secret    string

	start       start
	procs       []*proc // of this generation
	running     int
	silentTicks int               // ticks in a row at which all running workers were silent
	outputDone  []<-chan struct{} // one for each worker of all generations, and one for the notices
	signal      syscall.Signal    // that this agent received; 0 for none
	signaled    time.Time         // when
	jobEnd      *jobEnd
}

// Run starts the ranks of this host and waits for the end of the whole job. It leaves no process of the job behind. The error
// is an *ExitError if the job failed or could not start. Any other error means that this host could not take part.
//
// After the first failure on any host, the other ranks have the timeout of an operation and 2 s to report and to exit. Then
// they are killed. If no rank that is left sends heartbeats, they are killed at once. After a signal, ranks have 30 s. When a
// worker ends, the rest of its process group is killed. If restarts are left, all ranks then start again. All hosts get the
// same result.
func Run(c Config) error {
	if err := c.complete(); err != nil {
		return err
	}
	if _, err := exec.LookPath(c.Args[0]); err != nil {
		return err
	}
	a := &agent{config: &c, inbox: make(chan incoming), events: make(chan event), forks: make(chan func()), stop: make(chan struct{}),
		notices: make(chan string, 64)}
	a.secret = os.Getenv("RINGO_JOB_SECRET")
	if c.MaxNodes == 1 {
		a.bind, a.secret = "127.0.0.1", randomHex(32)
	}
	coordinated := make(chan struct{})
	if c.NodeRank == 0 {
		coord, wire, err := newCoordinator(&c)
		if err != nil {
			return err
		}
		a.wire, a.listeners = wire, coord.listeners
		if coord.acceptor != nil {
			a.bind = coord.acceptor.Addr().(*net.TCPAddr).IP.String()
		}
		go func() {
			coord.run()
			close(coordinated)
		}()
	} else {
		close(coordinated)
		if err := a.join(); err != nil {
			return err
		}
	}
	go a.forkLoop()
	go a.readNotes()
	a.printNotices()
	a.loop()
	close(a.notices)
	close(a.stop)
	<-a.wire.writerDone
	<-coordinated
	a.dropListener()
	return a.result()
}

// join connects to the coordinator. A signal ends the attempt.
func (a *agent) join() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	type outcome struct {
		wire *wire
		bind string
		err  error
	}
	joined := make(chan outcome, 1)
	go func() {
		w, bind, err := dial(ctx, a.config, newHello(a.config))
		joined <- outcome{w, bind, err}
	}()
	select {
	case o := <-joined:
		a.wire, a.bind = o.wire, o.bind
		return o.err
	case s := <-a.config.Signals:
		cancel()
		if o := <-joined; o.wire != nil {
			o.wire.finish()
		}
		number, _ := s.(syscall.Signal)
		return &ExitError{Code: 128 + int(number), Text: signalText(number)}
	}
}

// forkLoop starts workers on one thread that lives as long as the job: Linux kills a worker when the thread that forked it ends.
func (a *agent) forkLoop() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for {
		select {
		case f := <-a.forks:
			f()
		case <-a.stop:
			return
		}
	}
}

// printNotices starts a goroutine that writes notices to stderr.
func (a *agent) printNotices() {
	printed := make(chan struct{})
	a.outputDone = append(a.outputDone, printed)
	w := &lineWriter{out: &a.output, to: a.config.Stderr, prefix: "ringo: "}
	go func() {
		defer close(printed)
		for text := range a.notices {
			_, _ = w.Write([]byte(text)) // never fails
		}
	}()
}

// readNotes puts the coordinator's notes into the inbox.
func (a *agent) readNotes() {
	for {
		m, err := a.wire.read()
		select {
		case a.inbox <- incoming{note: m, err: err}:
		case <-a.stop:
			return
		}
		if err != nil {
			return
		}
	}
}

// loop does what the coordinator says, until the job is over and no worker is left.
func (a *agent) loop() {
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for a.jobEnd == nil {
		select {
		case <-tick.C:
			a.checkSilence()
			a.checkWork()
		case m := <-a.inbox:
			a.handleNote(m)
		case e := <-a.events:
			a.forward(e)
		case s := <-a.config.Signals:
			a.interrupt(s)
		}
	}
	a.wire.finish()
	a.killAll()
	for a.running > 0 {
		a.forward(<-a.events)
	}
}

func (a *agent) handleNote(m incoming) {
	n := m.note
	switch {
	case m.err != nil:
		a.jobEnd = &jobEnd{Code: 1, Text: fmt.Sprintf("node %d lost node 0 at %s: %v", a.config.NodeRank, a.config.Rendezvous, m.err)}
	case n.End != nil:
		a.jobEnd = n.End
	case n.Start != nil:
		a.begin(*n.Start)
	case n.Signal != 0:
		for _, p := range a.procs {
			p.signal(syscall.Signal(n.Signal))
		}
	case n.Kill:
		a.killAll()
	case n.Lost != nil:
		for _, rank := range n.Lost {
			a.procs[rank-a.start.First].kill()
		}
	case n.Ask != nil:
		for _, rank := range n.Ask {
			if i := rank - a.start.First; i < len(a.procs) { // not all may have started
				a.procs[i].write(askState)
			}
		}
	case n.Notice != "":
		select {
		case a.notices <- n.Notice + "\n":
		default: // the terminal does not read
		}
	}
}

// begin starts the workers of a generation.
func (a *agent) begin(s start) {
	a.start, a.procs, a.silentTicks = s, nil, 0
	var listener *os.File
	if a.listeners != nil {
		listener = <-a.listeners
		defer listener.Close()
	}
	done := make(chan error)
	a.forks <- func() { done <- a.startProcs(listener) }
	err := <-done
	if err != nil {
		a.killAll()
		a.wire.send(note{StartFailed: &startFailure{Gen: s.Gen, Missing: a.config.Ranks - len(a.procs),
			Text: fmt.Sprintf("launch: starting rank %d of %d: %v", s.First+len(a.procs), s.Size, err)}})
		return
	}
	pids := make([]int, len(a.procs))
	for i, p := range a.procs {
		pids[i] = p.cmd.Process.Pid
	}
	a.wire.send(note{Started: &started{Gen: s.Gen, PIDs: pids}})
}

func (a *agent) startProcs(listener *os.File) error {
	env := a.environment()
	for local := range a.config.Ranks {
		p, err := startProc(a, local, env, listener)
		if err != nil {
			return nofile.Explain(err, fmt.Sprintf("about %d for each of %d ranks", procFiles, a.config.Ranks))
		}
		a.procs = append(a.procs, p)
		a.outputDone = append(a.outputDone, p.outputDone)
		a.running++
	}
	return nil
}

// dropListener closes a listener that no generation took.
func (a *agent) dropListener() {
	select {
	case f := <-a.listeners:
		f.Close()
	default:
	}
}

// forward sends to the coordinator what a worker reported, or how it ended.
func (a *agent) forward(e event) {
	p, rank := a.procs[e.local], a.start.First+e.local
	switch {
	case e.ended:
		a.running--
		m := &ended{Gen: a.start.Gen, Rank: rank, Status: e.status.ExitStatus(), Killed: p.killed, Silence: p.silence,
			Mute: p.lastHeartbeat.Load() == 0}
		if e.status.Signaled() {
			m.Signal = int(e.status.Signal())
		}
		a.wire.send(note{Ended: m})
	case e.report.Kind != "":
		r := *e.report
		r.Text = r.Text[:min(len(r.Text), maxText)]
		a.wire.send(note{Report: &report{Gen: a.start.Gen, Rank: rank, What: r}})
	case e.report.State != nil:
		a.keepState(p, e.report.State)
	case len(e.report.Late) > 0:
		a.wire.send(note{Late: &late{Gen: a.start.Gen, Ranks: e.report.Late}})
	case len(e.report.Without) > 0:
		a.wire.send(note{Without: &without{Gen: a.start.Gen, Rank: rank, Ranks: e.report.Without}})
	case e.report.Step != nil:
		a.wire.send(note{Progress: &progress{Gen: a.start.Gen, Step: *e.report.Step}})
	}
}

// checkSilence tells the coordinator if no running worker sends heartbeats. One look is not enough: if the agent itself was
// stopped, it must first read the heartbeats that came meanwhile.
func (a *agent) checkSilence() {
	a.silentTicks++
	for _, p := range a.procs {
		if !p.isReaped() && !p.isSilent() {
			a.silentTicks = 0
		}
	}
	if a.running > 0 && a.silentTicks > 2 {
		a.wire.send(note{Silent: a.start.Gen})
	}
}

// interrupt sends a signal to the coordinator, which sends it to all workers of the job. A later signal kills them. A
// node that still waits for a start leaves the job.
func (a *agent) interrupt(s os.Signal) {
	number, ok := s.(syscall.Signal)
	switch {
	case !ok:
	case a.running == 0 && a.config.NodeRank > 0:
		a.jobEnd = &jobEnd{Code: 128 + int(number), Text: signalText(number), Signal: int(number)}
	case a.signal != 0 && time.Since(a.signaled) < sameSignal:
	case a.signal != 0:
		a.killAll()
		a.wire.send(note{Kill: true})
	default:
		a.signal, a.signaled = number, time.Now()
		a.wire.send(note{Signal: int(number)})
	}
}

// killAll kills the workers of this host that have not ended.
func (a *agent) killAll() {
	for _, p := range a.procs {
		p.kill()
	}
}

// awaitOutput returns true when all output is written. A reader such as a pager may be slow. A signal ends the waiting, and
// the result is then false.
func (a *agent) awaitOutput() bool {
	var limit <-chan time.Time
	if a.signal != 0 || a.jobEnd.Signal != 0 {
		limit = time.After(outputGrace)
	}
	for _, printed := range a.outputDone {
		select {
		case <-printed:
		case <-limit:
			if a.jobEnd.Signal == 0 {
				a.endBySignal(a.signal)
			}
			return false
		case s := <-a.config.Signals:
			number, _ := s.(syscall.Signal)
			a.endBySignal(number)
			return false
		}
	}
	return true
}

// endBySignal adds a signal to the job's end.
func (a *agent) endBySignal(s syscall.Signal) {
	a.jobEnd.Code, a.jobEnd.Signal = 128+int(s), int(s)
	a.jobEnd.Text = strings.TrimPrefix(a.jobEnd.Text+"\n"+signalText(s), "\n")
}

// result returns how the job ended, as the error of Run. This host adds what happened to its output.
func (a *agent) result() error {
	printed := a.awaitOutput()
	code, text := a.jobEnd.Code, []string{}
	if !printed {
		text = append(text, "the rest of the output was not read") // output is still in use: do not look at its error
	} else if err := a.output.err; err != nil {
		code = max(code, 1)
		text = append(text, fmt.Sprintf("output was lost: %v", err))
	}
	if a.jobEnd.Text != "" {
		text = append(text, a.jobEnd.Text)
	}
	if code == 0 {
		return nil
	}
	return &ExitError{Code: code, Text: strings.Join(text, "\n")}
}
