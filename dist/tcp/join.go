package tcp

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/ringo-ml/ringo/internal/nofile"
)

// Config says which rank of which job this process is.
type Config struct {
	Rank, Size int
	// Addr is the host:port where rank 0 listens and the others dial.
	Addr string
	// Secret is the job's secret of SecretBytes bytes (see ParseSecret), and Job its name: both the same on all ranks.
	Secret []byte
	Job    string
	// Host names this machine in errors; "" is the name that the system gives.
	Host string
	// Bind is the address that this rank listens on. "" is 127.0.0.1 (::1 where Addr is), which only processes of this host
	// can reach; "auto" is the address of the interface that routes to rank 0.
	Bind string
	// Ports are the first and the last port that ranks other than 0 may listen on; zeros are any.
	Ports [2]int
	// Listener, on rank 0, replaces listening on Addr. Join closes it.
	Listener net.Listener
	// Timeout is how long a peer may give no sign of life before it counts as lost; 0 is 5 minutes.
	Timeout time.Duration
	// JoinTimeout is how long Join waits for the other ranks; 0 is 1 minute.
	JoinTimeout time.Duration
	// Plain switches the encryption of data off, for a network that is trusted: the same on all ranks. The ranks prove that
	// they hold the secret all the same, and data has checksums.
	Plain bool
	// Gen is the generation of the job: it grows each time that the ranks are started anew.
	Gen uint32
	// NoShared makes ranks of one host use sockets, not shared memory. One rank that sets it decides for all of its host.
	NoShared bool

	machine string // for tests: the name of the host that this rank is said to be on
	// lookup returns the addresses of a host; tests have hosts of their own.
	lookup func(ctx context.Context, host string) ([]string, error)
}

// Join meets the other ranks and returns when this rank is connected to each of them.
//
// Rank 0 listens on Addr; the others dial it, again and again until JoinTimeout, and say who they are. When all are
// there, rank 0 sends everyone the list, and of each other pair the higher rank dials the lower. Every connection is TLS
// 1.3 in which both sides prove that they hold the job's secret. Unauthenticated connections are logged and refused, and do not disturb.
// Errors name the ranks that are missing, joined twice, or disagree about the size of the job.
func Join(ctx context.Context, c Config) (*Engine, error) {
	if err := c.complete(); err != nil {
		return nil, nofile.Explain(err, filesFor(c.Size))
	}
	conf, err := tlsConfig(c.Secret, c.Job)
	if err != nil {
		return nil, err
	}
	e := newEngine(c, member{Rank: c.Rank, Host: c.Host, Machine: cmp.Or(c.machine, machine(c.Host)), PID: os.Getpid()})
	if c.Size == 1 {
		if c.Listener != nil {
			c.Listener.Close()
		}
		e.begin()
		return e, nil
	}
	socket := e.listenShared()
	if socket != nil {
		defer socket.Close()
	}
	limit := c.JoinTimeout
	if c.Rank != 0 {
		limit += 2 * closeGrace // rank 0 gives up first, and tells the others whom it waited for
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("join timed out after %v", c.JoinTimeout))
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	rv := &rendezvous{e: e, conf: conf, cancel: end, changed: make(chan struct{}, 1)}
	e.onLost, e.onReject = rv.linkLost, rv.fail
	if c.Rank == 0 {
		err = rv.runRankZero(ctx)
	} else {
		err = rv.runOthers(ctx)
	}
	if err = nofile.Explain(err, filesFor(c.Size)); err != nil {
		e.abandon(rv.links(), err)
		return nil, err
	}
	e.begin()
	e.share(ctx, socket)
	return e, nil
}

// complete checks the configuration and fills in what was left out.
func (c *Config) complete() error {
	if c.Size < 1 || c.Rank < 0 || c.Rank >= c.Size {
		return fmt.Errorf("tcp: rank %d of %d: ranks are 0 to size-1", c.Rank, c.Size)
	}
	if c.Host == "" {
		c.Host, _ = os.Hostname()
	}
	if c.lookup == nil {
		c.lookup = net.DefaultResolver.LookupHost
	}
	if c.Timeout <= 0 {
		c.Timeout = 5 * time.Minute
	}
	if c.JoinTimeout <= 0 {
		c.JoinTimeout = time.Minute
	}
	if c.Size == 1 {
		return nil
	}
	if _, _, err := net.SplitHostPort(c.Addr); err != nil && c.Listener == nil {
		return fmt.Errorf("tcp: address of rank 0: %w", err)
	}
	return c.bind()
}

// begin starts the engine's own goroutine. All links are up, some since long ago, and silent until now.
func (e *Engine) begin() {
	e.mu.Lock()
	e.connected = true
	heard := e.earlyRebuilds
	e.earlyRebuilds = nil
	e.mu.Unlock()
	for _, tell := range heard {
		tell()
	}
	now := e.now()
	for _, l := range e.links {
		if l != nil {
			l.heard.Store(now)
		}
	}
	e.wg.Add(1)
	go e.watch(now)
}
