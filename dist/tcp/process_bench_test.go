package tcp

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/tensor"
)

// BenchmarkProcesses all-reduces float32 between processes of this host over loopback: the figures to compare with Gloo's.
// The benchmark is rank 0; the others run TestHelperBench.
func BenchmarkProcesses(b *testing.B) {
	for _, n := range []int{2, 4} {
		for _, mode := range []string{"tls", "plain"} {
			b.Run(fmt.Sprintf("n=%d/%s", n, mode), func(b *testing.B) {
				w := startBench(b, n, mode == "plain")
				for _, bytes := range []int{4, 1 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20} {
					for _, name := range benchAlgos() {
						b.Run(fmt.Sprintf("bytes=%d/algo=%s", bytes, name), func(b *testing.B) { w.measure(b, bytes, name) })
					}
				}
				require.NoError(b, w.order(0, 0, benchAlgos()[0]))
			})
		}
	}
}

// benchAlgos is what RINGO_BENCH_ALGOS lists; "" is what Choose takes.
func benchAlgos() []string { return strings.Split(os.Getenv("RINGO_BENCH_ALGOS"), ",") }

// benchRank is one rank of the benchmark.
type benchRank struct {
	be    backend.Backend
	seq   uint64
	what  []int64 // bytes, times, algorithm: rank 0 says what comes next
	names []string
	x     []float32
}

func newBenchRank(e *Engine, n int) (*benchRank, error) {
	ranks := make([]int, n)
	for i := range ranks {
		ranks[i] = i
	}
	be, err := e.Open(backend.Spec{ID: 1, Name: "world", Ranks: ranks, Rank: e.cfg.Rank})
	return &benchRank{be: be, what: make([]int64, 3), names: benchAlgos(), x: make([]float32, 16<<20)}, err
}

func (w *benchRank) do(op backend.Op) error {
	w.seq++
	op.Seq = w.seq
	if err := w.be.Issue(&op); err != nil {
		return err
	}
	return wait(context.Background(), w.be, op.Seq)
}

// order tells everyone what comes next and does it; it returns when all are done.
func (w *benchRank) order(bytes, times int, name string) error {
	w.what[0], w.what[1], w.what[2] = int64(bytes), int64(times), int64(slices.Index(w.names, name))
	return w.follow()
}

func (w *benchRank) follow() error {
	err := w.do(backend.Op{Kind: backend.Broadcast, DType: tensor.Int64, Count: 3, Src: memOf(w.what), Dst: memOf(w.what)})
	for range w.what[1] {
		if err == nil {
			x := w.x[:w.what[0]/4]
			err = w.do(backend.Op{Kind: backend.AllReduce, Algo: w.names[w.what[2]], Count: len(x), Src: memOf(x), Dst: memOf(x)})
		}
	}
	if err != nil {
		return err
	}
	return w.do(backend.Op{Kind: backend.Barrier})
}

func (w *benchRank) measure(b *testing.B, bytes int, name string) {
	require.NoError(b, w.order(bytes, 3, name))
	var us []float64
	per := max(1, b.N/7)
	b.ResetTimer()
	for range 7 {
		began := time.Now()
		require.NoError(b, w.order(bytes, per, name))
		us = append(us, float64(time.Since(began).Microseconds())/float64(per))
	}
	slices.Sort(us)
	b.ReportMetric(us[3], "median-us")
	b.ReportMetric(float64(bytes)/us[3]/1e3, "algbw-GB/s")
}

// startBench starts the other ranks as processes; they end when they are told to do nothing.
func startBench(b *testing.B, n int, plain bool) *benchRank {
	cs := configs(b, n)
	cs[0].Plain = plain
	for r := 1; r < n; r++ {
		child := exec.Command(os.Args[0], "-test.run=TestHelperBench$")
		child.Env = append(os.Environ(), fmt.Sprintf("RINGO_TEST_BENCH=%d/%d@%s", r, n, cs[0].Addr), fmt.Sprintf("RINGO_TEST_PLAIN=%v", plain))
		child.Stderr = os.Stderr
		require.NoError(b, child.Start())
		b.Cleanup(func() {
			require.NoError(b, child.Wait())
		})
	}
	e, err := Join(b.Context(), cs[0])
	require.NoError(b, err)
	b.Cleanup(func() { e.Close() })
	w, err := newBenchRank(e, n)
	require.NoError(b, err)
	return w
}

// TestHelperBench is another rank of BenchmarkProcesses.
func TestHelperBench(t *testing.T) {
	who, addr, ok := strings.Cut(os.Getenv("RINGO_TEST_BENCH"), "@")
	if !ok {
		return // run as a test of its own, there is nothing to do
	}
	rank, size, _ := strings.Cut(who, "/")
	r, err := strconv.Atoi(rank)
	require.NoError(t, err)
	n, err := strconv.Atoi(size)
	require.NoError(t, err)
	e, err := Join(t.Context(), Config{Rank: r, Size: n, Addr: addr, Secret: testSecret, Job: "test",
		Plain: os.Getenv("RINGO_TEST_PLAIN") == "true"})
	require.NoError(t, err)
	w, err := newBenchRank(e, n)
	require.NoError(t, err)
	for {
		require.NoError(t, w.follow())
		if w.what[1] == 0 {
			break
		}
	}
	require.NoError(t, e.Close())
}
