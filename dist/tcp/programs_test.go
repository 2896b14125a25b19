package tcp_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/dist/tcp"
	"github.com/ringo-ml/ringo/internal/faultnet"
)

// wires are the plans of a program's connections. Most delay; one may have a fault.
type wires struct {
	plans map[[2]int]faultnet.Plan // from, to
	ends  []int
	text  string
}

func randomWires(p *disttest.Program) *wires {
	rng := rand.New(rand.NewPCG(p.Seed, 78))
	w := &wires{plans: map[[2]int]faultnet.Plan{}}
	delay, buffer := time.Duration(rng.IntN(4)*rng.IntN(10))*time.Millisecond, 0
	if rng.IntN(2) == 0 {
		buffer = 1 << (9 + rng.IntN(10))
	}
	for from := range p.Ranks {
		for to := range p.Ranks {
			w.plans[[2]int{from, to}] = faultnet.Plan{Seed: rng.Uint64(), Delay: delay, Buffer: buffer}
		}
	}
	if rng.IntN(2) == 0 {
		from, to := rng.IntN(p.Ranks), rng.IntN(p.Ranks-1)
		if to >= from {
			to++
		}
		plan := w.plans[[2]int{from, to}]
		plan.Fault = &faultnet.Fault{Kind: faultnet.Kind(rng.IntN(faultnet.NumKinds)), At: rng.IntN(40)}
		w.plans[[2]int{from, to}] = plan
		w.ends, w.text = []int{from, to}, fmt.Sprintf("from rank %d to %d: %v", from, to, plan)
	}
	return w
}

func (w *wires) connect(low, high int) (net.Conn, net.Conn) {
	return faultnet.Pair(w.plans[[2]int{low, high}], w.plans[[2]int{high, low}])
}

// asProcesses runs a program with a job of its own for each rank, as processes do: only the connections join them.
func asProcesses(p *disttest.Program) *disttest.Outcome {
	w := randomWires(p)
	o := &disttest.Outcome{Errs: make([]error, p.Ranks), Took: make([]time.Duration, p.Ranks), Wire: w.ends, Text: w.text}
	engines, err := tcp.Connected(p.Ranks, p.Timeout, nil, w.connect)
	if err != nil {
		panic(err)
	}
	began := time.Now()
	var wg sync.WaitGroup
	for r, e := range engines {
		wg.Go(func() {
			o.Errs[r] = dist.RunEngine(context.Background(), dist.Config{Threads: 1, Log: io.Discard, Timeout: p.Timeout}, e, r, p.Ranks, p.Ranks,
				func(_ context.Context, r *dist.Rank) error { return p.Run(r) })
			o.Took[r] = time.Since(began)
		})
	}
	wg.Wait()
	return o
}

func TestRandomPrograms(t *testing.T) { disttest.Programs(t, asProcesses) }
