package dist

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/launch"
	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/internal/live"
	"github.com/ringo-ml/ringo/internal/trace"
	"github.com/ringo-ml/ringo/internal/wait"
	"github.com/ringo-ml/ringo/tensor"
)

// Error is the failure of a group: which rank, operation and sequence number, and what went wrong. errors.As finds it in
// what Wait and Run return.
type Error = backend.Error

// DefaultTimeout is how long an operation may go without progress while its rank waits for it.
const DefaultTimeout = 5 * time.Minute

// Config says how Run makes ranks. The zero Config means one rank with all cores.
type Config struct {
	// Ranks is the number of goroutine ranks (0: 1). A launcher's environment overrides it. With Exact, a different number in the
	// environment is an error.
	Ranks int
	Exact bool
	// Threads is how many threads a rank computes with; 0: the ranks of a host share the cores equally. RINGO_THREADS overrides it.
	Threads int
	// Timeout is the timeout of the world group (0: DefaultTimeout). RINGO_TIMEOUT, which ringo run -timeout sets, overrides it.
	Timeout time.Duration
	// Device makes the devices of the ranks (see Devices); nil: those of RINGO_DEVICE, or CPUs.
	Device DeviceFunc
	// Backend is the engine of ranks that mpiexec starts: "mpi" for MPI's own messages and collectives, over the networks that it knows,
	// "" for Ringo's engines. RINGO_BACKEND overrides it.
	Backend string
	// JoinTimeout is how long a process waits for the other ranks at the start (0: 1 minute). RINGO_JOIN_TIMEOUT overrides it.
	JoinTimeout time.Duration
	// Log gets what Rank.Logf prints (nil: os.Stdout) and, if a group fails, the last operations of each rank (nil: os.Stderr).
	Log io.Writer
	// Trace is the number of spans that each rank records (0: none).
	Trace int

	dump io.Writer
}

// Rank is what Run gives to the function: the rank's groups, its device, and its place in the job.
type Rank struct {
	World  *Group
	Device tensor.Device
	Trace  *trace.Recorder // nil unless Config.Trace is set; its methods work on nil
	Live   *live.Recorder  // steps and values for `ringo run -serve`; nil without it; its methods work on nil

	c     *comm
	log   io.Writer
	logMu *sync.Mutex
	lost  error // the first one of Logf
	close func()
	ended atomic.Bool // its function has returned

	goroutine atomic.Pointer[string] // its name
	worked    uint64                 // the last result of work

	worker     *launch.Worker // nil unless ringo run started this process
	generation int
}

// Mesh arranges all ranks in a grid with named axes, such as "dp=2,ep=2,tp=2". It is collective.
func (r *Rank) Mesh(spec string) (*Mesh, error) { return r.World.Mesh(spec) }

// Engine returns the name of the engine of the world group: "local" between goroutines, "shm" between processes of one host, "tcp"
// between hosts.
func (r *Rank) Engine() string { return r.World.Engine() }

// Alloc returns a tensor of zeros in memory that the peers of a shared-memory group read and write in place (as NCCL's ncclMemAlloc).
// Other tensors are copied through a buffer there. If there is no shared memory, it is an ordinary tensor. The tensor lives until Free,
// or as long as it or a view of it is reachable, also after Run has returned. A slice of tensor.Data does not keep it alive.
func (r *Rank) Alloc(dtype tensor.DType, dims ...int) tensor.Tensor {
	return r.World.Alloc(dtype, dims...)
}

// Logf prints a line on rank 0 and nothing on the others. If a line cannot be written, Run returns an error at the end.
func (r *Rank) Logf(format string, a ...any) {
	if r.World.Rank() == 0 {
		r.logMu.Lock()
		defer r.logMu.Unlock()
		if _, err := fmt.Fprintf(r.log, format+"\n", a...); err != nil && r.lost == nil {
			r.lost = fmt.Errorf("dist: Logf: %w", err)
		}
	}
}

// maxRanks is how many ranks may be goroutines of a process: more take all memory before they have said a word.
const maxRanks = 4096

// check returns an error for settings without a meaning.
func (cfg *Config) check() error {
	switch err := kernel.CPUError(); {
	case cfg.Ranks < 0 || cfg.Exact && cfg.Ranks == 0:
		return fmt.Errorf("dist: Config asks for %d ranks, want 1 or more", cfg.Ranks)
	case cfg.Ranks > maxRanks:
		return fmt.Errorf("dist: Config asks for %d ranks in this process, at most %d", cfg.Ranks, maxRanks)
	case cfg.Threads < 0:
		return fmt.Errorf("dist: Config.Threads is %d, want 1 or more, or 0 for a share of the cores", cfg.Threads)
	case cfg.Timeout < 0 || cfg.JoinTimeout < 0:
		return fmt.Errorf("dist: a timeout in Config is negative: Timeout %v, JoinTimeout %v", cfg.Timeout, cfg.JoinTimeout)
	case cfg.Backend != "" && cfg.Backend != "mpi":
		return fmt.Errorf("dist: Config.Backend is %q, want mpi, or nothing for Ringo's own engines", cfg.Backend)
	case cfg.Trace < 0:
		return fmt.Errorf("dist: Config.Trace is %d, want the number of spans", cfg.Trace)
	case err != nil:
		return fmt.Errorf("dist: %w", err)
	}
	return nil
}

// defaults fills in cfg for a process on a host with so many ranks.
func (cfg *Config) defaults(ranks int) {
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	cfg.dump = cfg.Log
	if cfg.Log == nil {
		cfg.Log, cfg.dump = os.Stdout, os.Stderr
	}
	if cfg.Threads == 0 {
		cfg.Threads = max(1, runtime.GOMAXPROCS(0)/max(ranks, 1))
	}
}

// worldID is the ID of the group of all ranks.
const worldID = 1

// place is a rank's place: `rank` of size in the job, and `local` of the `beside` ranks on this host.
type place struct{ rank, size, local, beside int }

// device makes the device of a rank, and the function that closes it.
func (cfg *Config) device(at place) (tensor.Device, func(), error) {
	make := cfg.Device
	if make == nil {
		make = newCPU
	}
	dev, err := make(at.local, cfg.Threads)
	if err != nil {
		return nil, nil, fmt.Errorf("dist: making the device of rank %d: %w", at.rank, err)
	}
	switch x := dev.(type) {
	case interface{ Close() }:
		return dev, x.Close, nil
	case interface{ Close() error }:
		return dev, func() { _ = x.Close() }, nil // the device has reported its failures already
	}
	return dev, func() {}, nil
}

// newRank makes a rank on its engine.
func newRank(cfg Config, e backend.Engine, at place, logMu *sync.Mutex) (*Rank, error) {
	rank, size, beside := at.rank, at.size, at.beside
	c := &comm{engine: e, rank: rank, policy: wait.For(beside * cfg.Threads), base: time.Now(), labels: background}
	if cfg.Trace > 0 {
		c.trace = trace.New(cfg.Trace)
	}
	a, err := algosFromEnv()
	if err != nil {
		return nil, err
	}
	ranks := make([]int, size)
	for i := range ranks {
		ranks[i] = i
	}
	if x, ok := e.(backend.Crowder); ok {
		c.policy = wait.Among(x.Crowd(), cfg.Threads)
	}
	dev, closer, err := cfg.device(at)
	if err != nil {
		return nil, err
	}
	if c.engine, err = withDeviceMemory(e, dev, at); err != nil {
		closer()
		return nil, err
	}
	if x, ok := dev.(interface{ SetRanks(n int) }); ok {
		x.SetRanks(beside)
	}
	if x, ok := dev.(tensor.Poller); ok {
		x.SetPoll(c.poll)
		closeDevice := closer
		closer = func() {
			x.SetPoll(nil) // tensors may outlive the rank, and keep the device: it must not keep the rank's memory
			closeDevice()
		}
	}
	c.dev = dev
	c.grapher, _ = dev.(tensor.Grapher)
	world, err := c.open(backend.Spec{ID: worldID, Gen: 1, Name: "world", Ranks: ranks, Rank: rank}, cfg.Timeout, a)
	if err != nil {
		closer()
		return nil, err
	}
	c.world.Store(world)
	return &Rank{World: world, Device: dev, Trace: c.trace, c: c, log: cfg.Log, logMu: logMu, close: closer}, nil
}

// finish waits for everything that the rank has in flight, and returns failures that the program has not seen.
func (r *Rank) finish() error {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	var errs []error
	for _, g := range r.c.groups() {
		errs = append(errs, g.drain())
	}
	r.logMu.Lock()
	defer r.logMu.Unlock()
	return errors.Join(append(errs, r.lost)...)
}

// groups returns the open groups of the rank. It needs c.mu.
func (c *comm) groups() []*group {
	var out []*group
	for _, l := range c.lanes {
		if l == l.g.lane {
			out = append(out, l.g)
		}
	}
	return out
}

// abort fails all groups of the rank.
func (c *comm) abort(cause error) {
	_ = c.world.Load().lane.be.Abort(cause) // without c.mu, which a goroutine in a wait may hold
	c.mu.Lock()
	groups := c.groups()
	c.mu.Unlock()
	for _, g := range groups {
		g.abort(cause)
	}
}

// release stops timers and closes the engine.
func (r *Rank) release() error {
	r.c.mu.Lock()
	for _, l := range r.c.lanes {
		l.deadline.stop()
	}
	r.c.mu.Unlock()
	return r.c.engine.Close()
}
