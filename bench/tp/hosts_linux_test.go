package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/netns"
)

// TestMain runs a rank of BenchmarkHosts if the environment says so.
func TestMain(m *testing.M) {
	if flags := os.Getenv("TP_FLAGS"); flags != "" {
		os.Args = append(os.Args[:1], strings.Fields(flags)...)
		main()
		return
	}
	os.Exit(m.Run())
}

// BenchmarkHosts trains for b.N seconds on two hosts, joined by a link of 200 µs and so many megabytes a second. It needs root.
func BenchmarkHosts(b *testing.B) {
	for _, megabytes := range []int{125, 50} {
		for _, flags := range []string{"-threads 1", "-sp", "-sp -async 2", "-sp -async 4", "-sp -async 8"} {
			b.Run(fmt.Sprintf("%dMBps/%s", megabytes, strings.ReplaceAll(flags, " ", "")), func(b *testing.B) {
				hosts, secret, out := netns.NewSlow(b, 200*time.Microsecond, megabytes<<20), disttest.NewSecret(), &strings.Builder{}
				ranks := make([]*exec.Cmd, len(hosts))
				for i, h := range hosts {
					c := h.Command(os.Args[0])
					c.Env = append(append(os.Environ(), disttest.RankEnv(i, len(hosts), hosts[0].Addr+":29500", secret)...), "RINGO_BIND="+h.Addr,
						"TP_FLAGS="+flags)
					c.Stdin, c.Stdout, c.Stderr, ranks[i] = strings.NewReader(fmt.Sprintln(b.N)), out, os.Stderr, c
					require.NoError(b, c.Start())
				}
				for _, c := range ranks {
					require.NoError(b, c.Wait())
				}
				var r result
				require.NoError(b, json.Unmarshal([]byte(out.String()[strings.Index(out.String(), "{"):]), &r), out)
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(1e3/r.StepsPerS, "ms/step")
				b.ReportMetric(100*r.Exposed, "%exposed")
			})
		}
	}
}
