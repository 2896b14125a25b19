package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ringo-ml/ringo/cmd/ringo/live"
	"github.com/ringo-ml/ringo/dist/launch"
)

// On Linux, `ringo run` is three processes, each the child of the one before: the one that the user starts, the watcher, and the
// agent, which starts the ranks. The first two are guards.
const (
	partWatcher = "watcher"
	partAgent   = "agent"

	partEnv, folderEnv = "RINGO_RUN_PART", "RINGO_RUN_FOLDER" // each process sets them for the next one
)

// runCmd is `ringo run`.
type runCmd struct {
	Ranks       int           `short:"n" required:"" placeholder:"N" help:"Number of ranks on this host, each a process."`
	Timeout     time.Duration `placeholder:"5s" help:"Longest that an operation may wait for another rank; the program's own setting if absent."`
	Threads     int           `placeholder:"T" help:"Compute threads of each rank; by default the ranks share the cores."`
	Nodes       string        `default:"1" placeholder:"N" help:"Number of hosts, or MIN:MAX: what the job may start and restart with."`
	NodeRank    int           `placeholder:"R" help:"This host's number, from 0; host 0 coordinates."`
	Rdzv        string        `placeholder:"HOST:PORT" help:"Where host 0 listens for the other hosts."`
	JoinTimeout time.Duration `default:"5m" help:"How long hosts wait for each other, at the start and after a failure."`
	NodeWait    time.Duration `default:"30s" help:"With MIN:MAX, how long to wait for more than MIN hosts."`
	MaxRestarts int           `placeholder:"K" help:"How often to start all ranks again after a failure; progress (Rank.Progress) sets the count back. Host 0's counts."`
	Stall       time.Duration `placeholder:"10m" help:"End the job, as after a failure, if no rank begins an operation or completes a step within this time. Host 0's counts."`
	Rebuild     bool          `help:"Go on without ranks that are killed, with those that are left; for data parallelism (ddp) in programs of package train, on one host."`
	Bind        string        `placeholder:"ADDR" help:"Where ranks listen: an address or interface of this host, or auto. 127.0.0.1 on one host; on several the interface that routes to the others."`
	Ports       string        `placeholder:"LO-HI" help:"Ports that ranks may listen on, such as 20000-20100; any if absent."`
	LogDir      string        `placeholder:"DIR" help:"Folder for a folder of the job, with a file per start and rank with what the rank printed."`
	Serve       string        `placeholder:"ADDR" help:"Show the job on a page, live: a port of 127.0.0.1 (0: a free one), or HOST:PORT. On host 0."`
	Raw         bool          `help:"Print what ranks print as it is, without the rank in front: for output that a program reads."`
	Program     []string      `arg:"" passthrough:"partial" help:"Program, or Go package such as ./examples/ddp-mnist, and its arguments."`

	part, folder string // which of the processes this is; the folder of the built program
}

// Help is the text below the flags of `ringo run -h`.
func (*runCmd) Help() string {
	return `Starts PROGRAM as N processes on this host. Each finds its rank and the others through the environment (RINGO_RANK,
RINGO_WORLD_SIZE, RINGO_MASTER, ...), as dist.Run does. Flags may be written -timeout or --timeout; what stands behind
PROGRAM belongs to it.

  ringo run -n 4 -timeout 5s ./examples/ddp-mnist -epochs 1

builds the example and trains on four ranks. A directory (starting with ./, ../ or /) or an import path (such as
example.com/train) is built with go build; anything else is a program in PATH or a path to one.

On several hosts run it once on each, with the same secret in the environment (openssl rand -hex 32 makes one):

  export RINGO_JOB_SECRET=...
  ringo run -n 4 -nodes 2 -node-rank 0 -rdzv host0:29400 ./train     # on host0
  ringo run -n 4 -nodes 2 -node-rank 1 -rdzv host0:29400 ./train     # on the other

With Kubeflow Trainer, where PET_NPROC_PER_NODE, PET_NNODES, PET_NODE_RANK, PET_MASTER_ADDR and PET_MASTER_PORT are set as for
torchrun, they stand for -n, -nodes, -node-rank and -rdzv. A flag overrides them.

Ranks of one host listen on 127.0.0.1 only. -bind eth0 or -bind 10.0.0.5 says otherwise; -ports 20000-20100 is for firewalls.
They become RINGO_BIND and RINGO_PORTS of the ranks.

Every line of output gets its rank in front, unless -raw is given: "[2] epoch 1: 97.1%". When a rank fails, the others have the timeout (5s if
none is given) and 2 s more to end before they are killed; ringo prints the first cause on every host and exits with that
rank's status, 128 + n for signal n. A host that is silent for the timeout (2s to 15s; 15s if none is given) is lost. With
-max-restarts all ranks then start again, as generation 2. With -rebuild the ranks that are left go on from the last step instead, when
one is killed. An interrupt (Ctrl-C) on any host is passed on to all ranks;
they have 30 s, or until the second one. -serve 4242 prints the address of a page that shows the job while it runs: loss, throughput,
memory, communication, the slowest rank of each step, what ranks print. No process is left behind. docs/LAUNCH.md tells more.`
}

// nodes reads the flag -nodes: N or MIN:MAX.
func (r *runCmd) nodes() (lo, hi int, err error) {
	low, high, elastic := strings.Cut(r.Nodes, ":")
	if !elastic {
		high = low
	}
	lo, err = strconv.Atoi(low)
	hi, err2 := strconv.Atoi(high)
	if err != nil || err2 != nil || lo < 1 || hi < lo {
		return 0, 0, usageOf("run", "-nodes %s: want a number of hosts, or MIN:MAX", r.Nodes)
	}
	return lo, hi, nil
}

// watch starts the web page of the job, if -serve asks for one.
func (r *runCmd) watch(program string) (*live.Server, error) {
	if r.Serve == "" {
		return nil, nil
	}
	addr, err := live.Address(r.Serve)
	if err != nil {
		return nil, usageOf("run", "-serve %s: %v", r.Serve, err)
	}
	if r.NodeRank > 0 {
		return nil, usageOf("run", "-serve %s: host 0 shows the whole job, this is host %d", r.Serve, r.NodeRank)
	}
	s, err := live.Listen(addr, filepath.Base(program))
	if err != nil {
		return nil, fmt.Errorf("-serve: %w", err)
	}
	fmt.Fprintf(os.Stderr, "ringo: live view at %s\n", s.URL())
	return s, nil
}

// args returns the program and its arguments.
func (r *runCmd) args() []string {
	if r.Program[0] == "--" {
		return r.Program[1:]
	}
	return r.Program
}

// Run starts the ranks and returns when all have ended. On Linux it does so in a guarded process.
func (r *runCmd) Run() error {
	r.part, r.folder = os.Getenv(partEnv), os.Getenv(folderEnv)
	_, _ = os.Unsetenv(partEnv), os.Unsetenv(folderEnv) // ranks must not inherit them: a rank may call ringo run
	if args := r.args(); r.part == "" && len(args) > 0 && isPackage(args[0]) {
		var err error
		if r.folder, err = os.MkdirTemp("", "ringo-run-"); err != nil {
			return err
		}
		defer os.RemoveAll(r.folder)
	}
	if r.part == partAgent {
		return r.work()
	}
	return r.guard()
}

// work is the agent's part: everything but the guard.
func (r *runCmd) work() (err error) {
	lo, hi, err := r.nodes()
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 4)
	notifySignals(signals, syscall.SIGQUIT) // on SIGQUIT, ranks in Go print their goroutines
	defer signal.Stop(signals)
	args := r.args()
	job := launch.Config{Ranks: r.Ranks, Args: args, Timeout: r.Timeout, Threads: r.Threads, Bind: r.Bind, Ports: r.Ports,
		MinNodes: lo, MaxNodes: hi, NodeRank: r.NodeRank, Rendezvous: r.Rdzv, JoinTimeout: r.JoinTimeout, NodeWait: r.NodeWait,
		MaxRestarts: r.MaxRestarts, Stall: r.Stall, Rebuild: r.Rebuild, LogDir: r.LogDir, Raw: r.Raw,
		Stdout: os.Stdout, Stderr: os.Stderr, Signals: signals}
	if err := job.Check(); err != nil {
		return usageOf("run", "%v", err)
	}
	page, err := r.watch(args[0])
	if err != nil {
		return err
	}
	if page != nil {
		job.Watch = page
		defer func() { page.Close(err) }()
	}
	if r.folder != "" {
		program, err := build(args[0], r.folder, signals)
		if err != nil {
			return err
		}
		job.Args = append([]string{program}, args[1:]...)
	}
	return launch.Run(job)
}

// isPackage reports whether a name is a Go package to build: a directory whose name begins with a dot or a slash, or an import path,
// which begins with a domain.
func isPackage(name string) bool {
	if info, err := os.Stat(name); err == nil {
		return info.IsDir() && (strings.HasPrefix(name, ".") || filepath.IsAbs(name))
	}
	domain, _, hasPath := strings.Cut(name, "/")
	return hasPath && strings.Contains(strings.TrimLeft(domain, "."), ".")
}

// build compiles a Go package into a new folder in dir and returns the path of the program. Messages of go build go to stderr.
func build(pkg, dir string, signals <-chan os.Signal) (string, error) {
	temp, dir := dir, filepath.Join(dir, "program")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-o", dir+string(filepath.Separator), pkg)
	cmd.Env = append(os.Environ(), "GOTMPDIR="+temp) // a compiler that is killed does not clean up
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Start(); err != nil {
		return "", err
	}
	built := make(chan error, 1)
	go func() { built <- cmd.Wait() }()
	select {
	case s := <-signals:
		if cmd.Process.Signal(s) != nil { // go build cleans up after an interrupt
			_ = cmd.Process.Kill()
		}
		<-built
		number, _ := s.(syscall.Signal)
		return "", &launch.ExitError{Code: 128 + int(number), Text: fmt.Sprintf("go build ended by signal %v", s)}
	case err := <-built:
		if err != nil {
			return "", fmt.Errorf("go build %s: %w", pkg, err)
		}
	}
	programs, err := os.ReadDir(dir)
	if err == nil && len(programs) != 1 {
		err = errors.New("it is no main package")
	}
	if err != nil {
		return "", fmt.Errorf("go build %s: %w", pkg, err)
	}
	return filepath.Join(dir, programs[0].Name()), nil
}
