package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/launch"
	"github.com/ringo-ml/ringo/internal/cuda"
)

// benchCmd is `ringo bench`.
type benchCmd struct {
	Ops     string        `default:"allreduce" placeholder:"LIST" help:"Operations, or all."`
	Sizes   string        `default:"4,1K,16K,256K,4M" placeholder:"LIST" help:"Bytes, with K, M, G of 1024; 1K-1M is every fourfold between."`
	Ranks   string        `placeholder:"LIST" help:"Numbers of ranks; 2 if absent."`
	Device  string        `placeholder:"NAME" help:"Where buffers are: cpu or cuda; RINGO_DEVICE, or cpu, if absent."`
	Backend string        `default:"local" placeholder:"LIST" help:"local (goroutines), shm, tcp or mpi (processes); with -device cuda local or nccl (processes)."`
	Algo    string        `placeholder:"LIST" help:"Algorithms to compare, or all; the committed choice if absent."`
	Compute time.Duration `placeholder:"20us" help:"Computation between calls; its ideal time is subtracted."`
	Staged  bool          `help:"Buffers that are copied through shared memory, as any tensor's; else they lie there, as buckets do."`
	JSON    bool          `help:"Print an array of rows."`
	Plot    string        `placeholder:"out.svg" help:"Draw bus bandwidth against bytes, with the reference."`
	Fit     bool          `help:"Measure the algorithms' table on this machine and print it."`
	Explain bool          `help:"Say which algorithms are chosen between processes, and why; measure nothing."`
	Hosts   int           `default:"1" help:"With -explain: the hosts that the ranks lie on, evenly."`
	Faults  bool          `help:"Kill, stop and slow down a rank in each operation; time how the others find out."`
	Spec    string        `hidden:"" help:"What a rank measures, as JSON: set by ringo bench for its own ranks."`
}

// Help is the text below the flags of `ringo bench -h`.
func (*benchCmd) Help() string {
	return `Measures collectives as nccl-tests and the OSU micro-benchmarks do, in float32:

  ringo bench -ops allreduce,broadcast -sizes 4,64K-16M -ranks 2,4 -backend local,tcp -plot bench.svg

Operations: ` + strings.Join(benchNames(), " ") + `.
BYTES is the full buffer S: of all ranks' parts together for gather, scatter, allgather, reducescatter; of one rank's buffer
for alltoall; of one message for send, a ping-pong between the first and the last rank (half a round trip).
T is the median over blocks of calls of the slowest rank's time per call. Among n ranks

  algbw = S / T         busbw = algbw × 2(n−1)/n   allreduce
                                      × (n−1)/n    gather, scatter, allgather, reducescatter, alltoall, and their V forms
                                      × 1          broadcast, reduce, send

in GB/s (10⁹ bytes): busbw is what a rank must move in any case, and can be compared with the REFERENCE: the busbw of as many
threads that read and write the same memory at the same time and never wait for each other (local, shm), or of as many
loopback sockets that transfer in a ring (tcp); in the best of a few runs. It is no limit: small buffers stay in the cache of a core. THEORY is
T = latency + bytes/bandwidth, fitted to the series (least relative squares), where no T is more than four times as long or as short. RIGHT
says that a call with exact inputs, after the timing, gave every rank the right result. With -compute each call has that
much computation before it, and what the same computation takes alone (times ranks per core, if that is over one) is
subtracted. The V forms have uneven counts.

With -device cuda, buffers are in the memory of GPUs, which ranks take in turns: local ranks may share one, nccl ranks need one
each. A block of calls ends when the device is done; there is no reference.

shm, tcp and nccl ranks are processes that ringo bench starts itself, and mpi ranks those that it starts by the mpiexec of the library
(RINGO_MPI_LIB). Under ringo run, torchrun and other launchers it is one rank of their job: -ranks and -backend are theirs (mpi may be
asked for under mpiexec), there is no reference, and rank 0 prints (-json needs ringo run -raw). RINGO_ALGO and RINGO_BITS are obeyed.

-fit compares the algorithms with processes on this host (2, 3, 4 ranks), and, as root on Linux, on two hosts made of
network namespaces; an algorithm replaces the plain one only where it is 10% faster in 8 of 9 rounds, at two sizes in a row.
It prints the table that dist/algo/tuner.json is. It takes a minute or two on an idle machine.

-explain prints, for each operation and size, what every algorithm needs among the ranks on -hosts, and the one that is chosen:
by that table where it was measured, else by the model of package dist/algo, whose microseconds it prints. Ranks in shared
memory or of one process always have direct.

-faults starts jobs of processes (3 ranks if absent) in which one rank is killed, stopped or slow; it prints how long the
others took to fail with an error that names it, and whether that is within the bound. The exit status is 1 if not.`
}

// Run measures what the flags say.
func (c *benchCmd) Run() error {
	env, err := c.environment()
	if err != nil {
		return err
	}
	if c.Spec != "" {
		return benchWorker(c.Spec)
	}
	if c.Device == "" {
		c.Device = cmp.Or(env.Device, "cpu")
	}
	if (c.Fit || c.Faults) && c.Explain || c.Hosts != 1 && !c.Explain {
		return usage("-hosts goes with -explain, and -explain with neither -fit nor -faults")
	}
	if c.Explain && (c.Algo != "" || c.Plot != "" || c.Compute != 0 || c.JSON || c.Staged || os.Getenv("RINGO_ALGO") != "") {
		return usage("-explain goes with none of -algo -json -plot -compute -staged, nor with RINGO_ALGO")
	}
	if c.Fit || c.Faults {
		if c.Fit && c.Faults || c.Algo != "" || c.Plot != "" || c.Compute != 0 || c.JSON && c.Fit || c.Device != "cpu" {
			return usage("-fit and -faults go with none of -algo -plot -compute -device, nor with each other")
		}
		if env.Source != "" {
			return usage("-fit and -faults start ranks themselves: not under %s", env.Source)
		}
	}
	ops, err := c.ops()
	if err != nil {
		return err
	}
	ranks, backends, err := c.jobs(env)
	switch {
	case err != nil:
		return err
	case c.Fit:
		return benchFit(os.Stdout, os.Stderr)
	case c.Faults:
		return benchFaults(ops, ranks, backends, c.JSON)
	case c.Explain:
		return c.explain(os.Stdout, ops, ranks)
	}
	if err := c.checkDevice(ranks, backends, env.Source); err != nil {
		return err
	}
	spec := benchSpec{Ops: ops, Compute: c.Compute, Algo: c.Algo, Staged: c.Staged, Device: c.Device}
	if spec.Sizes, err = parseSizes(c.Sizes); err != nil {
		return err
	}
	if c.Compute < 0 {
		return usage("-compute %v is negative", c.Compute)
	}
	for _, b := range backends {
		if err := checkAlgos(ops, c.Algo, b); err != nil {
			return err
		}
	}
	if c.Plot != "" && !strings.HasSuffix(c.Plot, ".svg") {
		return usage("-plot %s: the name must end in .svg", c.Plot)
	}
	if env.Source != "" {
		spec.Here, spec.Backend = max(env.LocalSize, 1), backends[0]
		return c.underLauncher(spec)
	}
	all, err := c.measure(spec, ranks, backends)
	return errors.Join(err, c.report(all))
}

// environment reads the launcher's variables. With -backend mpi they need no address and no secret.
func (c *benchCmd) environment() (launch.Env, error) {
	env, err := launch.FromEnv(os.Getenv)
	if err == nil || !slices.Contains(split(c.Backend), "mpi") {
		return env, err
	}
	return launch.FromEnv(func(name string) string {
		if value := os.Getenv(name); value != "" || name != "RINGO_BACKEND" {
			return value
		}
		return "mpi"
	})
}

// measure runs the jobs one after the other, and prints each series when it is complete.
func (c *benchCmd) measure(spec benchSpec, ranks []int, backends []string) ([][]benchRow, error) {
	var all [][]benchRow
	for _, b := range backends {
		for _, n := range ranks {
			spec.Here, spec.Backend, spec.Reference = n, b, map[string]map[int]float64{}
			for _, op := range spec.Ops {
				spec.Reference[op] = map[int]float64{}
				for _, s := range spec.Sizes {
					if c.Device != "cpu" {
						continue
					}
					reference, err := measureReference(findBenchOp(op), b, n, s)
					if err != nil {
						return all, err
					}
					spec.Reference[op][s] = reference
				}
			}
			err := runBench(spec, n, func(rows []benchRow) {
				all = append(all, rows)
				c.print(rows)
			})
			if err != nil {
				return all, err
			}
		}
	}
	return all, nil
}

func (c *benchCmd) print(rows []benchRow) {
	if !c.JSON {
		writeSeries(os.Stdout, rows)
	}
}

// report writes what comes after all series: JSON and the picture. It returns an error if a result was wrong.
func (c *benchCmd) report(all [][]benchRow) error {
	rows := slices.Concat(all...)
	if c.JSON {
		if rows == nil {
			rows = []benchRow{}
		}
		if err := printJSON(rows); err != nil {
			return err
		}
	}
	if c.Plot != "" && len(rows) > 0 {
		if err := plotBench(c.Plot, all); err != nil {
			return err
		}
	}
	for _, r := range rows {
		if !r.Correct {
			return fmt.Errorf("%s of %d bytes among %d ranks (%s, %s): the result is wrong", r.Op, r.Bytes, r.Ranks, r.Backend, r.Algo)
		}
	}
	return nil
}

// usage returns an error of the command line.
func usage(format string, a ...any) error { return usageOf("bench", format, a...) }

func usageOf(command, format string, a ...any) error {
	return &launch.ExitError{Code: 2, Text: fmt.Sprintf(format, a...) + " (see ringo " + command + " -h)"}
}

func (c *benchCmd) ops() ([]string, error) {
	if c.Ops == "all" {
		return benchNames(), nil
	}
	ops := split(c.Ops)
	for _, name := range ops {
		if findBenchOp(name) == nil {
			return nil, usage("-ops %s: no operation is called %q; there are all, %s", c.Ops, name, strings.Join(benchNames(), ", "))
		}
	}
	if len(ops) == 0 {
		return nil, usage("-ops is empty")
	}
	return ops, nil
}

// jobs returns the numbers of ranks and the backends of the jobs to start.
func (c *benchCmd) jobs(env launch.Env) (ranks []int, backends []string, err error) {
	list := c.Ranks
	if list == "" {
		list = "2"
		if c.Faults {
			list = "3"
		}
	}
	for _, s := range split(list) {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > 1024 {
			return nil, nil, usage("-ranks %s: %q is no number of ranks", c.Ranks, s)
		}
		if env.Source != "" && c.Ranks != "" && n != env.Size {
			return nil, nil, usage("-ranks %d, but %s started %d", n, env.Source, env.Size)
		}
		ranks = append(ranks, n)
	}
	backends = split(c.Backend)
	for i, b := range backends {
		if known := engines[c.Device]; !slices.Contains(known, b) && known != nil {
			return nil, nil, usage("-backend %s: %q is not %s", c.Backend, b, strings.Join(known, " or "))
		}
		if c.Faults && b == "local" {
			backends[i] = "tcp" // the default here, because goroutines cannot be killed
		}
		if b != "local" && env.Source == "" && runtime.GOOS != "linux" && runtime.GOOS != "darwin" {
			return nil, nil, usage("-backend %s: ranks as processes need Linux or macOS", b)
		}
	}
	if len(ranks) == 0 || len(backends) == 0 {
		return nil, nil, usage("-ranks and -backend must name something")
	}
	switch {
	case c.Faults && slices.Contains(backends, "mpi"):
		return nil, nil, usage("-faults goes with shm and tcp: mpiexec ends the job of a killed rank")
	case env.Source != "" && c.Device == "cpu" && (env.Backend == "mpi" || slices.Contains(backends, "mpi")):
		backends = []string{"mpi"}
	case env.Source != "":
		backends = []string{betweenProcesses[c.Device]} // this backend has the names of algorithms
	}
	return ranks, backends, nil
}

// engines are the backends that -backend can name, by device. betweenProcesses are the backends of a launcher's ranks.
var (
	engines          = map[string][]string{"cpu": {"local", "shm", "tcp", "mpi"}, "cuda": {"local", "nccl"}}
	betweenProcesses = map[string]string{"cpu": "tcp", "cuda": "nccl"}
)

// checkDevice returns an error that says in a sentence why ranks on a device cannot be measured.
func (c *benchCmd) checkDevice(ranks []int, backends []string, launcher string) error {
	if engines[c.Device] == nil {
		return usage("-device %s: it is cpu or cuda", c.Device)
	}
	if c.Device == "cpu" {
		return nil
	}
	if c.Compute != 0 || c.Staged {
		return usage("-compute and -staged are of ranks in host memory")
	}
	n, err := cuda.CountGPUs()
	if err != nil {
		return err
	}
	if most := slices.Max(ranks); launcher == "" && slices.Contains(backends, "nccl") && most > n {
		return fmt.Errorf("-backend nccl: %d ranks need as many GPUs, and there are %d; -backend local shares them", most, n)
	}
	return nil
}

func split(list string) []string {
	var out []string
	for _, s := range strings.Split(list, ",") {
		if s = strings.TrimSpace(s); s != "" {
			out = append(out, s)
		}
	}
	return out
}

// algosOf returns the algorithms with which to measure op; "" is the default choice.
func algosOf(op *benchOp, list, backend string) []string {
	names := []string{"direct"}
	switch backend {
	case "tcp":
		names = algo.Names(op.kind)
	case "mpi":
		names = append([]string{"mpi"}, algo.Names(op.kind)...)
	case "nccl":
		names = []string{"nccl"}
	}
	switch {
	case list == "" || op.name == "send":
		return []string{""}
	case list == "all":
		return names
	}
	return split(list)
}

// checkAlgos returns an error if an algorithm cannot do an operation.
func checkAlgos(ops []string, list, backend string) error {
	for _, name := range ops {
		op := findBenchOp(name)
		has := algosOf(op, "all", backend)
		for _, a := range algosOf(op, list, backend) {
			if a != "" && !slices.Contains(has, a) {
				return usage("-algo %s: %s cannot do %s on %s, which has: %s", list, a, name, backend, strings.Join(has, ", "))
			}
		}
	}
	return nil
}

// parseSizes reads a list such as "4,64K,1M-64M".
func parseSizes(list string) ([]int, error) {
	out, wrong := ranged(list, "-")
	switch {
	case wrong != "":
		return nil, usage("-sizes %s: %q is neither a size such as 64K nor a range such as 1K-1M", list, wrong)
	case len(out) == 0:
		return nil, usage("-sizes is empty")
	}
	return out, nil
}

// ranged reads a list of sizes and ranges, and sorts it. A range goes up in factors of four and includes its last number. wrong is what
// is neither.
func ranged(list, dash string) (out []int, wrong string) {
	for _, item := range split(list) {
		from, to, isRange := strings.Cut(item, dash)
		lo, ok := parseSize(from)
		hi := lo
		if isRange && ok {
			hi, ok = parseSize(to)
		}
		if !ok || hi < lo {
			return nil, item
		}
		for ; lo < hi; lo *= 4 {
			out = append(out, lo)
		}
		out = append(out, hi)
	}
	slices.Sort(out)
	return slices.Compact(out), ""
}

// maxBytes is the size of the largest buffer that can be measured.
const maxBytes = 8 << 30

// parseSize reads a number of bytes such as 64, 64K or 64KiB.
func parseSize(s string) (int, bool) {
	unit := 1
	s = strings.NewReplacer("KIB", "K", "MIB", "M", "GIB", "G").Replace(strings.ToUpper(s))
	for i, suffix := range []string{"K", "M", "G"} {
		if t, ok := strings.CutSuffix(s, suffix); ok {
			s, unit = t, 1<<(10*(i+1))
		}
	}
	n, err := strconv.Atoi(s)
	return n * unit, err == nil && n > 0 && n <= maxBytes/unit
}
