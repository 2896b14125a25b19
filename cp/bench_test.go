//go:build unix

package cp_test

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringo-ml/ringo/cp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/trace"
	"github.com/ringo-ml/ringo/tensor"
)

// long is a sequence of 4,096 tokens, with eight heads of queries and two of keys.
var long = attentionOf{rows: 1, total: 4096, heads: 8, kv: 2, hd: 64}

// spent is what a step of a ring takes: of the clock, of processors, of the clock while this rank waits, and if it has messages alone.
type spent struct{ clock, work, waits, messages time.Duration }

// measureRing does so many steps of forward and backward on ranks with a core each, after one that does not count. One rank has no ring.
func measureRing(b *testing.B, on disttest.Launcher, ranks, steps int) (all spent) {
	cfg := dist.Config{Ranks: ranks, Threads: 1, Timeout: time.Minute, Log: io.Discard, Trace: 1 << 20}
	disttest.OK(on(context.Background(), cfg, func(_ context.Context, r *dist.Rank) error {
		f := &cp.Ring{Group: r.World, HeadDim: long.hd}
		var mine [4]tensor.Tensor
		for i, heads := range [4]int{long.heads, long.kv, long.kv, long.heads} {
			x := tensor.New(r.Device, tensor.Float32, long.rows, long.total, heads*long.hd)
			tensor.UniformInit(-1, 1).Fill(x, uint64(i), 0)
			mine[i] = f.Part(x.WithRows(r.World.Rows(0, long.rows)))
		}
		tape := tensor.NewTape(r.Device)
		step := func() {
			tape.Input(mine[0])
			q, k, v := tape.Leaf(mine[0]), tape.Leaf(mine[1]), tape.Leaf(mine[2])
			tape.BackwardFrom([]tensor.Tensor{tape.Apply(f, q, k, v)}, mine[3:])
			tape.Reset()
		}
		step()
		disttest.OK(r.World.Barrier().Wait())
		from, work := time.Now(), processors(b)
		for range steps {
			step()
		}
		disttest.OK(r.World.Barrier().Wait())
		took := spent{clock: time.Since(from), work: processors(b) - work}
		for _, s := range r.Trace.Spans() {
			if s.Track == trace.Waits && s.Start >= from.UnixNano() {
				took.waits += time.Duration(s.End - s.Start)
			}
		}
		from = time.Now()
		for range steps {
			messages(r.World, mine[1])
		}
		if took.messages = time.Since(from); r.World.Rank() == 0 {
			all = took
		}
		return nil
	}))
	return all
}

// messages sends what a step sends: keys and values forward, and again with their gradients.
func messages(g *dist.Group, k tensor.Tensor) {
	n := g.Size()
	x, y := tensor.New(k.Device(), k.DType(), 2*k.Len()), tensor.New(k.Device(), k.DType(), 2*k.Len())
	for range 3*n - 2 {
		if n > 1 {
			disttest.OK(g.Batch(func(b *dist.Batch) {
				b.Send(x, (g.Rank()+1)%n, 0)
				b.Recv(y, (g.Rank()+n-1)%n, 0)
			}).Wait())
		}
	}
}

// processors is the time of this process on all processors.
func processors(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkRing compares the attention of a ring, forward and backward, with that of one rank: of-share is a step in one rank's by the
// number of ranks, work the time on processors in that of one rank. wait-ms is how long a rank waits for keys and their gradients in a
// step, and messages-ms how long the messages take if nothing is computed.
func BenchmarkRing(b *testing.B) {
	for _, c := range []struct {
		on    string
		ranks int
	}{{"goroutines", 2}, {"tcp", 2}, {"goroutines", 4}} {
		b.Run(fmt.Sprintf("%s/ranks=%d", c.on, c.ranks), func(b *testing.B) {
			one := measureRing(b, dist.Run, 1, b.N)
			got := measureRing(b, disttest.LauncherFor(b, c.on, c.ranks), c.ranks, b.N)
			ms := func(d time.Duration) float64 { return d.Seconds() * 1e3 / float64(b.N) }
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(got.clock)*float64(c.ranks)/float64(one.clock), "of-share")
			b.ReportMetric(float64(got.work)/float64(one.work), "work")
			b.ReportMetric(ms(got.waits), "wait-ms")
			b.ReportMetric(ms(got.messages), "messages-ms")
		})
	}
}
