package pp_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/pp"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/typing"
)

const nap = 8 * time.Millisecond // of F, I and W of a stage

// slept and asked are how long operations have slept, and how long they should have, in nanoseconds.
var slept, asked atomic.Int64

func rest(ns float64) {
	from := time.Now()
	time.Sleep(time.Duration(ns))
	slept.Add(int64(time.Since(from)))
	asked.Add(int64(ns))
}

// sleeping is an operation of x and a weight that sleeps F[0] nanoseconds in place of computing: forward, for the gradient of x, and for
// that of the weight.
var sleeping = cpu.Register(tensor.Register(tensor.OpSpec{Name: "test_sleeping", Class: typing.Multilinear,
	VJP: func(t *tensor.Tape, n *tensor.Node, need uint8) {
		rest(n.F[0])
		if need&1 != 0 {
			t.AddGrad(n, 0, n.Grad().Scale(1))
		} else {
			t.AddGrad(n, 1, n.Grad().Scale(1))
		}
	}}), [tensor.NumDTypes]tensor.Kernel{tensor.Float32: func(_ tensor.Queue, a *tensor.Args) {
	copy(tensor.Operand[float32](a, 0), tensor.Operand[float32](a, 1))
	rest(a.F[0])
}})

// sleepingStep returns a step whose stages sleep.
func sleepingStep(r *dist.Rank, s *pp.Schedule, each time.Duration) func() {
	x, stages, layers := tensor.New(r.Device, tensor.Float32, 2), map[int]pp.Stage{}, make([]*nn.Linear, len(s.Ranks))
	for i, rank := range s.Ranks {
		if rank != r.World.Rank() {
			continue
		}
		layers[i] = nn.NewLinear(2, 2)
		stages[i] = func(t *tensor.Tape, micro int, in nn.T) nn.T {
			w := t.Use(layers[i].B)
			if i == 0 {
				in = t.Leaf(x)
			}
			y := t.NewLike(in)
			a := t.Args(sleeping, in.DType()).Out(y).In(in).In(w)
			a.F[0] = float64(each)
			t.Launch()
			if n := t.Record(sleeping, y, in, w); n != nil {
				n.F[0] = float64(each)
			}
			if i == len(s.Ranks)-1 {
				return y.Sum()
			}
			return y
		}
	}
	params := nn.Init(struct{ Layers []*nn.Linear }{layers}, r.Device, tensor.Float32, 1)
	p := disttest.Must(pp.New(pp.Config{Group: r.World, Schedule: s, Stages: stages, Tape: tensor.NewTape(r.Device), Params: params}))
	return func() {
		disttest.Must(p.Step())
		for _, x := range params {
			x.Consume()
		}
	}
}

// BenchmarkDrawing compares a step with the drawing of its schedule: stages sleep as long as they would compute, and ranks need no cores.
// A machine sleeps longer than it is asked to, and the more so the shorter that is: slept says how much of the result this is.
func BenchmarkDrawing(b *testing.B) {
	for _, ranks := range []int{3, 4, 8} {
		for _, name := range []string{"gpipe", "1f1b", "zb-h1", "interleaved", "zbv"} {
			b.Run(fmt.Sprintf("%s/p=%d", name, ranks), func(b *testing.B) {
				s := must(pp.ByName(name, ranks, 2, 2*ranks))
				rep := disttest.Must(s.Check(pp.Costs{F: 1, I: 1, W: 1}, pp.Limit{}))
				each := nap
				disttest.OK(disttest.OnRanks(ranks, func(r *dist.Rank) error {
					step := sleepingStep(r, s, each)
					step()
					disttest.OK(r.World.Barrier().Wait())
					if r.World.Rank() == 0 {
						b.ResetTimer()
						slept.Store(0)
						asked.Store(0)
					}
					for range b.N {
						step()
					}
					disttest.OK(r.World.Barrier().Wait())
					if r.World.Rank() == 0 {
						b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)/(rep.Time*each.Seconds()), "of-drawing")
						b.ReportMetric(float64(slept.Load())/float64(asked.Load()), "slept")
					}
					return nil
				}))
			})
		}
	}
}
