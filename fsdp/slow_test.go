package fsdp_test

import (
	"os"
	"os/exec"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// TestGivenUpMemoryIsNaN runs tests again in debug mode, in which memory that was given up holds NaN: nobody reads it. The short form has
// those of one Backward.
func TestGivenUpMemoryIsNaN(t *testing.T) {
	if os.Getenv("RINGO_DEBUG") == "1" {
		t.Skip("in debug mode already")
	}
	which := "^Test(SlowPeers|SlowReader|ForwardBeforeStep|FailureInTheMiddleOfAGather)$"
	if reliability.Long(t) {
		which = "^Test.*(SlowPeers|SlowReader|SkippedStep|FailedBackward|ForwardBeforeStep|MiddleOfAGather)"
	}
	cmd := exec.Command(os.Args[0], "-test.run="+which, "-test.timeout=10m")
	cmd.Env = append(os.Environ(), "RINGO_DEBUG=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func TestLongGivenUpMemoryIsNaN(t *testing.T) { reliability.AsLong(t, TestGivenUpMemoryIsNaN) }

// Ranks take turns at being slow, by yielding many times between layers: results are the same to the last bit.
func TestSlowPeers(t *testing.T) {
	want := job{training: training{Ranks: 3, Steps: 8, Micro: 1}, model: newChain}.run(t)
	do := make([]func(), 3)
	j := job{training: training{Ranks: 3, Steps: 8, Micro: 1}}
	next := make(chan int, 3)
	for r := range do {
		next <- r
	}
	j.model = func() model { return sabotaged(&do[<-next]) }
	calls := make([]int, 3)
	for r := range do {
		do[r] = func() {
			if calls[r]++; calls[r]%3 == r {
				for range 3000 {
					runtime.Gosched()
				}
			}
		}
	}
	disttest.RequireEqual(t, want, j.run(t), 0)
}

// lag is a Function that holds up its rank in Backward.
type lag struct{ wait func() }

func (l *lag) Name() string                                   { return "lag" }
func (l *lag) Forward(c *tensor.Ctx, in []tensor.Tensor) nn.T { return in[0] }
func (l *lag) Backward(_ *tensor.Ctx, g nn.T, grads []nn.T) {
	l.wait()
	grads[0] = g
}

// lagging is a chain of wide layers with a lag before the last but one.
type lagging struct {
	Layers []*nn.Linear
	lag    lag
}

func (m *lagging) units(s *fsdp.Sharding) {
	for _, l := range m.Layers {
		s.Unit(l)
	}
}

func (m *lagging) Forward(x nn.T) nn.T {
	for i, l := range m.Layers {
		if i == len(m.Layers)-1 {
			x = x.Tape().Apply(&m.lag, x).Tanh()
		}
		x = l.Forward(x)
	}
	return x
}

// Rank 1 has offered the gradients of a unit for others to read, and does not read theirs for long, while rank 0 is through
// with the unit and could do with its memory: the results are those of ranks that do not dawdle.
func TestSlowReader(t *testing.T) {
	train := func(yields int) (res []float64) {
		require.NoError(t, disttest.OnRanks(2, func(r *dist.Rank) error {
			m := &lagging{Layers: []*nn.Linear{nn.NewLinear(width, 128)}}
			for range 6 {
				m.Layers = append(m.Layers, nn.NewLinear(128, 128))
			}
			m.lag.wait = func() {
				for k := 0; k < yields && r.World.Rank() == 1; k++ {
					runtime.Gosched()
				}
			}
			s := fsdp.New(fsdp.Config{Shard: r.World, Stage: 2})
			m.units(s)
			params := disttest.Must(s.Attach(m))
			tape := tensor.NewTape(r.Device)
			x, y := batch(r, tensor.Float32, 4*r.World.Rank(), 4)
			tape.Backward(nn.CrossEntropy(m.Forward(tape.Input(x)), y))
			tape.Reset()
			if r.World.Rank() == 1 {
				for _, p := range params {
					res = append(res, tensor.Floats(p.Grad.ToLocal())...)
				}
			}
			return nil
		}))
		return res
	}
	require.Equal(t, train(0), train(20000))
}
