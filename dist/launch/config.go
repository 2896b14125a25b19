package launch

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// Config describes this host's part in a job. Zero fields have the defaults that are stated.
type Config struct {
	// Ranks is the number of ranks on this host; other hosts may have other numbers.
	Ranks int
	// Args is the program, a path or a name in PATH, and its arguments.
	Args []string
	// MinNodes and MaxNodes are the smallest and the largest number of hosts, the same on all of them; 1 by default. Each
	// host runs one agent.
	MinNodes, MaxNodes int
	// NodeRank is this host's number, 0 to MaxNodes-1. World ranks go in the order of the hosts' numbers. Host 0
	// coordinates the job, which ends when host 0 is lost.
	NodeRank int
	// Rendezvous is the host:port at which host 0 listens for the others; needed when MaxNodes > 1. Then the environment
	// must hold RINGO_JOB_SECRET, the same on all hosts.
	Rendezvous string
	// JoinTimeout is how long the hosts wait for each other, at the start and after a failure; 5 minutes by default.
	JoinTimeout time.Duration
	// NodeWait is how long a job waits for more than MinNodes hosts; 30 s by default.
	NodeWait time.Duration
	// MaxRestarts is how often all ranks of all hosts are started again after a failure without getting further than
	// before (see Worker.Progress). Host 0's counts.
	MaxRestarts int
	// Stall ends the generation, as a failure does, if no rank begins an operation, moves bytes or calls Worker.Progress for
	// this time, at least 2 s. 0 is no limit. Host 0's counts.
	Stall time.Duration
	// Rebuild lets the job go on if ranks are lost and the others agree on a new generation of their group without them
	// (see Worker.Without). One host only.
	Rebuild bool
	// Bind is where the ranks of this host listen: an address of this host, or the name of an interface, which means its first
	// address. With "auto" it is 127.0.0.1 on one node, and on several the interface that routes to the other nodes. "" is the
	// same, except that RINGO_BIND counts on several nodes. There, rank 0 always listens at the address of Rendezvous.
	Bind string
	// Ports is the range of ports that the ranks of this host may listen on, such as 20000-20100. The default is RINGO_PORTS,
	// or any. Several nodes need the port of Rendezvous as well.
	Ports string
	// LogDir is where the output of the ranks is kept; "" for nowhere. It gets a folder job-ID, with a file
	// generation-G-rank-R.log for each start and rank. Existing files are never changed.
	LogDir string
	// Timeout of an operation. The ranks get it as RINGO_TIMEOUT; with 0 they have their own.
	Timeout time.Duration
	// Threads of each rank. The ranks get it as RINGO_THREADS; with 0 they have their own.
	Threads int
	// Stdout and Stderr get the output of the ranks of this host, line by line. Each line begins with "[rank] ", but not if
	// Raw is set.
	Stdout, Stderr io.Writer
	Raw            bool
	// Signals go to all ranks of all hosts and end the job; a second one kills. The caller fills it with signal.Notify.
	Signals <-chan os.Signal
	// Watch is told how the job goes; nil for nobody. Only on host 0.
	Watch Watcher
}

// Watcher is told how a job goes. Several goroutines call its methods. They must return at once and keep no slice.
type Watcher interface {
	// Started is called when a generation begins: ranks is the number of its ranks, and those below local are on this host.
	Started(gen, ranks, local int)
	// Printed gets lines that a rank of this host printed. Those of ranks on other hosts do not come here.
	Printed(gen, rank int, lines []byte)
	// Shown gets a report that a rank of any host gave to Worker.Show.
	Shown(gen, rank int, report []byte)
	// Ended is called when a rank has ended. Status 0 is success, and 128 + n means signal n.
	Ended(gen, rank, status int)
	// Failed is called when a generation is over that failed: ranks first to last are its first cause, of which text has a line or more.
	Failed(gen, first, last int, text string)
}

// ExitError is the error of a job that failed.
type ExitError struct {
	// Code is the exit status for the launcher: that of the rank that failed first, 128 + n for signal n.
	Code int
	// Text says which rank failed first and why, and what happened to the others. It has several lines.
	Text string
}

// Error returns Text.
func (e *ExitError) Error() string { return e.Text }

const (
	// sameSignal is how long others after the first signal change nothing: if all processes of a job get one, it comes here several times.
	sameSignal = time.Second
	// signalGrace is how long a rank has to end its step, to save and to exit after a signal: as long as torchrun and Kubernetes give it.
	signalGrace = 30 * time.Second
	// failureGrace is how long the other ranks have to exit after a failure, in addition to the timeout of an operation.
	failureGrace = 2 * time.Second
	// outputGrace is how long a reader has for the rest of the output after a signal.
	outputGrace = 500 * time.Millisecond
	// minStall is the smallest Config.Stall.
	minStall = 4 * heartbeat
	// answerTime is how long ranks have to say what they do.
	answerTime = 2 * time.Second
	// assumedTimeout is used as timeout of an operation if only the program knows it.
	assumedTimeout = 5 * time.Second

	minHostTimeout, maxHostTimeout = 2 * time.Second, 15 * time.Second

	// maxLocal is more than a host has cores. A larger number of ranks is a typing error, and would overload the host.
	maxLocal = 1024
)

// timeout returns the timeout of an operation; 0 if the launcher does not know it.
func (c *Config) timeout() time.Duration {
	timeout := c.Timeout
	if timeout == 0 {
		timeout, _ = time.ParseDuration(os.Getenv("RINGO_TIMEOUT"))
	}
	return max(timeout, 0)
}

// failureTimeout returns how long to wait for the other ranks after the first failure.
func (c *Config) failureTimeout() time.Duration {
	t := cmp.Or(c.timeout(), assumedTimeout)
	if c.Rebuild { // ranks see the loss after one timeout at most, and agree within three more
		t *= 4
	}
	return t + failureGrace
}

// lostAfter returns how long another host may be silent: the timeout of an operation, but at most maxHostTimeout, and at least
// minHostTimeout, because agents share their host with busy ranks.
func (c *Config) lostAfter() time.Duration {
	return min(max(cmp.Or(c.timeout(), maxHostTimeout), minHostTimeout), maxHostTimeout)
}

// Check returns what is wrong with the Config. Run returns the same error before it starts anything.
func (c *Config) Check() error {
	d := *c
	return d.complete()
}

// complete sets the defaults, replaces Bind by an address, and checks the rest.
func (c *Config) complete() error {
	c.MinNodes, c.MaxNodes = cmp.Or(c.MinNodes, 1), cmp.Or(c.MaxNodes, 1)
	c.JoinTimeout, c.NodeWait = cmp.Or(c.JoinTimeout, 5*time.Minute), cmp.Or(c.NodeWait, 30*time.Second)
	switch {
	case c.Ranks < 1 || c.Ranks > maxLocal:
		return fmt.Errorf("launch: %d ranks, want 1 to %d on a host", c.Ranks, maxLocal)
	case len(c.Args) == 0:
		return fmt.Errorf("launch: no program")
	case c.MinNodes < 1 || c.MaxNodes < c.MinNodes || c.MaxNodes > maxRanks:
		return fmt.Errorf("launch: %d to %d nodes", c.MinNodes, c.MaxNodes)
	case c.NodeRank < 0 || c.NodeRank >= c.MaxNodes:
		return fmt.Errorf("launch: node rank %d of %d: node ranks are 0 to %d", c.NodeRank, c.MaxNodes, c.MaxNodes-1)
	case c.MaxNodes > 1 && c.Rendezvous == "":
		return fmt.Errorf("launch: %d nodes need a rendezvous address, host:port of node 0", c.MaxNodes)
	case c.Timeout < 0:
		return fmt.Errorf("launch: timeout %v is negative", c.Timeout)
	case c.JoinTimeout < 0 || c.NodeWait < 0:
		return fmt.Errorf("launch: join timeout %v or node wait %v is negative", c.JoinTimeout, c.NodeWait)
	case c.Threads < 0:
		return fmt.Errorf("launch: %d threads", c.Threads)
	case c.Watch != nil && c.NodeRank > 0:
		return fmt.Errorf("launch: node %d cannot watch the job: node 0 does", c.NodeRank)
	case c.Rebuild && c.MaxNodes > 1:
		return fmt.Errorf("launch: rebuild with %d nodes: ranks go on without lost ones on one host only; restarts work on several", c.MaxNodes)
	case c.MaxRestarts < 0:
		return fmt.Errorf("launch: %d restarts", c.MaxRestarts)
	case c.Stall < 0 || c.Stall > 0 && c.Stall < minStall:
		return fmt.Errorf("launch: stall %v, want at least %v: ranks say twice a second whether they get further", c.Stall, minStall)
	}
	c.Ports = cmp.Or(c.Ports, os.Getenv("RINGO_PORTS"))
	if _, err := parsePorts(c.Ports); err != nil {
		return fmt.Errorf("launch: ports %s: %w", c.Ports, err)
	}
	return c.bind()
}

// bind replaces the name of an interface by its address. RINGO_BIND counts on several nodes only: on one node, nobody needs to
// reach ranks from other hosts, unless Bind says so.
func (c *Config) bind() error {
	if c.Bind == "" && c.MaxNodes > 1 {
		c.Bind = os.Getenv("RINGO_BIND")
		return nil // the ranks check RINGO_BIND
	}
	if c.Bind == "" || c.Bind == "auto" {
		c.Bind = ""
		return nil
	}
	ip := net.ParseIP(c.Bind)
	if ip == nil {
		var err error
		if ip, err = addressOf(c.Bind); err != nil {
			return fmt.Errorf("launch: bind %s: %w", c.Bind, err)
		}
	}
	l, err := net.Listen("tcp", net.JoinHostPort(ip.String(), "0"))
	if err != nil {
		return fmt.Errorf("launch: bind %s: %w", c.Bind, err)
	}
	c.Bind = ip.String()
	return l.Close()
}

// addressOf returns the first address of an interface.
func addressOf(name string) (net.IP, error) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return nil, errors.New("neither an address nor an interface of this host, nor auto")
	}
	addrs, err := i.Addrs()
	if err != nil {
		return nil, err
	}
	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok && !ip.IP.IsLinkLocalUnicast() { // link-local ones need a zone
			return ip.IP, nil
		}
	}
	return nil, errors.New("this interface has no address")
}
