package autograd_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/tensor"
)

// uneven returns dimensions of which this rank has rank+1 along dim. counts are those of all ranks.
func uneven(dim int, dims ...int) func(rank, ranks int) []int {
	return func(rank, _ int) []int {
		d := append([]int(nil), dims...)
		d[dim] = rank // rank 0 has none
		return d
	}
}

func counts(n int) []int {
	c := make([]int, n)
	for i := range c {
		c[i] = i
	}
	return c
}

// proof is a Function, made for a group, with its inputs.
type proof struct {
	name string
	f    func(g *dist.Group) disttest.Communicating
	kind tensor.Kind
	dims func(rank, ranks int) []int
}

// times returns dimensions, one of which is a multiple of the number of ranks.
func times(dim int, dims ...int) func(rank, ranks int) []int {
	return func(_, ranks int) []int {
		d := append([]int(nil), dims...)
		d[dim] *= ranks
		return d
	}
}

func proofs() (all []proof) {
	add := func(name string, kind tensor.Kind, dims func(rank, ranks int) []int, f func(g *dist.Group) disttest.Communicating) {
		all = append(all, proof{name, f, kind, dims})
	}
	add("copy", tensor.Invariant, disttest.Dims(5, 3), func(g *dist.Group) disttest.Communicating { return &autograd.Copy{Group: g} })
	for _, k := range []tensor.Kind{tensor.Partial, tensor.Cut} {
		add(fmt.Sprint("sum of ", k), k, disttest.Dims(5, 3), func(g *dist.Group) disttest.Communicating { return &autograd.Sum{Group: g} })
		add(fmt.Sprint("all-reduce of ", k), k, disttest.Dims(5, 3), func(g *dist.Group) disttest.Communicating {
			return &autograd.AllReduce{Group: g}
		})
	}
	for dim := range 3 {
		for _, k := range []tensor.Kind{tensor.Varying, tensor.Cut} {
			add(fmt.Sprintf("gather %v %d", k, dim), k, disttest.Dims(5, 3, 2), func(g *dist.Group) disttest.Communicating {
				return &autograd.AllGather{Group: g, Dim: dim}
			})
			add(fmt.Sprintf("gather alike %v %d", k, dim), k, disttest.Dims(5, 3, 2), func(g *dist.Group) disttest.Communicating {
				return &autograd.Gather{Group: g, Dim: dim}
			})
			add(fmt.Sprintf("gather alike, uneven %v %d", k, dim), k, uneven(dim, 5, 3, 2), func(g *dist.Group) disttest.Communicating {
				return &autograd.Gather{Group: g, Dim: dim - 3, Counts: counts(g.Size())}
			})
			add(fmt.Sprintf("gather uneven %v %d", k, dim), k, uneven(dim, 5, 3, 2), func(g *dist.Group) disttest.Communicating {
				return &autograd.AllGather{Group: g, Dim: dim - 3, Counts: counts(g.Size())}
			})
		}
		add(fmt.Sprint("scatter ", dim), tensor.Partial, times(dim, 3, 5, 2), func(g *dist.Group) disttest.Communicating {
			return &autograd.ReduceScatter{Group: g, Dim: dim}
		})
		add(fmt.Sprint("scatter uneven ", dim), tensor.Partial, disttest.Dims(7, 7, 7), func(g *dist.Group) disttest.Communicating {
			return &autograd.ReduceScatter{Group: g, Dim: dim, Counts: layout.Shares(make([]int, g.Size()), 7)}
		})
		for concat := range 3 {
			for _, k := range []tensor.Kind{tensor.Varying, tensor.Cut} {
				add(fmt.Sprintf("all to all %v %d %d", k, dim, concat), k, times(dim, 3, 2, 1), func(g *dist.Group) disttest.Communicating {
					return &autograd.AllToAll{Group: g, Split: dim, Concat: concat}
				})
			}
		}
	}
	add("split", tensor.Invariant, times(0, 3, 5, 2), func(g *dist.Group) disttest.Communicating { return &autograd.Split{Group: g} })
	add("split uneven", tensor.Invariant, disttest.Dims(7, 2), func(g *dist.Group) disttest.Communicating {
		return &autograd.Split{Group: g, Counts: layout.Shares(make([]int, g.Size()), 7)}
	})
	add("tokens to heads", tensor.Varying, uneven(0, 0, 7, 2), func(g *dist.Group) disttest.Communicating {
		return &autograd.AllToAll{Group: g, Split: 1, Concat: 0, Send: layout.Shares(make([]int, g.Size()), 7), Recv: counts(g.Size())}
	})
	add("rows to experts", tensor.Varying, func(_, n int) []int {
		return []int{n * (n - 1) / 2, 3}
	}, func(g *dist.Group) disttest.Communicating {
		recv := make([]int, g.Size()) // rank i sends j rows to rank j
		for i := range recv {
			recv[i] = g.Rank()
		}
		return &autograd.AllToAll{Group: g, Send: counts(g.Size()), Recv: recv}
	})
	return all
}

// Backward of each Function is the adjoint of its Forward, by its types, with odd shapes and parts of any size.
// The short form has three ranks.
func TestAdjoint(t *testing.T) {
	for _, p := range proofs() {
		t.Run(p.name, func(t *testing.T) {
			for n := 1; n <= 4; n++ {
				if (n == 3) == reliability.Long(t) {
					continue
				}
				disttest.Adjoint(t, n, func(r *dist.Rank) disttest.Communicating { return p.f(r.World) }, disttest.Operand{Kind: p.kind, Dims: p.dims})
			}
		})
	}
}

func TestLongAdjoint(t *testing.T) { reliability.AsLong(t, TestAdjoint) }

// The values are those of the collectives.
func TestValues(t *testing.T) {
	run(t, 3, func(r *dist.Rank) error {
		g, rank := r.World, float64(r.World.Rank())
		tape := tensor.NewTape(r.Device, tensor.NoGrad())
		apply := func(f tensor.Function, x []float64, dims ...int) string {
			return fmt.Sprint(tape.Apply(f, tape.Input(tensor.FromSlice(x, dims...))))
		}
		for _, c := range []struct{ got, want string }{
			{apply(&autograd.Sum{Group: g}, []float64{rank, 1}, 2), "float64[2] [3 3]"},
			{apply(&autograd.Copy{Group: g}, []float64{rank, 1}, 2), fmt.Sprintf("float64[2] [%v 1]", rank)},
			{apply(&autograd.AllGather{Group: g}, []float64{rank, 5}, 1, 2), "float64[3,2] [[0 5] [1 5] [2 5]]"},
			{apply(&autograd.AllGather{Group: g, Dim: 1}, []float64{rank, 5}, 2, 1), "float64[2,3] [[0 1 2] [5 5 5]]"},
			{apply(&autograd.ReduceScatter{Group: g, Dim: 1}, []float64{0, 1, 2, 3, 4, 5}, 2, 3),
				fmt.Sprintf("float64[2,1] [[%v] [%v]]", 3*rank, 9+3*rank)},
			{apply(&autograd.AllToAll{Group: g, Split: 1}, []float64{10 * rank, 10*rank + 1, 10*rank + 2}, 1, 3),
				fmt.Sprintf("float64[3,1] [[%v] [%v] [%v]]", rank, 10+rank, 20+rank)},
		} {
			if c.got != c.want {
				return fmt.Errorf("%s, want %s", c.got, c.want)
			}
		}
		return nil
	})
}

// Sum leaves its input as it was: the gradient rule of exp reads it.
func TestSumKeepsItsInput(t *testing.T) {
	run(t, 2, func(r *dist.Rank) error {
		at := 0.5 + float64(r.World.Rank())
		w := tensor.NewParam(tensor.Constant(at), 6)
		w.Place(r.World.Axis(), layout.Division{})
		w.Make(r.Device, tensor.Float64, 1)
		tape := tensor.NewTape(r.Device)
		defer tape.Close()
		tape.Backward(tape.Apply(&autograd.Sum{Group: r.World}, tape.Use(w).Exp()).Sum())
		for _, g := range tensor.Floats(w.Grad.ToLocal()) {
			assert.InDelta(t, math.Exp(at), g, 1e-12)
		}
		return nil
	})
}

func run(t *testing.T, ranks int, f func(r *dist.Rank) error) {
	t.Helper()
	require.NoError(t,
		disttest.OnRanks(ranks, func(r *dist.Rank) error { return f(r) }))
}

// The bytes are those in doc.go, forward and backward; one rank sends none.
func TestBytes(t *testing.T) {
	const rows, cols = 12, 5
	for n := 1; n <= 4; n++ {
		whole := uint64(rows * cols * 8)
		m := uint64(n - 1)
		for _, c := range []struct {
			name          string
			f             func(g *dist.Group) tensor.Function
			part          bool   // the input is a part of the rows
			forward, wire string // operations
			bytes         uint64
			backward      string
			both          uint64
		}{
			{"copy", func(g *dist.Group) tensor.Function { return &autograd.Copy{Group: g} }, false, "", "", 0, "allreduce", 2 * m * whole},
			{"sum", func(g *dist.Group) tensor.Function { return &autograd.Sum{Group: g} }, false, "allreduce", "", 2 * m * whole, "", 0},
			{"gather", func(g *dist.Group) tensor.Function { return &autograd.AllGather{Group: g} }, true, "allgather", "", m * whole,
				"reducescatter", m * whole},
			{"scatter", func(g *dist.Group) tensor.Function { return &autograd.ReduceScatter{Group: g} }, false, "reducescatter", "", m * whole,
				"allgather", m * whole},
			{"exchange", func(g *dist.Group) tensor.Function { return &autograd.AllToAll{Group: g} }, false, "alltoall", "", m * whole,
				"alltoall", m * whole},
		} {
			forward, both := make([]dist.Stats, n), make([]dist.Stats, n)
			run(t, n, func(r *dist.Rank) error {
				g := r.World
				d := rows
				if c.part {
					d /= n
				}
				tape := tensor.NewTape(r.Device)
				p := tensor.NewParam(tensor.Constant(1), d, cols)
				p.Make(r.Device, tensor.Float64, 0)
				y := tape.Apply(&untyped{c.f(g)}, tape.Use(p))
				forward[g.Rank()] = g.Stats()
				tape.Backward(y.Sum())
				both[g.Rank()] = g.Stats()
				return nil
			})
			sum := func(s []dist.Stats, kind string) (b uint64) {
				for _, s := range s {
					if kind == "" {
						b += s.WireBytes()
					} else {
						b += s.Wire[kind]
					}
				}
				return b
			}
			if n == 1 {
				assert.Empty(t, both[0].Calls, c.name)
				continue
			}
			assert.Equal(t, c.bytes, sum(forward, ""), "%s forward, %d ranks", c.name, n)
			assert.Equal(t, c.bytes+c.both, sum(both, ""), "%s both, %d ranks", c.name, n)
			for _, kind := range []string{c.forward, c.backward} {
				if kind != "" {
					assert.NotZero(t, sum(both, kind), "%s: %s", c.name, kind)
				}
			}
		}
	}
}

// untyped hides the types of a Function, because bytes do not depend on them.
type untyped struct{ tensor.Function }

// Wrong arguments are refused, with an error that names them.
func TestRefusals(t *testing.T) {
	run(t, 2, func(r *dist.Rank) error {
		g := r.World
		tape := tensor.NewTape(r.Device, tensor.NoGrad())
		x := tape.Input(tensor.New(r.Device, tensor.Float64, 3, 4))
		for _, c := range []struct {
			f    tensor.Function
			text string
		}{
			{&autograd.ReduceScatter{Group: g},
				"autograd.ReduceScatter float64[3,4]: 3 elements of dimension 0 do not divide by 2 ranks: set Counts, as layout.Shares gives them"},
			{&autograd.ReduceScatter{Group: g, Counts: []int{1, 1}}, "counts sum to 2, dimension 0 has 3 elements"},
			{&autograd.ReduceScatter{Group: g, Counts: []int{3}}, "1 counts for 2 ranks"},
			{&autograd.ReduceScatter{Group: g, Counts: []int{4, -1}}, "count 1 is -1"},
			{&autograd.AllGather{Group: g, Dim: 2}, "has no dimension 2"},
			{&autograd.AllGather{Group: g, Dim: -3}, "has no dimension -1"},
			{&autograd.AllGather{Group: g, Counts: []int{2, 2}}, "this rank's count is 2, dimension 0 has 3 elements"},
			{&autograd.AllToAll{Group: g, Split: 1, Concat: 5}, "has no dimension 5"},
		} {
			err := tensor.Try(func() { tape.Apply(c.f, x) })
			assert.ErrorContains(t, err, c.text)
			tape.Reset()
			x = tape.Input(tensor.New(r.Device, tensor.Float64, 3, 4))
		}
		return nil
	})
}

// Parts that have other sizes, such as logits of a vocabulary that does not divide, are an error that says what to set.
func TestUnequalParts(t *testing.T) {
	for _, f := range []func(g *dist.Group) tensor.Function{
		func(g *dist.Group) tensor.Function { return &autograd.Gather{Group: g, Dim: -1} },
		func(g *dist.Group) tensor.Function { return &autograd.AllGather{Group: g, Dim: -1} },
	} {
		name := strings.TrimPrefix(f(nil).Name(), "autograd.")
		err := disttest.OnRanks(2, func(r *dist.Rank) error {
			tape := tensor.NewTape(r.Device, tensor.NoGrad())
			x := tape.Input(tensor.New(r.Device, tensor.Float64, 2, 3-r.World.Rank()))
			return tensor.Try(func() { tape.Apply(f(r.World), x) })
		})
		assert.ErrorContains(t, err, "if parts differ, set "+name+".Counts to their sizes, as layout.Shares gives them for a whole that was "+
			"divided, or dist.AllGatherObject(g, x.Dim(1))")
	}
}

func TestShares(t *testing.T) {
	assert.Equal(t, []int{3, 2, 2}, layout.Shares(make([]int, 3), 7))
	assert.Equal(t, []int{1, 0, 0}, layout.Shares(make([]int, 3), 1))
}

// Steps through all Functions allocate nothing: along the first and another dimension, even and uneven.
func TestStepAllocatesNothing(t *testing.T) {
	disttest.SteadySteps(t, dist.Run, 12, 6, func(r *dist.Rank) (func() error, error) {
		g := r.World
		tape := tensor.NewTape(r.Device)
		x := tensor.NewParam(tensor.UniformInit(-1, 1), 6, 4)
		x.Make(r.Device, tensor.Float32, 1)
		var chain []tensor.Function
		for dim := range 2 {
			chain = append(chain, &autograd.Copy{Group: g}, &autograd.Sum{Group: g},
				&autograd.ReduceScatter{Group: g, Dim: dim}, &autograd.AllGather{Group: g, Dim: dim},
				&autograd.ReduceScatter{Group: g, Dim: dim, Counts: []int{1, 5 - 2*dim}},
				&autograd.AllGather{Group: g, Dim: dim, Counts: []int{1, 5 - 2*dim}}, &autograd.AllToAll{Group: g, Split: dim, Concat: 1 - dim},
				&autograd.AllToAll{Group: g, Split: 1 - dim, Concat: dim})
		}
		for i := range chain {
			chain[i] = &untyped{chain[i]}
		}
		return func() error {
			y := tape.Use(x)
			for _, f := range chain {
				y = tape.Apply(f, y)
			}
			tape.Backward(y.Square().Sum())
			x.Consume()
			tape.Reset()
			return nil
		}, nil
	})
}
