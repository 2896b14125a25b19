package launch

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Env is this process's place in a job, from the environment.
type Env struct {
	Rank, Size int
	// LocalRank and LocalSize are this rank's number and the number of ranks on this host. LocalSize is 0 if the launcher does not tell.
	LocalRank, LocalSize int
	// Addr is the host:port of rank 0; "" if Size is 1 and no variable sets it.
	Addr string
	// AddrFrom says where Addr comes from, for errors: "RINGO_MASTER", "MASTER_PORT=29500 plus 1", …
	AddrFrom string
	// Secret is RINGO_JOB_SECRET, unchecked; it is never empty if Size > 1.
	Secret string
	// Job names the job: RINGO_JOB_ID or the launcher's own name for it; "" when neither exists.
	Job string
	// Source is the launcher: "ringo", "torchrun", "openmpi", "pmi", "slurm", "pmix" or "kubernetes". It is "" without a launcher; then
	// only Timeout, JoinTimeout, Threads, Device and Bind have a meaning.
	Source string
	// Timeout is RINGO_TIMEOUT, JoinTimeout is RINGO_JOIN_TIMEOUT and Threads is RINGO_THREADS; 0 if not set.
	Timeout     time.Duration
	JoinTimeout time.Duration
	Threads     int
	// Device is RINGO_DEVICE, the kind of device that ranks compute on; "" for the default.
	Device string
	// Generation is the number of the current start of the job, from 1: RINGO_GENERATION, or torchrun's restart count plus 1; 0 if the
	// launcher does not tell.
	Generation int
	// Bind is RINGO_BIND: the address to listen on, or "auto"; "" for the default.
	Bind string
	// Ports is RINGO_PORTS, the first and the last port that ranks other than 0 listen on; zeros for any.
	Ports [2]int
	// Plain says that RINGO_ENCRYPT=0 switches the encryption of data off.
	Plain bool
	// NoShared says that RINGO_SHM=0 makes the ranks of a host use sockets instead of shared memory.
	NoShared bool
	// Backend is RINGO_BACKEND: "mpi", or "" for Ringo's own engines. MPI connects the ranks itself, so Addr and Secret may be empty then.
	Backend string
	// ListenFD is rank 0's inherited listening socket (see Listener); 0 if there is none.
	ListenFD int
}

// FromEnv reads the variables of the launcher that started this process. It reads them only through getenv, usually os.Getenv. An empty
// variable counts as not set. If variables are wrong, incomplete or contradict each other, the error names variable, value and source.
//
// Launchers can be nested; then the innermost one counts. The order is: ringo, torchrun, Open MPI, PMI, Slurm (only inside a step), PMIx,
// Kubernetes. RANK and WORLD_SIZE that were set by hand must agree with a launcher around them.
func FromEnv(getenv func(string) string) (Env, error) {
	p := &parser{get: getenv}
	e := Env{Timeout: p.duration("RINGO_TIMEOUT"), JoinTimeout: p.duration("RINGO_JOIN_TIMEOUT"), Bind: getenv("RINGO_BIND"),
		Device: getenv("RINGO_DEVICE")}
	e.Threads, _ = p.integer("ringo", "RINGO_THREADS", 1, maxRanks)
	e.Ports, e.Plain, e.NoShared = p.ports(), p.off("RINGO_ENCRYPT"), p.off("RINGO_SHM")
	e.Backend = p.backend()
	src := p.pick()
	if p.err != nil {
		return Env{}, p.err
	}
	if src == nil {
		if v := getenv("RINGO_MASTER"); v != "" {
			p.fail("ringo", "RINGO_MASTER", v, "set, but neither RINGO_RANK and RINGO_WORLD_SIZE nor a launcher's variables")
			return Env{}, p.err
		}
		if e.Backend == "mpi" {
			p.fail("ringo", "RINGO_BACKEND", "mpi", "no launcher started this process; start it with mpiexec, such as mpiexec -n 4 PROGRAM")
		}
		if p.err != nil {
			return Env{}, p.err
		}
		return e, nil
	}
	e.Source = src.name
	e.Rank, e.Size = p.numbers(src)
	e.LocalRank, e.LocalSize = p.local(src, e.Size)
	e.Job = p.job(src)
	e.Generation = p.generation(src)
	if e.Backend == "mpi" {
		p.startedByMPI(src)
	} else {
		e.Addr, e.AddrFrom = p.address(src, &e)
	}
	e.Secret = getenv("RINGO_JOB_SECRET")
	if src.name == "ringo" && getenv("RINGO_LISTEN_FD") != "" {
		e.ListenFD, _ = p.integer("ringo", "RINGO_LISTEN_FD", 3, 1<<30)
		if e.Rank != 0 {
			p.fail("ringo", "RINGO_LISTEN_FD", getenv("RINGO_LISTEN_FD"), "only rank 0 listens, and RINGO_RANK=%d", e.Rank)
		}
	}
	if e.Size > 1 && e.Secret == "" && e.Backend == "" && p.err == nil {
		p.err = fmt.Errorf("RINGO_JOB_SECRET is not set, and %s started %d ranks: make one with `openssl rand -hex 32` "+
			"and give the same to every rank", src.name, e.Size)
	}
	if p.err != nil {
		return Env{}, p.err
	}
	return e, nil
}

// takenSecret is the secret that Take has removed from the environment. It lives as long as the process.
var takenSecret struct {
	sync.Mutex
	secret string
}

// Take is FromEnv of this process's environment. If a launcher started the process, it removes RINGO_JOB_SECRET from the environment, so
// that programs started by this one do not inherit it. A later call still returns it.
//
// backend is what the program asks for if RINGO_BACKEND is not set.
func Take(backend string) (Env, error) {
	const name = "RINGO_JOB_SECRET"
	takenSecret.Lock()
	defer takenSecret.Unlock()
	text := cmp.Or(os.Getenv(name), takenSecret.secret)
	e, err := FromEnv(func(variable string) string {
		switch variable {
		case name:
			return text
		case "RINGO_BACKEND":
			return cmp.Or(os.Getenv(variable), backend)
		}
		return os.Getenv(variable)
	})
	if err != nil || e.Source == "" {
		return e, err
	}
	takenSecret.secret = text
	return e, os.Unsetenv(name)
}

// maxRanks limits numbers from the environment: a typing error then gives an error, and not a huge allocation.
const maxRanks = 1 << 20

// parser reads variables and keeps the first error.
type parser struct {
	get func(string) string
	err error
}

func (p *parser) fail(source, name, value, format string, args ...any) {
	if p.err != nil {
		return
	}
	if q := strconv.Quote(value); q != `"`+value+`"` || len(value) > 64 {
		value = fmt.Sprintf("%.64q", value)
	}
	p.err = fmt.Errorf("%s=%s (%s): %s", name, value, source, fmt.Sprintf(format, args...))
}

// ports reads RINGO_PORTS.
func (p *parser) ports() [2]int {
	const name = "RINGO_PORTS"
	ports, err := parsePorts(p.get(name))
	if err != nil {
		p.fail("ringo", name, p.get(name), "%v", err)
	}
	return ports
}

// parsePorts reads a range such as 20000-20100; "" gives two zeros.
func parsePorts(s string) ([2]int, error) {
	if s == "" {
		return [2]int{}, nil
	}
	from, to, ok := strings.Cut(s, "-")
	lo, err := strconv.Atoi(from)
	hi, err2 := strconv.Atoi(to)
	if !ok || err != nil || err2 != nil || lo < 1 || hi > 65535 || lo > hi {
		return [2]int{}, errors.New("not a range of ports such as 20000-20100")
	}
	return [2]int{lo, hi}, nil
}

// off reports whether a variable with the values 0 and 1 is 0. If it is not set, it counts as 1.
func (p *parser) off(name string) bool {
	switch s := p.get(name); s {
	case "", "1":
		return false
	case "0":
		return true
	default:
		p.fail("ringo", name, s, "neither 0 nor 1")
		return false
	}
}

// backend reads RINGO_BACKEND.
func (p *parser) backend() string {
	const name = "RINGO_BACKEND"
	if s := p.get(name); s != "" && s != "mpi" {
		p.fail("ringo", name, s, "the only value is mpi; without it, Ringo uses its own engines")
	}
	return p.get(name)
}

// startedByMPI fails if the launcher does not start MPI jobs: MPI would see one rank.
func (p *parser) startedByMPI(src *source) {
	switch src.name {
	case "ringo", "torchrun", "kubernetes":
		p.fail("ringo", "RINGO_BACKEND", "mpi", "%s starts no MPI job; start the ranks with mpiexec, such as mpiexec -n 4 PROGRAM", src.name)
	}
}

// integer reads a whole number from lo to hi. ok reports whether it is there and valid.
func (p *parser) integer(source, name string, lo, hi int) (v int, ok bool) {
	s := p.get(name)
	if s == "" {
		return 0, false
	}
	v, err := strconv.Atoi(s)
	switch {
	case errors.Is(err, strconv.ErrRange):
		p.fail(source, name, s, "too large")
	case err != nil:
		p.fail(source, name, s, "not a whole number")
	case v < lo || v > hi:
		p.fail(source, name, s, "want %d to %d", lo, hi)
	default:
		return v, true
	}
	return 0, false
}

func (p *parser) duration(name string) time.Duration {
	s := p.get(name)
	if s == "" {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		p.fail("ringo", name, s, "not a positive duration such as 5s")
	}
	return d
}

// numbers returns the rank and the number of ranks.
func (p *parser) numbers(src *source) (rank, size int) {
	for _, pair := range [][2]string{{src.rank, src.size}, {src.size, src.rank}} {
		if v := p.get(pair[0]); v != "" && p.get(pair[1]) == "" {
			p.fail(src.name, pair[0], v, "set without %s", pair[1])
		}
	}
	if p.get(src.rank) == "" { // only a local variable is there
		for _, name := range []string{src.localRank, src.localSize} {
			if v := p.get(name); v != "" {
				p.fail(src.name, name, v, "set without %s and %s", src.rank, src.size)
			}
		}
	}
	size, ok := p.integer(src.name, src.size, 1, maxRanks)
	rank, _ = p.integer(src.name, src.rank, 0, maxRanks)
	if ok && rank >= size {
		p.fail(src.name, src.rank, p.get(src.rank), "%s=%d, so ranks are 0 to %d", src.size, size, size-1)
	}
	return rank, size
}

// local returns the rank and the number of ranks on this host, as far as the launcher tells.
func (p *parser) local(src *source, size int) (rank, n int) {
	if src.name == "slurm" {
		n = p.slurmLocalSize(size)
	} else if src.localSize != "" {
		n, _ = p.integer(src.name, src.localSize, 1, maxRanks)
		if n > size {
			p.fail(src.name, src.localSize, p.get(src.localSize), "more than %s=%d", src.size, size)
		}
	}
	if src.localRank == "" {
		return 0, n
	}
	rank, _ = p.integer(src.name, src.localRank, 0, size-1)
	if n > 0 && rank >= n {
		p.fail(src.name, src.localRank, p.get(src.localRank), "this host has %d ranks, so local ranks are 0 to %d", n, n-1)
	}
	return rank, n
}

// job returns the name of the job, which is the same on all its ranks.
func (p *parser) job(src *source) string {
	if id := p.get("RINGO_JOB_ID"); id != "" {
		return id
	}
	switch src.name {
	case "torchrun":
		return p.get("TORCHELASTIC_RUN_ID")
	case "slurm":
		return "slurm-" + p.get("SLURM_JOB_ID") + "." + p.get("SLURM_STEP_ID")
	case "openmpi":
		return p.get("PMIX_NAMESPACE")
	}
	return ""
}

// generation returns the number of the current start of the job.
func (p *parser) generation(src *source) int {
	switch src.name {
	case "ringo":
		g, _ := p.integer("ringo", "RINGO_GENERATION", 1, maxRanks)
		return g
	case "torchrun":
		if restarts, ok := p.integer("torchrun", "TORCHELASTIC_RESTART_COUNT", 0, maxRanks-1); ok {
			return restarts + 1
		}
	}
	return 0
}

// address returns the host:port of rank 0 and where it comes from.
func (p *parser) address(src *source, e *Env) (addr, from string) {
	port, hasPort := p.integer("ringo", "RINGO_PORT", 1, 65535)
	if master := p.get("RINGO_MASTER"); master != "" {
		host, text, err := net.SplitHostPort(master)
		n, _ := strconv.Atoi(text)
		switch {
		case err != nil || host == "" || n < 1 || n > 65535:
			p.fail("ringo", "RINGO_MASTER", master, "want host:port of rank 0")
		case hasPort && n != port:
			p.fail("ringo", "RINGO_MASTER", master, "RINGO_PORT=%d says another port; set one of them", port)
		}
		return master, "RINGO_MASTER"
	}
	if e.Size == 1 {
		return "", ""
	}
	var host string
	switch {
	case src.name == "torchrun":
		host, from, port = p.torchrunAddress(port)
	case src.name == "slurm":
		host, from = p.slurmHost()
		port, from = jobPort(port, e.Job, from)
	case src.name != "ringo" && e.LocalSize == e.Size && (hasPort || e.Job != ""):
		host = "127.0.0.1"
		port, from = jobPort(port, e.Job, "all ranks are on this host")
	default:
		p.fail(src.name, src.size, p.get(src.size), "where rank 0 listens is not known; set RINGO_MASTER=host:port on every rank")
	}
	addr = net.JoinHostPort(host, strconv.Itoa(port))
	if _, _, err := net.SplitHostPort(addr); err != nil {
		p.fail(src.name, from, host, "it is no name or address of a host")
	}
	return addr, from
}

// torchrunAddress returns the port after MASTER_PORT, because torchrun's agent listens on MASTER_PORT itself.
func (p *parser) torchrunAddress(ringoPort int) (host, from string, port int) {
	host = p.get("MASTER_ADDR")
	if host == "" {
		p.fail("torchrun", "RANK", p.get("RANK"), "set without MASTER_ADDR (or RINGO_MASTER=host:port)")
	}
	if ringoPort > 0 {
		return host, "RINGO_PORT", ringoPort
	}
	port, ok := p.integer("torchrun", "MASTER_PORT", 1, 65535)
	switch {
	case !ok:
		p.fail("torchrun", "MASTER_ADDR", host, "set without MASTER_PORT or RINGO_PORT")
	case port == 65535:
		p.fail("torchrun", "MASTER_PORT", "65535", "the next port, which Ringo would use, does not exist; set RINGO_PORT")
	}
	return host, fmt.Sprintf("MASTER_PORT=%d plus 1", port), port + 1
}

// jobPort returns RINGO_PORT, or a port below the ephemeral ports. It is the same on all ranks of the job, and probably differs from that
// of another job on the host.
func jobPort(ringoPort int, job, from string) (int, string) {
	if ringoPort > 0 {
		return ringoPort, from + ", RINGO_PORT"
	}
	h := fnv.New32a()
	h.Write([]byte(job))
	return 10000 + int(h.Sum32()%20000), from + ", port from the job's name " + job
}
