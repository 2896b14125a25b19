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

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/dist/tcp"
	"github.com/ringo-ml/ringo/internal/faultnet"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// wires are the plans of a program's connections. Most delay; one may have a fault.
type wires struct {
	lines  tcp.Lines
	plans  map[[2]int]faultnet.Plan // from, to
	victim int                      // which connection of its two ranks has the fault
	made   map[[2]int]int           // connections of two ranks
	ends   []int
	text   string
}

// handshake is how many writes of an end TLS may need before there is data.
const handshake = 6

func randomWires(p *disttest.Program) *wires {
	rng := rand.New(rand.NewPCG(p.Seed, 78))
	w := &wires{plans: map[[2]int]faultnet.Plan{}, made: map[[2]int]int{}}
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
	w.encrypt(rng)
	return w
}

// encrypt gives one program in six TLS, most of those data connections of their own, on which data may be plain.
func (w *wires) encrypt(rng *rand.Rand) {
	if rng.IntN(6) > 0 {
		return
	}
	w.lines = tcp.Lines{Secret: make([]byte, tcp.SecretBytes), Data: rng.IntN(3) > 0, Plain: rng.IntN(2) == 0}
	if w.lines.Data {
		w.victim = rng.IntN(3)
	}
	for _, plan := range w.plans {
		if plan.Fault != nil {
			plan.Fault.At += handshake
		}
	}
	w.text += fmt.Sprintf("; TLS, data connections %v, plain %v; the fault is on connection %d", w.lines.Data, w.lines.Plain, w.victim)
}

func (w *wires) connect(low, high int) (net.Conn, net.Conn) {
	there, back := w.plans[[2]int{low, high}], w.plans[[2]int{high, low}]
	if w.made[[2]int{low, high}] != w.victim {
		there.Fault, back.Fault = nil, nil
	}
	w.made[[2]int{low, high}]++
	return faultnet.Pair(there, back)
}

// asProcesses runs a program with a job of its own for each rank, as processes do: only the connections join them.
func asProcesses(p *disttest.Program) *disttest.Outcome {
	return asEngines(p, unchanged)
}

func unchanged(e *tcp.Engine, _ int) backend.Engine { return e }

func asEngines(p *disttest.Program, change func(e *tcp.Engine, rank int) backend.Engine) *disttest.Outcome {
	w := randomWires(p)
	engines, err := tcp.Connected(p.Ranks, p.Timeout, w.lines, w.connect)
	if err != nil {
		panic(err)
	}
	o := onEngines(p, engines, change)
	o.Wire, o.Text = w.ends, w.text
	return o
}

func onEngines(p *disttest.Program, engines []*tcp.Engine, change func(e *tcp.Engine, rank int) backend.Engine) *disttest.Outcome {
	o := &disttest.Outcome{Errs: make([]error, p.Ranks), Took: make([]time.Duration, p.Ranks)}
	began := time.Now()
	var wg sync.WaitGroup
	for r, e := range engines {
		wg.Go(func() {
			o.Errs[r] = dist.RunEngine(context.Background(), dist.Config{Threads: 1, Log: io.Discard, Timeout: p.Timeout}, change(e, r), r,
				p.Ranks, p.Ranks, func(_ context.Context, r *dist.Rank) error { return p.Run(r) })
			o.Took[r] = time.Since(began)
		})
	}
	wg.Wait()
	return o
}

func TestRandomPrograms(t *testing.T) {
	t.Parallel()
	disttest.Programs(t, asProcesses)
}

func TestLongRandomPrograms(t *testing.T) { reliability.AsLong(t, TestRandomPrograms) }

// muteEngine is a rank whose aborts reach nobody.
type muteEngine struct{ *tcp.Engine }

func (e muteEngine) Open(s backend.Spec) (backend.Backend, error) {
	be, err := e.Engine.Open(s)
	if err != nil {
		return nil, err
	}
	return muteEnd{be.(disttest.End)}, nil
}

type muteEnd struct{ disttest.End }

func (e muteEnd) Abort(error) error { return nil }

// Random programs find a failure that only one rank sees.
func TestProgramsFindMuteRank(t *testing.T) {
	t.Parallel()
	for seed := range uint64(150) {
		_, err := disttest.Check(t, disttest.RandomProgram(seed+1), func(p *disttest.Program) *disttest.Outcome {
			return asEngines(p, func(e *tcp.Engine, rank int) backend.Engine {
				if rank == 0 {
					return muteEngine{e}
				}
				return e
			})
		})
		if err != nil {
			require.ErrorContains(t, err, "fails without a cause")
			return
		}
	}
	require.Fail(t, "not found")
}
