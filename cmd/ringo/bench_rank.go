package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/launch"
	"github.com/ringo-ml/ringo/internal/mpi"
	"github.com/ringo-ml/ringo/tensor"
)

// benchSpec is what the ranks of a job measure.
type benchSpec struct {
	Ops       []string
	Sizes     []int
	Algo      string
	Compute   time.Duration
	Staged    bool
	Device    string                     // the kind of device that has the buffers
	Here      int                        // ranks on this host
	Backend   string                     // the one of -backend, or that of a launcher's ranks
	Reference map[string]map[int]float64 // GB/s by operation and size; empty: not known
	Fault     *faultSpec                 `json:",omitempty"`
	Fit       int                        // not 0: compare algorithms for a table, on so many hosts
	Topo      bool                       // measure pairs of ranks instead
}

// benchRow is a line of the result, as -json prints it. Times are per call, in µs.
type benchRow struct {
	Op        string  `json:"op"`
	Bytes     int     `json:"bytes"`
	Ranks     int     `json:"ranks"`
	Device    string  `json:"device"`
	Backend   string  `json:"backend"` // the engine that moved the bytes
	Algo      string  `json:"algo"`    // the algorithm that ran
	US        float64 `json:"us"`      // median over blocks of calls
	MinUS     float64 `json:"min_us"`
	MaxUS     float64 `json:"max_us"`
	Calls     int     `json:"calls"`
	Compute   float64 `json:"compute_us"` // computation between calls; not in us
	AlgBW     float64 `json:"algbw"`      // GB/s
	BusBW     float64 `json:"busbw"`
	Reference float64 `json:"reference"` // what busbw can be; 0: not known
	FitUS     float64 `json:"fit_us"`    // time by the fitted line; 0: too few sizes, or no line fits
	Latency   float64 `json:"latency"`   // of that line, µs
	Rate      float64 `json:"rate"`      // its bytes/bandwidth, GB/s; 0: more bytes took no longer
	Correct   bool    `json:"correct"`
}

// rowTime is how long a row is measured. Tests have less time.
var rowTime = 100 * time.Millisecond

const (
	maxBlocks = 25
	minBlocks = 3
	opTimeout = time.Minute
)

// runBench runs a job of n ranks and calls emit for each series of rows, an operation by an algorithm.
func runBench(spec benchSpec, n int, emit func([]benchRow)) error {
	if spec.Backend == "local" {
		device, err := dist.Devices(spec.Device)
		if err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		cfg := dist.Config{Ranks: n, Exact: true, Threads: 1, Timeout: opTimeout, Log: os.Stderr, Device: device}
		return dist.Run(ctx, cfg, func(_ context.Context, r *dist.Rank) error {
			return benchRank(r, &spec, emit)
		})
	}
	start := runRanks
	if spec.Backend == "mpi" {
		start = runMPI
	}
	var series []benchRow
	return start(spec, n, opTimeout, os.Stderr, func(_ int, line []byte) bool {
		if json.Unmarshal(line, &series) != nil {
			return false
		}
		emit(series)
		series = nil
		return true
	})
}

// runMPI does what runRanks does by mpiexec.
func runMPI(spec benchSpec, n int, timeout time.Duration, stderr io.Writer, line func(rank int, text []byte) bool) error {
	args, err := spec.command()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd, err := mpi.Command(ctx, n, args[0], args[1:]...)
	if err != nil {
		return err
	}
	cmd.Env = append(cmd.Env, "RINGO_BACKEND=mpi", "RINGO_THREADS=1", "RINGO_TIMEOUT="+timeout.String(), "MALLOC_ARENA_MAX=1") // see dist/mpi
	cmd.Stdout, cmd.Stderr = &rankLines{line: line, rest: stderr}, stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", cmd.Path, err)
	}
	return nil
}

// command returns the command line of this program as a rank that does what spec says.
func (spec *benchSpec) command() ([]string, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(spec)
	return []string{program, "bench", "--spec", string(text)}, err
}

// runRanks starts n processes of this program, which do what spec says. It calls line with each line that they print; line reports
// whether it could read it.
func runRanks(spec benchSpec, n int, timeout time.Duration, stderr io.Writer, line func(rank int, text []byte) bool) error {
	args, err := spec.command()
	if err != nil {
		return err
	}
	if err := setSharedMemory(spec.Backend); err != nil {
		return err
	}
	out := &rankLines{line: line, rest: stderr}
	return launch.Run(launch.Config{Ranks: n, Args: args, Timeout: timeout,
		Threads: 1, Stdout: out, Stderr: stderr, Signals: interrupts()})
}

// setSharedMemory sets RINGO_SHM for the ranks, so that they use the backend.
func setSharedMemory(backend string) error {
	value := "1"
	if backend == "tcp" {
		value = "0"
	}
	return os.Setenv("RINGO_SHM", value)
}

// rankLines is a writer for a launcher's output, lines of the form "[rank] text" or without a rank.
type rankLines struct {
	line func(rank int, text []byte) bool
	rest io.Writer // gets lines that line cannot read
	part []byte    // of a line
}

// Write gets some lines, or parts of them.
func (w *rankLines) Write(p []byte) (int, error) {
	w.part = append(w.part, p...)
	for l := range bytes.Lines(w.part) {
		if l[len(l)-1] != '\n' {
			w.part = bytes.Clone(l)
			return len(p), nil
		}
		rank := -1
		text := l
		if at := bytes.Index(l, []byte("] ")); at > 0 {
			if _, err := fmt.Sscanf(string(l[:at]), "[%d", &rank); err == nil {
				text = l[at+2:]
			}
		}
		if !w.line(rank, bytes.TrimSpace(text)) {
			if _, err := w.rest.Write(l); err != nil {
				return 0, err
			}
		}
	}
	w.part = nil
	return len(p), nil
}

// benchWorker runs a rank that ringo bench has started.
func benchWorker(text string) error {
	var spec benchSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return usage("-spec: %v", err)
	}
	out := json.NewEncoder(os.Stdout)
	device, err := dist.Devices(spec.Device)
	if err != nil {
		return err
	}
	return dist.Run(context.Background(), dist.Config{Log: os.Stderr, Device: device}, func(_ context.Context, r *dist.Rank) error {
		switch {
		case spec.Fault != nil:
			return faultRank(r, &spec, out)
		case spec.Fit > 0:
			return fitRank(r, &spec, func(p fitPoint) error { return out.Encode(p) })
		case spec.Topo:
			return topoRank(r, func(t *topology) error { return out.Encode(t) })
		}
		return benchRank(r, &spec, func(rows []benchRow) { _ = out.Encode(rows) }) // a lost line shows as a missing row
	})
}

// underLauncher measures as one rank of a job that another launcher started; rank 0 prints.
func (c *benchCmd) underLauncher(spec benchSpec) error {
	device, err := dist.Devices(spec.Device)
	if err != nil {
		return err
	}
	cfg := dist.Config{Log: os.Stderr, Device: device}
	if spec.Backend == "mpi" {
		cfg.Backend = spec.Backend
	}
	return dist.Run(context.Background(), cfg, func(_ context.Context, r *dist.Rank) error {
		var all [][]benchRow
		err := benchRank(r, &spec, func(series []benchRow) {
			all = append(all, series)
			c.print(series)
		})
		if err != nil || r.World.Rank() != 0 {
			return err
		}
		return c.report(all)
	})
}

// benchRank measures; on rank 0 it calls emit for each series.
func benchRank(r *dist.Rank, spec *benchSpec, emit func([]benchRow)) error {
	largest := 0
	for _, s := range spec.Sizes {
		largest = max(largest, s/4)
	}
	n := r.World.Size()
	b := &bencher{r: r, spec: spec, control: r.World.With(dist.Name("control"))}
	b.x, b.y = buffer(r, spec, largest+2*n), buffer(r, spec, largest+2*n)
	b.work.calibrate(spec.Compute)
	for _, name := range spec.Ops {
		op := findBenchOp(name)
		if name == "send" && n == 1 {
			continue
		}
		sizes := slices.CompactFunc(slices.Clone(spec.Sizes), func(a, b int) bool { // sizes are sorted; a barrier has only one
			return benchElems(op, a, n) == benchElems(op, b, n)
		})
		for _, a := range algosOf(op, spec.Algo, r.Engine()) {
			var series []benchRow
			for _, size := range sizes {
				row, err := b.row(op, a, size)
				if err != nil {
					return err
				}
				row.Reference = spec.Reference[name][size]
				series = append(series, row)
			}
			fitSeries(series)
			if r.World.Rank() == 0 {
				emit(series)
			}
		}
	}
	return nil
}

// buffer returns memory that peers use in place if the engine can do so, as for buckets and shards; otherwise ordinary memory.
func buffer(r *dist.Rank, spec *benchSpec, count int) tensor.Tensor {
	if spec.Staged {
		return tensor.New(r.Device, tensor.Float32, count)
	}
	return r.Alloc(tensor.Float32, count)
}

// bencher measures on one rank.
type bencher struct {
	r       *dist.Rank
	spec    *benchSpec
	control *dist.Group // for messages about the measurement
	x, y    tensor.Tensor
	work    computation
}

// row measures one operation of one size; all ranks return the same.
func (b *bencher) row(op *benchOp, by string, size int) (benchRow, error) {
	g := b.r.World.With(dist.Name("bench"))
	if by != "" {
		g = b.r.World.With(dist.Name("bench"), dist.Algo(op.name+":"+by))
	}
	c := newCase(op, g, size, b.x, b.y)
	for _, x := range []tensor.Tensor{c.a, c.b} {
		write(x, func(d []float32) { clear(d) }) // sums stay zero, however often they are added
	}
	blocks, calls, err := b.plan(c, rowTime, maxBlocks)
	if err != nil {
		return benchRow{}, err
	}
	us, err := b.blocks(c, blocks, calls)
	if err != nil {
		return benchRow{}, err
	}
	right, err := c.verify()
	if err != nil {
		return benchRow{}, err
	}
	wrong := []float64{0}
	if !right {
		wrong[0] = 1
	}
	if err := b.control.SumFloats(wrong); err != nil {
		return benchRow{}, err
	}
	n := float64(c.n)
	row := benchRow{Op: op.name, Bytes: c.bytes(), Ranks: c.n, Device: b.spec.Device, Backend: g.Engine(),
		Algo: ranBy(g, op.name), Calls: blocks * calls,
		Compute: b.spec.Compute.Seconds() * 1e6, US: us[len(us)/2], MinUS: us[0], MaxUS: us[len(us)-1], Correct: wrong[0] == 0}
	if row.US > 0 {
		row.AlgBW = float64(row.Bytes) / row.US / 1e3
		row.BusBW = row.AlgBW * op.bus(n)
	}
	return row, g.Close()
}

// plan warms up, at the end for a tenth of the budget: the first calls of a size take longer. Then rank 0 decides how many blocks of how
// many calls to time, to use about the budget.
func (b *bencher) plan(c *benchCase, budget time.Duration, most int) (blocks, calls int, err error) {
	total := 1
	for _, share := range [3]time.Duration{0, budget / 10, budget} {
		spent, err := b.some(c, total)
		if err != nil {
			return 0, 0, err
		}
		per := spent / time.Duration(total)
		plan := []float64{0}
		if b.r.World.Rank() == 0 {
			plan[0] = float64(min(max(int(share/max(per, 100)), min(minBlocks, most)), 100_000))
		}
		if err := b.control.SumFloats(plan); err != nil {
			return 0, 0, err
		}
		total = int(plan[0])
	}
	return min(total, most), total / min(total, most), nil
}

// some returns how long a number of calls take here.
func (b *bencher) some(c *benchCase, calls int) (time.Duration, error) {
	start := time.Now()
	for range calls {
		b.work.do()
		if err := c.op.call(c).Wait(); err != nil {
			return 0, err
		}
	}
	err := b.r.Device.Queue(0).Sync() // Wait does not wait for the device
	return time.Since(start), err
}

// blocks times calls and returns the µs per call of each block, sorted. For each block, the slowest rank counts.
func (b *bencher) blocks(c *benchCase, blocks, calls int) ([]float64, error) {
	us := make([]float64, blocks)
	if err := b.control.Barrier().Wait(); err != nil {
		return nil, err
	}
	for i := range us {
		spent, err := b.some(c, calls)
		if err != nil {
			return nil, err
		}
		us[i] = spent.Seconds() * 1e6 / float64(calls)
	}
	all, err := dist.AllGatherObject(b.control, us)
	if err != nil {
		return nil, err
	}
	for i := range us {
		for _, other := range all {
			us[i] = max(us[i], other[i])
		}
		us[i] -= b.spec.Compute.Seconds() * 1e6 * max(1, float64(b.spec.Here)/float64(runtime.GOMAXPROCS(0)))
		if c.op.name == "send" {
			us[i] /= 2
		}
	}
	slices.Sort(us)
	return us, nil
}

// ranBy returns the algorithms that ran an operation.
func ranBy(g *dist.Group, op string) string {
	var names []string
	for name := range g.Stats().Ran {
		if kind, by, _ := strings.Cut(name, ":"); kind == op {
			names = append(names, by)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

// computation is work between calls that always takes the same time when it runs alone.
type computation struct {
	rounds int
	x      float64
}

// calibrate makes it take the time d.
func (w *computation) calibrate(d time.Duration) {
	if d == 0 {
		return
	}
	const rounds = 100_000
	best := time.Hour
	w.rounds = rounds
	for range 20 {
		start := time.Now()
		w.do()
		best = min(best, time.Since(start))
	}
	w.rounds = int(float64(rounds) * d.Seconds() / best.Seconds())
}

func (w *computation) do() {
	x := w.x
	for range w.rounds {
		x = x*0.5 + 1
	}
	w.x = x
}
