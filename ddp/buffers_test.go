package ddp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// remembering is a layer beside which a program keeps values.
type remembering struct {
	Linear *nn.Linear
	Seen   *tensor.Buffer
}

// owners attach a model in each way that sums gradients.
var owners = map[string]func(r *dist.Rank, m *remembering) (nn.Params, error){
	"ddp": func(r *dist.Rank, m *remembering) (nn.Params, error) { return ddp.Attach(r.World, m, ddp.Config{}) },
	"fsdp": func(r *dist.Rank, m *remembering) (nn.Params, error) {
		return sharded(m, fsdp.Config{Shard: r.World})
	},
	"fsdp and copies": func(r *dist.Rank, m *remembering) (nn.Params, error) {
		mesh := disttest.Must(r.Mesh("dp=2,fsdp=2"))
		return sharded(m, fsdp.Config{Shard: mesh.Group("fsdp"), Replicate: mesh.Group("dp")})
	},
}

func sharded(m *remembering, c fsdp.Config) (nn.Params, error) {
	s := fsdp.New(c)
	s.Unit(m.Linear)
	return s.Attach(m)
}

// Buffers are the same on all ranks, or the program is refused: otherwise a rank would use, and save, what it alone has seen.
func TestBuffersAreCompared(t *testing.T) {
	for name, c := range map[string]struct {
		step int // in which the error comes; −1: none
		seen func(r *dist.Rank, step int, own []float32) error
	}{
		"a queue of own rows": {0, func(r *dist.Rank, step int, own []float32) error {
			own[step%len(own)] = float32(r.World.Rank())
			return nil
		}},
		"a codebook that moves to own rows": {0, func(r *dist.Rank, _ int, own []float32) error {
			own[0] = 0.9*own[0] + 0.1*float32(1+r.World.Rank())
			return nil
		}},
		"from the second step on, on one rank": {1, func(r *dist.Rank, step int, own []float32) error {
			if step == 1 && r.World.Rank() == 3 {
				own[2]++
			}
			return nil
		}},
		"a codebook that moves to the rows of all": {-1, func(r *dist.Rank, _ int, own []float32) error {
			sum := []float64{float64(r.World.Rank())}
			err := r.World.SumFloats(sum)
			own[0] = 0.9*own[0] + 0.1*float32(sum[0])
			return err
		}},
	} {
		for owner, attach := range owners {
			steps := 0
			err := disttest.OnRanks(4, func(r *dist.Rank) error {
				m := &remembering{nn.NewLinear(3, 2), tensor.NewBuffer(tensor.Constant(0), 3)}
				params := disttest.Must(attach(r, m))
				opt, tape := optim.NewSGD(params.Trainable(), optim.SGDConfig{LR: 0.1}), tensor.NewTape(r.Device)
				defer tape.Close()
				for step := range 3 {
					disttest.OK(c.seen(r, step, tensor.Data[float32](m.Seen.Value)))
					x := tensor.New(r.Device, tensor.Float32, 2, 3).WithRows(r.World.Rows(2*r.World.Rank(), 8))
					tape.Backward(tensor.GlobalMean(m.Linear.Forward(tape.Input(x))))
					tape.Reset()
					disttest.OK(opt.Step())
					if r.World.Rank() == 0 {
						steps++
					}
				}
				return nil
			})
			if c.step < 0 {
				require.NoError(t, err, "%s, %s", owner, name)
				continue
			}
			require.ErrorContains(t, err, "seen must have the same values on all ranks of ", "%s, %s", owner, name)
			require.Equal(t, c.step, steps, "%s, %s", owner, name)
		}
	}
}
