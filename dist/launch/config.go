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
	// MinNodes and MaxNodes bound the number of hosts, the same on all of them; the default is 1. One host runs one agent.
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
	// Rebuild has the job go on when ranks are lost and the others agree on a new generation of their group without them
	// (see Worker.Without), instead of ending the others. One host only.
	Rebuild bool
	// Bind is where the ranks of this host listen: an address of this host, or the name of an interface, whose first address
	// is meant. "" and "auto" are 127.0.0.1 on one node, and else the interface that routes to the other nodes; "" leaves
	// RINGO_BIND its say on several nodes. There rank 0 listens at the address of Rendezvous whatever Bind says.
	Bind string
	// Ports are those that the ranks of this host may listen on, such as 20000-20100; RINGO_PORTS, or any, by default. On
	// several nodes the port of Rendezvous comes on top.
	Ports string
	// LogDir is a folder for a folder job-ID of the job, with a file generation-G-rank-R.log per start and rank, with what the
	// rank printed; "" for none. No file that is there is changed.
	LogDir string
	// Timeout of an operation, handed to the ranks as RINGO_TIMEOUT; 0 leaves theirs.
	Timeout time.Duration
	// Threads of each rank, handed to the ranks as RINGO_THREADS; 0 leaves theirs.
	Threads int
	// Stdout and Stderr take the output of the ranks of this host, line by line, each behind "[rank] " unless Raw is set.
	Stdout, Stderr io.Writer
	Raw            bool
	// Signals are passed on to all ranks of all hosts and end the job; a second one kills. The caller feeds it with
	// signal.Notify.
	Signals <-chan os.Signal
	// Watch hears how the job goes; nil for nobody. Host 0's counts.
	Watch Watcher
}

// Watcher hears how a job goes. Several goroutines call its methods, which must return at once and keep no slice.
type Watcher interface {
	// Started says that a generation begins with so many ranks, of which those below local are on this host.
	Started(gen, ranks, local int)
	// Printed has lines that a rank of this host printed; other hosts keep theirs.
	Printed(gen, rank int, lines []byte)
	// Shown has a report that a rank of any host gave to Worker.Show.
	Shown(gen, rank int, report []byte)
	// Ended says that a rank ended with a status: 0 when all was well, 128 + n for signal n.
	Ended(gen, rank, status int)
}

// ExitError tells that a job did not end well.
type ExitError struct {
	// Code is the exit status for the launcher: that of the rank that failed first, 128 + n for signal n.
	Code int
	// Text says which rank failed first and why, and what became of the others; several lines.
	Text string
}

// Error returns Text.
func (e *ExitError) Error() string { return e.Text }

const (
	// signalGrace is how long a rank has after a signal was passed on to it.
	signalGrace = 5 * time.Second
	// failureGrace is how long ranks have, on top of an operation's timeout, to end after one has failed.
	failureGrace = 2 * time.Second
	// outputGrace is how long a reader may take over the rest of the output after a signal.
	outputGrace = 500 * time.Millisecond
	// assumedTimeout stands for the timeout of the operations when only the program knows it.
	assumedTimeout = 5 * time.Second

	minHostTimeout, maxHostTimeout = 2 * time.Second, 15 * time.Second

	// maxLocal is more than there are cores in a host: a larger number of ranks is a typing error, and starting them would
	// take the host down.
	maxLocal = 1024
)

// timeout returns that of an operation, as far as the launcher knows it.
func (c *Config) timeout() time.Duration {
	timeout := c.Timeout
	if timeout == 0 {
		timeout, _ = time.ParseDuration(os.Getenv("RINGO_TIMEOUT"))
	}
	return max(timeout, 0)
}

// patience returns how long to wait for the other ranks after the first failure.
func (c *Config) failureTimeout() time.Duration {
	t := cmp.Or(c.timeout(), assumedTimeout)
	if c.Rebuild { // they need the timeout to see the loss, and three times that at most to agree
		t *= 4
	}
	return t + failureGrace
}

// lostAfter returns how long another host may be silent: the timeout of an operation, but at least minSilence, for agents
// share their host with busy ranks, and at most maxSilence.
func (c *Config) lostAfter() time.Duration {
	return min(max(cmp.Or(c.timeout(), maxHostTimeout), minHostTimeout), maxHostTimeout)
}

// Check returns what is wrong with the Config; Run returns the same, before it starts anything.
func (c *Config) Check() error {
	d := *c
	return d.complete()
}

// complete fills in defaults, finds the address behind Bind, and checks the rest.
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
	}
	c.Ports = cmp.Or(c.Ports, os.Getenv("RINGO_PORTS"))
	if _, err := parsePorts(c.Ports); err != nil {
		return fmt.Errorf("launch: ports %s: %w", c.Ports, err)
	}
	return c.bind()
}

// bind replaces an interface's name by its address. RINGO_BIND counts on several nodes only: ranks of one host have no
// reason to be reached from elsewhere, unless they are told so here.
func (c *Config) bind() error {
	if c.Bind == "" && c.MaxNodes > 1 {
		c.Bind = os.Getenv("RINGO_BIND")
		return nil // the ranks check it
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
		if ip, ok := a.(*net.IPNet); ok && !ip.IP.IsLinkLocalUnicast() { // which would need a zone
			return ip.IP, nil
		}
	}
	return nil, errors.New("this interface has no address")
}
