package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/netns"
	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/moe/router"
	"github.com/ringo-ml/ringo/tensor"
)

// TestMain runs a rank of BenchmarkHosts if the environment says so.
func TestMain(m *testing.M) {
	shared, err := strconv.Atoi(os.Getenv("MOE_SHARED"))
	if err != nil {
		os.Exit(m.Run())
	}
	steps, _ := strconv.Atoi(os.Getenv("MOE_STEPS"))
	if err := dist.Run(context.Background(), dist.Config{Threads: 1}, func(_ context.Context, r *dist.Rank) error {
		return onHost(r, shared, steps)
	}); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// onHost does steps of a layer with experts on two hosts. It prints their time, and how long rank 0 waited for slots, in ms.
func onHost(r *dist.Rank, shared, steps int) error {
	const mine = 256 // tokens
	mesh, err := r.Mesh("ep=2")
	if err != nil {
		return err
	}
	g := mesh.Group("ep").With(dist.Name("experts"))
	l := moe.NewLayer(moe.Config{Features: features, Hidden: hidden, Experts: experts, Shared: shared,
		Router: router.Config{Top: top, Scoring: router.Chosen}})
	if err := moe.Parallelize(moe.Ranks{Tokens: r.World, Experts: g}, l); err != nil {
		return err
	}
	if _, err := ddp.Attach(r.World, l, ddp.Config{Over: moe.Over(mesh.Group(), l)}); err != nil {
		return err
	}
	x := tensor.New(r.Device, tensor.Float32, mine, features)
	tensor.NormalInit(0, 1).Fill(x, 2, uint64(r.World.Rank()*mine*features))
	x = x.WithRows(r.World.Rows(r.World.Rank()*mine, 2*mine))
	tape := tensor.NewTape(r.Device)
	step := func() {
		tape.Backward(tensor.AsPart(l.Forward(tape.Leaf(x)).Sum(), r.World.Axes()), tensor.More())
		tape.Reset()
	}
	step()
	step()
	start, waited := time.Now(), g.Waited()
	for range steps {
		step()
	}
	if r.World.Rank() == 0 {
		each := func(d time.Duration) float64 { return 1e3 * d.Seconds() / float64(steps) }
		fmt.Println("ms", each(time.Since(start)), each(g.Waited()-waited))
	}
	return nil
}

// BenchmarkHosts exchanges slots between two hosts, joined by a link of 200 µs and so many megabytes a second: with a shared expert, whose
// products run during a part of the exchange, and without. It needs root.
func BenchmarkHosts(b *testing.B) {
	for _, megabytes := range []int{125, 50} {
		for _, shared := range []int{0, 2 * hidden} {
			b.Run(fmt.Sprintf("%dMBps/shared%d", megabytes, shared), func(b *testing.B) {
				hosts, secret, out := netns.NewSlow(b, 200*time.Microsecond, megabytes<<20), disttest.NewSecret(), &strings.Builder{}
				ranks := make([]*exec.Cmd, len(hosts))
				for i, h := range hosts {
					c := h.Command(os.Args[0])
					c.Env = append(append(os.Environ(), disttest.RankEnv(i, len(hosts), hosts[0].Addr+":29500", secret)...), "RINGO_BIND="+h.Addr,
						fmt.Sprint("MOE_SHARED=", shared), fmt.Sprint("MOE_STEPS=", b.N))
					c.Stdout, c.Stderr, ranks[i] = out, os.Stderr, c
					require.NoError(b, c.Start())
				}
				for _, c := range ranks {
					require.NoError(b, c.Wait(), out)
				}
				var whole, exposed float64
				_, err := fmt.Sscanf(out.String()[strings.Index(out.String(), "ms "):], "ms %g %g", &whole, &exposed)
				require.NoError(b, err, out)
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(whole, "ms/step")
				b.ReportMetric(exposed, "ms-exposed")
			})
		}
	}
}
