package moe_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/moe/router"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// set gives each element of a matrix of an expert the value that f says.
func set(p *tensor.Param, f func(e, i, j int) float64) {
	d, first, x := p.Dims(), p.Placement().Boxes()[0].Lo[0], tensor.Data[float64](p.Value)
	for k := range x {
		x[k] = f(first+k/(d[1]*d[2]), k/d[2]%d[1], k%d[2])
	}
	p.Changed()
}

func one(i, j int) float64 {
	if i == j {
		return 1
	}
	return 0
}

// multiplying returns a layer of 8 experts whose tokens say which expert they want, and get as many times what they were as its number
// says. Their features add up to 1.
func multiplying(ranks moe.Ranks, alone *dist.Group, capacity float64) (*moe.Layer, error) {
	l := moe.NewLayer(moe.Config{Features: 8, Hidden: 8, Experts: 8, Router: router.Config{Top: 1, Normalize: true}, Capacity: capacity})
	disttest.OK(moe.Parallelize(ranks, l))
	if _, err := ddp.Attach(ranks.Tokens, l, ddp.Config{DType: tensor.Float64, Over: moe.Over(alone, l)}); err != nil {
		return nil, err
	}
	router := tensor.Data[float64](l.Router.W.Value)
	for k := range router {
		router[k] = 10 * one(k/8, k%8)
	}
	l.Router.W.Changed()
	set(l.Experts.Gate, func(_, _, _ int) float64 { return 1 })
	set(l.Experts.Up, func(_, i, j int) float64 { return one(i, j) * (1 + math.Exp(-1)) })
	set(l.Experts.Down, func(e, i, j int) float64 { return one(i, j) * float64(e) })
	return l, nil
}

// wanting returns tokens that want experts.
func wanting(experts []int) (x []float64) {
	for _, e := range experts {
		for j := range 8 {
			x = append(x, 0.02+0.84*one(e, j))
		}
	}
	return x
}

// Tokens meet the expert they chose, wherever it is, and ranks send what the matrix of counts says: between all ranks, between
// others only, to themselves only, to one rank, and where a rank has none.
func TestTokensMeetTheirExperts(t *testing.T) {
	for name, choice := range map[string][4][]int{
		"all pairs":   {{0, 2, 4, 6}, {7, 5, 3, 1, 1}, {2, 2, 0, 6, 5}, {1, 3, 5, 7, 7, 7}},
		"others only": {{2, 3, 5}, {4, 6, 7, 0}, {1}, {0, 5, 3}},
		"own only":    {{0, 1}, {3}, {4, 4, 5}, {6}},
		"one expert":  {{5, 5}, {5}, {5, 5, 5}, {5}},
		"idle ranks":  {{}, {7, 6, 1}, {}, {0}},
	} {
		for _, capacity := range []float64{0, 8} {
			t.Run(fmt.Sprint(name, " ", capacity), func(t *testing.T) {
				var loads []moe.Load
				sent, want, total := uint64(0), 0, 0 // want: slots between ranks
				for rank, list := range choice {
					total += len(list)
					for _, e := range list {
						if e/2 != rank {
							want++
						}
					}
				}
				stats := make([]uint64, 4)
				require.NoError(t, disttest.OnRanks(4, func(r *dist.Rank) error {
					mesh := disttest.Must(r.Mesh("ep=4"))
					g := mesh.Group("ep").With(dist.Name("experts"))
					l := disttest.Must(multiplying(moe.Ranks{Tokens: r.World, Experts: g}, mesh.Group(), capacity))
					load, err := meets(t, l, r, choice, total)
					stats[r.World.Rank()] = g.Stats().Wire["alltoallv"]
					if r.World.Rank() == 0 {
						loads = load
					}
					return err
				}))
				for _, n := range stats {
					sent += n
				}
				for _, list := range choice {
					for _, e := range list {
						loads[0].Chosen[e]--
					}
				}
				require.Equal(t, moe.Load{Chosen: make([]int64, 8)}, loads[0])
				if capacity == 0 {
					require.Equal(t, uint64(want*4*8*8), sent, "bytes of rows of 8 float64, there and back, twice")
				}
			})
		}
	}
}

// meets checks what a rank's tokens get, and the gradients of its experts.
func meets(t *testing.T, l *moe.Layer, r *dist.Rank, choice [4][]int, total int) ([]moe.Load, error) {
	mine, first := choice[r.World.Rank()], 0
	for _, list := range choice[:r.World.Rank()] {
		first += len(list)
	}
	tape := tensor.NewTape(r.Device)
	defer tape.Close()
	y := l.Forward(tape.Leaf(tensor.FromSlice(wanting(mine), len(mine), 8).WithRows(r.World.Rows(first, total))))
	var want []float64
	for i, v := range wanting(mine) {
		want = append(want, v*float64(mine[i/8]))
	}
	require.InDeltaSlice(t, append(want, 0), append(tensor.Floats(y), 0), 1e-12)
	tape.Backward(tensor.AsPart(y.Sum(), r.World.Axes()))
	chosen := make([]bool, 8)
	for _, list := range choice {
		for _, e := range list {
			chosen[e] = true
		}
	}
	for k, g := range tensor.Floats(l.Experts.Down.Grad.ToLocal()) {
		e := 2*r.World.Rank() + k/64
		require.Equal(t, chosen[e], g != 0, "gradient of expert %d", e)
	}
	return moe.NewBalancer(0, l).Step()
}

// Steps of ranks that share experts allocate nothing.
func TestRanksAllocateNothing(t *testing.T) {
	for _, capacity := range []float64{0, 1.2} {
		disttest.SteadySteps(t, dist.Run, 16, 6, func(r *dist.Rank) (func() error, error) {
			j := named("deepseek", capacity)
			mesh := disttest.Must(r.Mesh(whole("ep=2")))
			m := newModel(j.Config)
			params := disttest.Must(j.attach(m, mesh))
			opt, tape := trainable(params, r.World), tensor.NewTape(r.Device)
			x := tensor.New(r.Device, tensor.Float64, 5, 3)
			tensor.NormalInit(0, 1).Fill(x, 1, uint64(15*r.World.Rank()))
			x = x.WithRows(r.World.Rows(5*r.World.Rank(), 10))
			return func() error {
				in := tape.Input(x)
				tape.Backward(nn.MSE(m.Forward(in), in.Slice(1, 0, 2)))
				tape.Reset()
				return opt.Step()
			}, nil
		})
	}
}
