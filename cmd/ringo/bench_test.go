package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/curve"
	"github.com/ringo-ml/ringo/internal/mpi"
	"github.com/ringo-ml/ringo/internal/reliability"
)

func benchRows(t *testing.T, args ...string) []benchRow {
	t.Helper()
	stdout, stderr, code := run(t, append([]string{"bench", "-json"}, args...)...)
	require.Equal(t, 0, code, stdout+stderr)
	var rows []benchRow
	require.NoError(t, json.Unmarshal([]byte(stdout), &rows), stdout)
	return rows
}

// Every operation gives right results, with the bytes and rates that the flags ask for.
func TestBenchLocal(t *testing.T) {
	t.Parallel()
	rows := append(benchRows(t, "-ops", "all", "-sizes", "4095,4K,4097", "-ranks", "3"), benchRows(t, "-sizes", "4,4K", "-ranks", "1,2")...)
	seen := map[string]int{}
	for _, r := range rows {
		seen[r.Op]++
		assert.True(t, r.Correct, "%+v", r)
		assert.Equal(t, "local", r.Backend)
		assert.Equal(t, "direct", r.Algo)
		assert.Positive(t, r.US, "%+v", r)
		assert.LessOrEqual(t, r.MinUS, r.US)
		assert.LessOrEqual(t, r.US, r.MaxUS)
		assert.Positive(t, r.Calls)
		op := findBenchOp(r.Op)
		if r.Op == "barrier" {
			assert.Zero(t, r.Bytes)
			continue
		}
		assert.Contains(t, []int{4, 8, 4092, 4096}, r.Bytes)
		assert.InDelta(t, float64(r.Bytes)/r.US/1e3, r.AlgBW, 1e-9)
		assert.InDelta(t, r.AlgBW*op.bus(float64(r.Ranks)), r.BusBW, 1e-9)
		assert.True(t, r.FitUS == 0 || r.Ranks < 3 && r.US <= farOff*r.FitUS && r.FitUS <= farOff*r.US, "%+v", r)
		assert.Equal(t, r.Ranks > 1, r.Reference > 0)
	}
	for _, name := range benchNames() {
		want := 1
		if name == "allreduce" {
			want = 5
		}
		assert.Equal(t, want, seen[name], name)
	}
}

// Ranks as processes: each algorithm by its name, and the default choice.
func TestBenchProcesses(t *testing.T) {
	t.Parallel()
	needsProcesses(t)
	rows := benchRows(t, "-ops", "allreduce", "-sizes", "1K", "-ranks", "3", "-backend", "tcp", "-algo", "all")
	var names []string
	for _, r := range rows {
		names = append(names, r.Algo)
		assert.True(t, r.Correct, "%+v", r)
		assert.Equal(t, "tcp", r.Backend)
		assert.Positive(t, r.Reference)
	}
	assert.Equal(t, algo.Names(findBenchOp("allreduce").kind), names)
	rows = benchRows(t, "-ops", "alltoallv,send", "-sizes", "1K", "-ranks", "2", "-backend", "tcp", "-compute", "20us")
	require.Len(t, rows, 2)
	for _, r := range rows {
		assert.True(t, r.Correct, "%+v", r)
		assert.EqualValues(t, 20, r.Compute)
	}
}

// Ranks that mpiexec starts, for ringo bench and by hand: MPI's collectives and the algorithms over its messages.
func TestBenchMPI(t *testing.T) {
	if os.Getenv("RINGO_MPI_LIB") == "" {
		t.Skip("RINGO_MPI_LIB does not name the library of MPI for this test, such as libmpi.so.40")
	}
	rows := append(benchRows(t, "-backend", "mpi", "-ops", "all", "-sizes", "4,64K", "-ranks", "3"),
		benchRows(t, "-backend", "mpi", "-sizes", "1K", "-ranks", "1,2", "-algo", "all")...)
	var byName []string
	for _, r := range rows {
		assert.True(t, r.Correct, "%+v", r)
		assert.Equal(t, "mpi", r.Backend)
		assert.Positive(t, r.US, "%+v", r)
		if r.Ranks == 2 {
			byName = append(byName, r.Algo)
		}
	}
	assert.Equal(t, append([]string{"mpi"}, algo.Names(backend.AllReduce)...), byName)
	assert.Len(t, rows, 2*len(benchOps)-1+2*len(byName)) // a barrier has one size
	started, err := mpi.Command(t.Context(), 2, os.Args[0], "bench", "-backend", "mpi", "-sizes", "1K", "-algo", "mpi,ring")
	require.NoError(t, err)
	text, err := started.CombinedOutput()
	require.NoError(t, err, "%s", text)
	assert.Equal(t, 2, strings.Count(string(text), "allreduce, 2 ranks, mpi"), "%s", text)
	_, stderr, code := run(t, "bench", "-backend", "mpi", "-algo", "bruck")
	assert.Equal(t, 2, code)
	assert.Contains(t, stderr, "bruck cannot do allreduce on mpi, which has: mpi, linear, direct, ring")
}

// The table, the picture, and one rank of a job that another launcher started.
func TestBenchTableAndPlot(t *testing.T) {
	t.Parallel()
	needsProcesses(t)
	picture := filepath.Join(t.TempDir(), "out.svg")
	stdout, stderr, code := run(t, "run", "-n", "2", os.Args[0], "bench", "-sizes", "1K-16K", "-plot", picture, "-ops", "allreduce,barrier")
	require.Equal(t, 0, code, stdout+stderr)
	assert.Regexp(t, `\[0\] allreduce, 2 ranks, (shm|tcp); (theory T = |no line fits T)`, stdout)
	assert.Equal(t, 3, strings.Count(stdout, "yes")-1)
	svg, err := os.ReadFile(picture)
	require.NoError(t, err)
	if reliability.Long(t) {
		stdout, stderr, code = run(t, "run", "-raw", "-n", "2", os.Args[0], "bench", "-json", "-sizes", "1K")
		require.Equal(t, 0, code, stdout+stderr)
		var rows []benchRow
		require.NoError(t, json.Unmarshal([]byte(stdout), &rows), stdout)
		assert.Len(t, rows, 1)
	}
	for _, want := range []string{"<svg", "bus bandwidth", ">2 ranks, ", ">allreduce ", "16K"} {
		assert.Contains(t, string(svg), want)
	}
}

func TestLongBenchTableAndPlot(t *testing.T) { reliability.AsLong(t, TestBenchTableAndPlot) }

// Buffers on GPUs: ranks of one process share a GPU, and processes have one each.
func TestBenchOnGPUs(t *testing.T) {
	emu.Start(t, emu.Config{})
	ops := []string{"allreduce", "alltoallv", "send"}
	if reliability.Long(t) {
		ops = benchNames()
	}
	rows := benchRows(t, "-device", "cuda", "-ops", strings.Join(ops, ","), "-sizes", "4K", "-ranks", "3")
	assert.Len(t, rows, len(ops))
	if reliability.Long(t) {
		rows = append(rows, benchRows(t, "-device", "cuda", "-sizes", "4,4K", "-ranks", "1,2")...)
	}
	for _, r := range rows {
		assert.True(t, r.Correct, "%+v", r)
		assert.Equal(t, "cuda local direct", r.Device+" "+r.Backend+" "+r.Algo)
		assert.Positive(t, r.US, "%+v", r)
		assert.Zero(t, r.Reference)
	}
	stdout, _, code := run(t, "bench", "-device", "cuda", "-sizes", "4")
	assert.Zero(t, code)
	assert.Contains(t, stdout, "allreduce, 2 ranks, local on cuda\n")
	_, stderr, code := run(t, "bench", "-device", "cuda", "-backend", "nccl", "-ranks", "3")
	assert.NotZero(t, code)
	assert.Contains(t, stderr, "-backend nccl: 3 ranks need as many GPUs, and there are 2; -backend local shares them")
}

func TestLongBenchOnGPUs(t *testing.T) { reliability.AsLong(t, TestBenchOnGPUs) }

// Processes that have a GPU each, over NCCL.
func TestBenchOverNCCL(t *testing.T) {
	needsProcesses(t)
	emu.Start(t, emu.Config{})
	ops := []string{"allreduce", "alltoallv", "send"}
	if reliability.Long(t) {
		ops = benchNames()
	}
	rows := benchRows(t, "-device", "cuda", "-backend", "nccl", "-ops", strings.Join(ops, ","), "-sizes", "4K", "-ranks", "2")
	assert.Len(t, rows, len(ops))
	for _, r := range rows {
		assert.True(t, r.Correct, "%+v", r)
		assert.Equal(t, "cuda nccl 2", fmt.Sprint(r.Device, " ", r.Backend, " ", r.Ranks))
		assert.Positive(t, r.US, "%+v", r)
	}
	if reliability.Long(t) { // TestBenchOnGPUs has the table
		stdout, _, code := run(t, "bench", "-device", "cuda", "-backend", "nccl", "-sizes", "4", "-ranks", "2")
		assert.Zero(t, code)
		assert.Contains(t, stdout, "allreduce, 2 ranks, nccl on cuda\n")
	}
}

func TestLongBenchOverNCCL(t *testing.T) { reliability.AsLong(t, TestBenchOverNCCL) }

// Without NVIDIA's driver one sentence says so.
func TestBenchWithoutGPU(t *testing.T) {
	t.Parallel()
	cmd, _, stderr, _ := command(t, "bench", "-device", "cuda")
	cmd.Env = append(cmd.Env, "RINGO_CUDA_LIB=/none")
	assert.Error(t, cmd.Run())
	assert.Regexp(t, `^ringo: (error: )?no CUDA driver: [^\n]+\n$`, stderr.String())
}

func TestBenchUsage(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"-ops allsum":               `no operation is called "allsum"; there are all, allreduce, reduce, `,
		"-ops ,":                    "-ops is empty",
		"-sizes 1X":                 `-sizes 1X: "1X" is neither a size such as 64K nor a range such as 1K-1M`,
		"-sizes 4K-1K":              `"4K-1K" is neither`,
		"-sizes 100G":               `"100G" is neither`,
		"-ranks 0":                  `"0" is no number of ranks`,
		"-backend gloo":             `"gloo" is not local or shm or tcp or mpi`,
		"-backend mpi -faults":      "-faults goes with shm and tcp: mpiexec ends the job of a killed rank",
		"-device cuda -backend mpi": `"mpi" is not local or nccl`,
		"-backend nccl":             `"nccl" is not local or shm or tcp or mpi`,
		"-device cuda -backend tcp": `"tcp" is not local or nccl`,
		"-device tpu":               "-device tpu: it is cpu or cuda",
		"-device cuda -compute 1us": "-compute and -staged are of ranks in host memory",
		"-faults -device cuda":      "-fit and -faults go with none of",
		"-algo ring":                "ring cannot do allreduce on local, which has: direct",
		"-backend tcp -algo bruck":  "bruck cannot do allreduce on tcp, which has: linear, direct, ring",
		"-plot out.png":             "must end in .svg",
		"-compute=-1us":             "-compute -1µs is negative",
		"-fit -faults":              "-fit and -faults go with none of",
		"-faults -ranks 1":          "-faults needs 2 ranks or more",
		"-explain -faults":          "-explain with neither -fit nor -faults",
		"-hosts 2":                  "-hosts goes with -explain",
		"-explain -hosts 3":         "-hosts 3: 2 ranks lie on 1 to 2 hosts",
		"-faults -algo ring":        "-fit and -faults go with none of",
		"-compute soon":             "-compute: expected duration",
		"-ops barrier -plot /x.svg": "a barrier has no bandwidth",
	} {
		stdout, stderr, code := run(t, append([]string{"bench"}, strings.Fields(args)...)...)
		assert.Equal(t, 2, code, args)
		assert.Contains(t, stdout+stderr, want, args)
	}
	cmd, _, stderr, _ := command(t, "bench", "-ranks", "3")
	cmd.Env = append(cmd.Env, "RINGO_RANK=0", "RINGO_WORLD_SIZE=1")
	assert.Error(t, cmd.Run())
	assert.Contains(t, stderr.String(), "-ranks 3, but ringo started 1")
	stdout, _, code := run(t, "bench", "-help")
	assert.Zero(t, code)
	assert.Contains(t, stdout, "busbw = algbw × 2(n−1)/n   allreduce")
}

// All ranks notice faults in time, and name them.
func TestBenchFaults(t *testing.T) {
	t.Parallel()
	needsProcesses(t)
	if !reliability.Long(t) {
		checkFaults(t, "shm", "send")
		return
	}
	for _, backend := range []string{"shm", "tcp"} {
		for ops := range slices.Chunk(append([]string{"send"}, benchNames()...), 4) {
			t.Run(backend+" "+ops[0], func(t *testing.T) {
				t.Parallel()
				checkFaults(t, backend, ops...)
			})
		}
	}
}

func TestLongBenchFaults(t *testing.T) { reliability.AsLong(t, TestBenchFaults) }

func checkFaults(t *testing.T, backend string, ops ...string) {
	stdout, stderr, code := run(t, "bench", "-faults", "-json", "-ops", strings.Join(ops, ","), "-backend", backend)
	var results []faultResult
	require.NoError(t, json.Unmarshal([]byte(stdout), &results))
	assert.Len(t, results, 3*len(ops))
	late := false
	for _, r := range results {
		assert.Equal(t, r.Op == "send", r.Ranks == 2, "%+v", r)
		late = late || r.Seconds > r.Bound // on a busy machine
		assert.True(t, r.Pass || strings.HasPrefix(r.Why, "too late"), "%+v", r)
		assert.Less(t, r.Seconds, r.Bound+reliability.Slack.Seconds())
	}
	assert.Equal(t, late, code != 0, stdout+stderr)
}

func TestJudge(t *testing.T) {
	at := func(ms int64) int64 { return 1_000_000_000 + ms*1_000_000 }
	fault := faultEvent{"fault", 2, at(0), ""}
	event := func(kind string, rank int, ms int64, text string) faultEvent {
		return faultEvent{kind, rank, at(ms), text}
	}
	named := "ranks 0, 2: no progress"
	for _, c := range []struct {
		kind   string
		events []faultEvent
		why    string
	}{
		{"kill", []faultEvent{fault, event("error", 0, 5, "rank 2: closed"), event("error", 1, 900, named)}, ""},
		{"kill", []faultEvent{event("error", 0, 5, "rank 2: closed"), event("error", 1, 9, named)}, "the fault did not happen"},
		{"kill", []faultEvent{fault, event("error", 0, 5, "rank 2: closed")}, "1 rank said nothing"},
		{"kill", []faultEvent{fault, event("error", 0, 5, "rank 1: closed"), event("error", 1, 9, named)},
			"rank 0 does not name rank 2: rank 1: closed"},
		{"kill", []faultEvent{fault, event("error", 0, 5, named), event("error", 1, 1009, named)}, "too late"},
		{"stop", []faultEvent{fault, event("error", 0, 1100, named), event("error", 1, 1900, named)}, ""},
		{"slow", []faultEvent{fault, event("done", 0, 1100, ""), event("error", 1, 900, "x"), event("done", 2, 900, "")}, "rank 1: error x"},
	} {
		r := judge(c.kind, 3, c.events)
		assert.Equal(t, c.why, r.Why)
		assert.Equal(t, c.why == "", r.Pass)
	}
}

func TestParseSizes(t *testing.T) {
	sizes, err := parseSizes("1M,4,1k-20K,1M")
	require.NoError(t, err)
	assert.Equal(t, []int{4, 1 << 10, 4 << 10, 16 << 10, 20 << 10, 1 << 20}, sizes)
	alike, err := parseSizes("1MiB,4,1kib-20KiB,1mib")
	require.NoError(t, err)
	assert.Equal(t, sizes, alike)
	for _, wrong := range []string{"1iB", "1MB", "1MiBM", "MiB", "1Mi", "9GiB"} {
		_, err := parseSizes(wrong)
		assert.ErrorContains(t, err, wrong)
	}
	for n, want := range map[int]string{1: "1", 1 << 10: "1K", 1536: "1536", 3 << 20: "3M", 1 << 30: "1G"} {
		assert.Equal(t, want, sizeName(n))
	}
}

// A line is found if there is one, also with noise. It is never below zero.
func TestFitLine(t *testing.T) {
	series := func(us ...float64) []benchRow {
		var rows []benchRow
		for i, x := range us {
			rows = append(rows, benchRow{Bytes: 1000 * i, US: x})
		}
		return rows
	}
	for _, c := range []struct {
		rows             []benchRow
		latency, perByte float64
		ok               bool
	}{
		{series(5, 6, 7, 8), 5, 0.001, true},
		{series(5), 0, 0, false},
		{series(5, 4, 3), 3.75, 0, true},
		{series(0, 1, 2.2, 3.5), 0, 0.0011, true},
	} {
		latency, perByte, ok := fitLine(c.rows)
		assert.Equal(t, c.ok, ok)
		assert.InDelta(t, c.latency, latency, 0.2)
		assert.InDelta(t, c.perByte, perByte, 0.0001)
	}
	rows := series(5, 6, 7)
	fitSeries(rows)
	assert.InDelta(t, 1.0, rows[2].Rate, 1e-6)
	assert.InDelta(t, 7.0, rows[2].FitUS, 1e-6)
	for want, rows := range map[string][]benchRow{"theory T = 5 µs + bytes / (1 GB/s)\n": rows,
		"theory T = 3.67 µs: more bytes took no longer\n": series(5, 4, 3), "ranks,  on \n": series(5),
		"; no line fits T\n": {{Bytes: 4, US: 0.8}, {Bytes: 1 << 20, US: 100}, {Bytes: 4 << 20, US: 3000}}} {
		fitSeries(rows)
		var out strings.Builder
		writeSeries(&out, rows)
		assert.Contains(t, out.String(), want)
		for _, r := range rows {
			assert.True(t, r.FitUS == 0 || r.US <= farOff*r.FitUS && r.FitUS <= farOff*r.US, "%+v", r)
		}
	}
}

// The explanation has every candidate with its cost, the chosen one, and whether it was measured.
func TestBenchExplain(t *testing.T) {
	t.Parallel()
	stdout, stderr, code := run(t, "bench", "-explain", "-ops", "allreduce,gather,broadcast", "-sizes", "1K,16M", "-ranks", "64",
		"-hosts", "8")
	require.Zero(t, code, stderr)
	assert.Contains(t, stdout, "allreduce of 1K, 64 ranks on 8 hosts: halving-doubling (the cheapest by the model)\n")
	assert.Contains(t, stdout, "allreduce of 16M, 64 ranks on 8 hosts: hierarchical (the cheapest by the model)\n")
	assert.Regexp(t, `\* hierarchical +\d+ +14 +14 +\d\.\d+ +1\.75 +14 `, stdout, "what crosses is 2S(N−1)")
	assert.Contains(t, stdout, "gather of 1K, 64 ranks on 8 hosts: linear (there is no other)\n")
	assert.Equal(t, 1, strings.Count(stdout, "gather of "), "no size of it has a choice")
	for _, name := range append(algo.Names(backend.AllReduce), algo.Names(backend.Broadcast)[2:]...) {
		assert.Regexp(t, `(?m)^[* ] `+name+` +\d`, stdout)
	}
	stdout, _, code = run(t, "bench", "-explain", "-sizes", "16K", "-ranks", "4")
	assert.Zero(t, code)
	assert.Contains(t, stdout, "allreduce of 16K, 4 ranks on 1 hosts: linear (as measured: dist/algo/tuner.json)\n")
	assert.NotContains(t, stdout, "ring", "inside a host reductions are in rank order")
	for _, flag := range []string{"-algo=ring", "-json", "-plot=x.svg", "-compute=1us", "-staged"} {
		_, stderr, code := run(t, "bench", "-explain", flag)
		assert.Equal(t, 2, code)
		assert.Contains(t, stderr, "-explain goes with none of", flag)
	}
}

// An algorithm replaces the plain one only if it is clearly faster at two consecutive sizes.
func TestFitRules(t *testing.T) {
	point := func(op string, ranks, bytes int, us map[string][]float64) fitPoint {
		return fitPoint{op, ranks, 1, bytes, us}
	}
	us := func(linear, chain float64) map[string][]float64 { // in one round both are slow, in one the algorithm is fast by luck
		a, b := slices.Repeat([]float64{linear}, fitRounds), slices.Repeat([]float64{chain}, fitRounds)
		a[3], b[3], a[5] = 10*linear, 10*chain, linear/10
		return map[string][]float64{"linear": a, "chain": b}
	}
	var points []fitPoint
	for _, n := range fitRanks {
		for i, bytes := range []int{1 << 10, 8 << 10, 64 << 10, 512 << 10} {
			chain := 9.0
			switch {
			case n == 2 && i < 2, n == 3 && i == 1: // two sizes for two ranks; only one for three
				chain = 5
			case n == 2:
				chain = 9.2 // not clearly faster
			}
			points = append(points, point("broadcast", n, bytes, us(10, chain)))
		}
	}
	points = points[:len(points)-4] // four ranks are not measured
	assert.Equal(t, []algo.Rule{
		{Op: "broadcast", Ranks: [2]int{2, 2}, Hosts: [2]int{1, 1}, Use: []algo.Use{{Max: 16 << 10, Algo: "chain"}, {Algo: "linear"}}},
		{Op: "broadcast", Ranks: [2]int{3, 3}, Hosts: [2]int{1, 1}, Use: []algo.Use{{Algo: "chain"}}},
	}, fitBands("broadcast", 1, points))
	rules := fitRules(points)
	_, err := algo.ParseTable((&algo.Table{Made: "test", Measured: fitAreas(points), Rules: rules}).Encode())
	require.NoError(t, err)
	assert.Equal(t, []algo.Area{{Ranks: [2]int{2, 4}, Hosts: [2]int{1, 1}}}, fitAreas(points))
	two := append(points, fitPoint{"broadcast", 2, 2, 8, nil})
	assert.Equal(t, []algo.Area{{Ranks: [2]int{2, 4}, Hosts: [2]int{1, 1}}, {Ranks: [2]int{2, 4}, Hosts: [2]int{2, 2}, Max: 4 << 20}},
		fitAreas(two))
	for _, r := range rules {
		assert.NotEqual(t, []algo.Use{{Algo: "linear"}}, r.Use)
	}
}

// Backends differ by hue, numbers of ranks by shade, and each has its line of the legend.
func TestBenchColors(t *testing.T) {
	var all [][]benchRow
	for _, backend := range []string{"local", "shm", "tcp"} {
		for _, ranks := range []int{2, 4} {
			all = append(all, []benchRow{{Op: "allreduce", Backend: backend, Ranks: ranks, Bytes: 1024, US: 1, BusBW: 1}})
		}
	}
	file := filepath.Join(t.TempDir(), "p.svg")
	require.NoError(t, plotBench(file, all))
	svg, err := os.ReadFile(file)
	require.NoError(t, err)
	colors := map[string]bool{}
	for i, rows := range all {
		c := curve.Shade(i/2, 3, i%2, 2)
		color := fmt.Sprintf("#%02X%02X%02X", c.R, c.G, c.B)
		colors[color] = true
		assert.GreaterOrEqual(t, strings.Count(string(svg), color), 2, "its line or mark, and the legend's")
		assert.Equal(t, 1, strings.Count(string(svg), ">"+jobName(rows)+"<"), jobName(rows))
	}
	assert.Len(t, colors, len(all))
}
