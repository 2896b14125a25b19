//go:build linux || darwin

package launch

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ringo-ml/ringo/internal/acceptor"
)

// coordinator makes the decisions of the job: which nodes take part, when workers start and restart, when they must end, and
// what the first cause of a failure is. It is a part of agent 0 and ends with it. Its state is a map of nodes and the number of
// the generation. Only the goroutine of run uses it.
type coordinator struct {
	config   *Config
	job      string             // its name
	acceptor *acceptor.Acceptor // nil for a job on this host alone
	in       chan incoming
	done     chan struct{} // closed when nobody reads in any more
	// listeners has rank 0's listener, for the agent of this process; one for each generation.
	listeners chan *os.File

	nodes      map[int]*node  // those that are connected
	refusals   sync.WaitGroup // refusals that are not sent yet
	gen        int
	members    []*node // of the generation
	noneLost   bool    // no member is lost
	running    int     // workers that have not ended
	ranks      []rankState
	causes     []cause // failures of the generation, in the order in which they were seen
	asked      int     // ranks of the generation that were asked for their State
	deadline   *time.Timer
	stall      *time.Timer // runs out after Config.Stall without work, and again after answerTime
	stalled    bool        // it has run out in this generation
	restarts   int         // since the last progress
	step       int         // the highest that rank 0 has completed, in all generations
	bestBefore int         // the same, in all generations before this one

	cannotStart string         // why the job cannot start; "" if it can
	signal      syscall.Signal // that ended the job; 0 for none
}

// incoming is a note of a node, or the error that ended its connection.
type incoming struct {
	from *node
	note note
	err  error
}

// newCoordinator opens the rendezvous and adds the agent of this process. It returns the agent's end of their connection.
func newCoordinator(config *Config) (*coordinator, *wire, error) {
	c := &coordinator{config: config, in: make(chan incoming), done: make(chan struct{}), listeners: make(chan *os.File, 1),
		nodes: map[int]*node{}, deadline: time.NewTimer(0), stall: time.NewTimer(0), step: -1, bestBefore: -1}
	c.deadline.Stop()
	c.stall.Stop()
	if c.job = os.Getenv("RINGO_JOB_ID"); c.job == "" || config.MaxNodes == 1 {
		c.job = randomHex(8)
	}
	if config.MaxNodes > 1 {
		conf, err := agentTLS()
		if err != nil {
			return nil, nil, err
		}
		if c.acceptor, err = acceptNodes(config, conf, c.newcomer); err != nil {
			return nil, nil, err
		}
	}
	ours, theirs := net.Pipe()
	self := &node{hello: newHello(config), wire: newWire(ours, 0)}
	c.nodes[0] = self
	go c.readNotes(self)
	return c, newWire(theirs, 0), nil
}

// newcomer is called for each node that connects.
func (c *coordinator) newcomer(n *node) {
	if c.deliver(incoming{from: n, note: note{Hello: &n.hello}}) {
		c.readNotes(n)
	} else {
		n.wire.send(note{Refuse: "the job is over"})
		n.wire.finish()
	}
}

// readNotes delivers the notes of a node, until its connection ends.
func (c *coordinator) readNotes(n *node) {
	for {
		m, err := n.wire.read()
		if !c.deliver(incoming{n, m, err}) || err != nil {
			return
		}
	}
}

func (c *coordinator) deliver(a incoming) bool {
	select {
	case c.in <- a:
		return true
	case <-c.done:
		return false
	}
}

// run returns when the job is over and all nodes know it.
func (c *coordinator) run() {
	defer close(c.done)
	if c.acceptor != nil {
		defer c.acceptor.Close()
	}
	for {
		if err := c.awaitNodes(); err != nil {
			c.finish(err)
			return
		}
		if err := c.begin(); err != nil {
			c.finish(fmt.Errorf("launch: %w", err))
			return
		}
		c.supervise()
		if !c.restart() {
			c.finish(nil)
			return
		}
	}
}

// awaitNodes returns when the nodes of the next generation are here.
func (c *coordinator) awaitNodes() error {
	join := time.NewTimer(c.config.JoinTimeout)
	defer join.Stop()
	wait := time.NewTimer(c.config.NodeWait)
	defer wait.Stop()
	enough := c.config.MaxNodes
	if c.noneLost { // all members of the last generation are here: do not wait for more
		enough = c.config.MinNodes
	}
	for len(c.nodes) < enough {
		select {
		case a := <-c.in:
			c.handle(a)
		case <-wait.C:
			enough = c.config.MinNodes
		case <-join.C:
			return fmt.Errorf("waiting for %s of %s: %d of them came within %v", c.missingNodes(),
				nodesFlag(c.config.MinNodes, c.config.MaxNodes), len(c.nodes)-1, c.config.JoinTimeout)
		}
		if c.cannotStart != "" {
			return errors.New(c.cannotStart)
		}
		if c.signal != 0 {
			return errSignalled
		}
	}
	return nil
}

var errSignalled = errors.New("a signal came before the ranks started")

// begin starts a generation: world ranks go in the order of the nodes.
func (c *coordinator) begin() error {
	master, err := c.listenForRanks()
	if err != nil {
		return err
	}
	c.members = c.members[:0]
	for _, n := range c.nodes {
		c.members = append(c.members, n)
	}
	slices.SortFunc(c.members, func(a, b *node) int { return cmp.Compare(a.Node, b.Node) })
	c.gen++
	c.noneLost, c.running, c.causes, c.asked = true, 0, nil, 0
	for _, n := range c.members {
		n.first, n.running, n.pids, n.silentAt = c.running, n.Ranks, nil, time.Time{}
		c.running += n.Ranks
	}
	c.ranks, c.stalled = make([]rankState, c.running), false
	c.worked()
	if c.config.Watch != nil {
		c.config.Watch.Started(c.gen, c.running, c.nodes[0].Ranks)
	}
	for _, n := range c.members {
		n.wire.send(note{Start: &start{Gen: c.gen, First: n.first, Size: c.running, Master: master, Job: c.job,
			Watch: c.config.Watch != nil, Stall: c.config.Stall > 0}})
	}
	return nil
}

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// listenForRanks opens rank 0's listener and returns its address. Nobody else can take the port then.
func (c *coordinator) listenForRanks() (string, error) {
	bind := cmp.Or(c.config.Bind, "127.0.0.1")
	name := bind
	switch {
	case c.acceptor != nil:
		name, _, _ = net.SplitHostPort(c.config.Rendezvous)
		bind = c.acceptor.Addr().(*net.TCPAddr).IP.String()
	case net.ParseIP(bind).IsUnspecified():
		name = "127.0.0.1" // all ranks are here
	}
	l, err := listenInRange(bind, c.config.Ports)
	if err != nil {
		return "", err
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return "", err
	}
	c.listeners <- f
	return net.JoinHostPort(name, port), nil
}

// listenInRange listens on a free port. Of a range it takes the last one, because the other ranks try from the first.
func listenInRange(bind, text string) (l net.Listener, err error) {
	ports, _ := parsePorts(text) // which has been checked
	for port := ports[1]; port >= ports[0]; port-- {
		if l, err = net.Listen("tcp", net.JoinHostPort(bind, strconv.Itoa(port))); err == nil {
			return l, nil
		}
	}
	return nil, fmt.Errorf("no port for rank 0 (RINGO_PORTS=%s): %w", text, err)
}

// supervise returns when all workers have ended.
func (c *coordinator) supervise() {
	for c.running > 0 {
		select {
		case a := <-c.in:
			c.handle(a)
		case <-c.deadline.C:
			c.sendToMembers(note{Kill: true})
		case <-c.stall.C:
			c.stallOver()
		}
	}
	c.deadline.Stop()
	c.stall.Stop()
}

// restart decides whether all workers start again, and tells the nodes.
func (c *coordinator) restart() bool {
	first := c.firstCause()
	if c.signal != 0 || first == nil {
		return false
	}
	if w := c.config.Watch; w != nil {
		w.Failed(c.gen, first.first, first.last, first.text)
	}
	if c.step > c.bestBefore {
		c.bestBefore, c.restarts = c.step, 0
	}
	if c.restarts == c.config.MaxRestarts || c.misused(first) {
		return false
	}
	c.restarts++
	text := fmt.Sprintf("%s\nrestart %d of %d: generation %d is over, generation %d begins", first.text, c.restarts,
		c.config.MaxRestarts, c.gen, c.gen+1)
	for _, n := range c.nodes {
		n.wire.send(note{Notice: text})
	}
	return true
}

// finish sends the result to all nodes. It waits a moment until they have closed their connections, and until refused nodes
// have their refusal; without it they would try again. An error says why there was no start.
func (c *coordinator) finish(err error) {
	code, text := c.result()
	if lost := c.lost(); code == 0 && err == nil && lost != nil {
		c.nodes[0].wire.send(note{Notice: fmt.Sprintf("the job ended well, without %s", c.rankNames(lost))})
	}
	switch {
	case c.signal != 0 && err != nil:
		text = signalText(c.signal)
	case err != nil && text != "":
		code, text = max(code, 1), "no restart: "+err.Error()+"\n"+text
	case err != nil:
		code, text = 1, err.Error()
	}
	for _, n := range c.nodes {
		n.wire.send(note{End: &jobEnd{Code: code, Text: text, Signal: int(c.signal)}})
	}
	limit := time.NewTimer(failureGrace)
	defer limit.Stop()
	for len(c.nodes) > 0 {
		select {
		case a := <-c.in:
			if a.err != nil {
				c.nodeLost(a.from, a.err)
			} else if a.note.Hello != nil {
				c.sendRefusal(a.from, "the job is over")
			}
		case <-limit.C:
			for _, n := range c.nodes {
				n.wire.finish()
			}
			return
		}
	}
	told := make(chan struct{})
	go func() {
		c.refusals.Wait()
		close(told)
	}()
	select {
	case <-told:
	case <-limit.C:
	}
}

func signalText(s syscall.Signal) string { return fmt.Sprintf("ended by signal %v", s) }

// sendToMembers sends a note to the nodes that still have running workers.
func (c *coordinator) sendToMembers(n note) {
	for _, m := range c.members {
		if m.running > 0 {
			m.wire.send(n)
		}
	}
}

// rankName names a rank of the generation.
func (c *coordinator) rankName(rank int) string {
	for _, n := range c.members {
		if i := rank - n.first; i >= 0 && i < n.Ranks {
			var where []string
			if len(c.members) > 1 {
				where = append(where, "host "+n.Host)
			}
			if i < len(n.pids) {
				where = append(where, fmt.Sprintf("pid %d", n.pids[i]))
			}
			if len(where) > 0 {
				return fmt.Sprintf("rank %d (%s)", rank, strings.Join(where, ", "))
			}
		}
	}
	return fmt.Sprintf("rank %d", rank)
}
