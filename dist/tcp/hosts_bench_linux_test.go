package tcp

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/netns"
)

// BenchmarkBetweenHosts all-reduces b.N times between two hosts with a latency each way and so many bytes. It needs root:
// go test ./dist/tcp -run '^$' -bench BetweenHosts -benchtime 20x.
func BenchmarkBetweenHosts(b *testing.B) {
	for _, ms := range []int{0, 1, 10} {
		for _, plain := range []bool{false, true} {
			for _, bytes := range []int{1 << 20, 64 << 20} {
				b.Run(fmt.Sprintf("delay=%dms/plain=%v/bytes=%d", ms, plain, bytes), func(b *testing.B) {
					hosts := netns.New(b, 2)
					if ms > 0 {
						hosts = netns.NewSlow(b, time.Duration(ms)*time.Millisecond, 4<<30)
					}
					b.ReportMetric(betweenHosts(b, hosts, fmt.Sprint(plain, bytes, b.N)), "median-ms")
					b.ReportMetric(0, "ns/op")
				})
			}
		}
	}
}

// betweenHosts runs TestHelperBetweenHosts on two hosts and returns what rank 0 measured.
func betweenHosts(b *testing.B, hosts []*netns.Host, what string) (ms float64) {
	var out strings.Builder
	cmds := make([]*exec.Cmd, len(hosts))
	for r, h := range hosts {
		cmds[r] = h.Command(os.Args[0], "-test.run=^TestHelperBetweenHosts$", "-test.v")
		cmds[r].Env = append(os.Environ(), fmt.Sprintf("RINGO_TEST_BETWEEN_HOSTS=%d %s %s %s", r, hosts[0].Addr, h.Addr, what))
		cmds[r].Stderr = os.Stderr
	}
	cmds[0].Stdout = &out
	for _, c := range cmds {
		require.NoError(b, c.Start())
	}
	for _, c := range cmds {
		require.NoError(b, c.Wait(), out.String())
	}
	_, text, _ := strings.Cut(out.String(), "median ")
	_, err := fmt.Sscan(text, &ms)
	require.NoError(b, err, out.String())
	return ms
}

// TestHelperBetweenHosts is a rank of BenchmarkBetweenHosts.
func TestHelperBetweenHosts(t *testing.T) {
	what := os.Getenv("RINGO_TEST_BETWEEN_HOSTS")
	if what == "" {
		return // run as a test of its own, there is nothing to do
	}
	c := Config{Size: 2, Secret: testSecret, Job: "test", NoShared: true, Timeout: time.Minute}
	var zero string
	var bytes, times int
	_, err := fmt.Sscan(what, &c.Rank, &zero, &c.Bind, &c.Plain, &bytes, &times)
	require.NoError(t, err)
	c.Addr = net.JoinHostPort(zero, "29500")
	e, err := Join(t.Context(), c)
	require.NoError(t, err)
	w, err := newBenchRank(e, 2)
	require.NoError(t, err)
	x, ms := w.x[:bytes/4], make([]float64, times)
	for i := -2; i < times; i++ { // two to warm up
		require.NoError(t, w.do(backend.Op{Kind: backend.Barrier}))
		began := time.Now()
		require.NoError(t, w.do(backend.Op{Kind: backend.AllReduce, Count: len(x), Src: memOf(x), Dst: memOf(x)}))
		ms[max(i, 0)] = float64(time.Since(began).Microseconds()) / 1e3
	}
	slices.Sort(ms)
	fmt.Println("median", ms[times/2])
	require.NoError(t, e.Close())
}
