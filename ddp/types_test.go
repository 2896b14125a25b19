package ddp_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// Losses whose gradients would be silently wrong on two ranks are refused, by the words that a user sees; their right
// forms beside them pass.
func TestWrongLossesAreRefused(t *testing.T) {
	mean := func(x nn.T) nn.T { return x.Square().Mean() }
	global := func(x nn.T) nn.T { return tensor.GlobalMean(x.Square()) }
	for name, c := range map[string]struct {
		loss func(x nn.T) nn.T
		bare bool // the batch does not say its rows
		want string
	}{
		"mean over this rank's rows": {loss: mean, want: "GlobalMean"},
		"global mean":                {loss: global},
		"sum":                        {loss: func(x nn.T) nn.T { return x.Sum() }},
		"batch without rows":         {loss: global, bare: true, want: "Does the input lack its Rows?"},
		"norm of a sum over rows":    {loss: func(x nn.T) nn.T { return x.Sum().Square() }, want: "autograd.Sum"},
		"parts joined with a whole": {loss: func(x nn.T) nn.T {
			return tensor.Concat(0, x.Sum().Reshape(1), x.Tape().Input(tensor.FromSlice([]float32{1}, 1))).Sum()
		}, want: "once for each rank"},
	} {
		t.Run(name, func(t *testing.T) {
			err := disttest.OnRanks(2, func(r *dist.Rank) error {
				model := nn.NewLinear(3, 2)
				disttest.Must(ddp.Attach(r.World, model, ddp.Config{}))
				x := tensor.New(r.Device, tensor.Float32, 2, 3)
				if !c.bare {
					x = x.WithRows(r.World.Rows(2*r.World.Rank(), 4))
				}
				tape := tensor.NewTape(r.Device)
				return tensor.Try(func() { tape.Backward(c.loss(model.Forward(tape.Input(x)))) })
			})
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "axis world")
		})
	}
}

// A group that is a part of an axis does not sum over all ranks with other rows: it is refused, for all parameters and for one.
func TestPartOfAnAxis(t *testing.T) {
	for name, over := range map[string]func(world, half *dist.Group, p *tensor.Param) *dist.Group{
		"a model": func(_, half *dist.Group, _ *tensor.Param) *dist.Group { return half },
		"a parameter": func(_, half *dist.Group, p *tensor.Param) *dist.Group {
			return map[string]*dist.Group{"bias": half}[p.Name()]
		},
		"": func(world, _ *dist.Group, _ *tensor.Param) *dist.Group { return world },
	} {
		err := disttest.OnRanks(4, func(r *dist.Rank) error {
			half := disttest.Must(r.World.Split(r.World.Rank()/2, 0))
			model := nn.NewLinear(3, 2)
			cfg := ddp.Config{Over: func(p *tensor.Param) *dist.Group { return over(r.World, half, p) }}
			disttest.Must(ddp.Attach(r.World, model, cfg))
			tape, x := tensor.NewTape(r.Device), tensor.New(r.Device, tensor.Float32, 2, 3).WithRows(r.World.Rows(2*r.World.Rank(), 8))
			return tensor.Try(func() { tape.Backward(tensor.GlobalMean(model.Forward(tape.Input(x)))) })
		})
		if name == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "attach the parameter with ddp or fsdp over this axis", name)
		}
	}
}

// A gain that two ranks of tp use on their parts of the features, under ddp, in two microbatches: its gradient is that of
// one rank. Summed over tp by Through it is right; without, it is refused; ddp over tp does not replace it.
func TestSharedGain(t *testing.T) {
	for name, c := range map[string]struct {
		through bool
		over    string // the axis that ddp sums over
		want    string
	}{
		"through":        {true, "dp", ""},
		"nothing":        {false, "dp", "autograd.Copy"},
		"ddp and Copy":   {true, "tp", "axis tp"},
		"ddp in a hurry": {false, "tp", "axis dp"},
	} {
		t.Run(name, func(t *testing.T) {
			err := disttest.OnRanks(4, func(r *dist.Rank) error {
				mesh := disttest.Must(r.Mesh("dp=2,tp=2"))
				dp, tp := mesh.Group("dp"), mesh.Group("tp")
				model := &struct{ Gain, Wide *tensor.Param }{tensor.NewParam(tensor.Constant(1), 1), tensor.NewParam(tensor.Constant(1), 4)}
				model.Wide.Place(tp.Axis(), layout.Division{})
				if c.through {
					model.Gain.Through(&autograd.Copy{Group: tp})
				}
				disttest.Must(ddp.Attach(r.World, model, ddp.Config{Over: func(p *tensor.Param) *dist.Group {
					if p == model.Gain {
						return mesh.Group(c.over)
					}
					return dp
				}}))
				tape := tensor.NewTape(r.Device)
				backward := func(opts ...tensor.BackwardOption) error {
					defer tape.Reset()
					return tensor.Try(func() {
						x := tape.Input(tensor.FromSlice([]float32{1}, 1, 1).WithRows(dp.Rows(dp.Rank(), 2)))
						tape.Backward(tape.Use(model.Wide).Mul(x).Mul(tape.Use(model.Gain)).Sum(), opts...)
					})
				}
				disttest.OK(backward(tensor.More()))
				disttest.OK(backward())
				if got := model.Gain.Grad.Item(); got != 2*2*4 { // microbatches, rows, features
					return fmt.Errorf("gradient %v", got)
				}
				return nil
			})
			if c.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.want)
			}
		})
	}
}
