package cp_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/cp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/tensor"
)

// The way to heads and back gives every rank its positions, and between lie all positions of its heads.
func TestThereAndBack(t *testing.T) {
	const rows, positions, heads, headDim, ranks = 2, 7, 6, 2, 3
	whole := make([]float64, rows*positions*heads*headDim)
	for i := range whole {
		whole[i] = float64(i)
	}
	require.NoError(t, disttest.OnRanks(ranks, func(r *dist.Rank) error {
		mesh, err := r.Mesh("cp=3")
		require.NoError(t, err)
		u := &cp.Ulysses{Group: mesh.Group("cp"), HeadDim: headDim}
		tape := tensor.NewTape(r.Device, tensor.NoGrad())
		mine := u.Part(tensor.FromSlice(whole, rows, positions, heads*headDim).WithRows(r.World.Rows(0, rows)))
		x := tape.Input(mine)
		y := tape.Apply(u.ToHeads(), x)
		require.Equal(t, []int{rows, positions, heads / ranks * headDim}, y.Shape().Dims)
		for i, v := range tensor.Floats(y) {
			cols := heads / ranks * headDim
			require.EqualValues(t, i/cols*heads*headDim+r.World.Rank()*cols+i%cols, v)
		}
		require.Equal(t, tensor.Floats(mine), tensor.Floats(tape.Apply(u.ToPositions(), y)))
		return nil
	}))
}

// Backward of a microbatch goes the way of its own Forward, also if that of the next microbatch, with other positions, was before it: with
// 7 positions parts are uneven, with 8 they are not.
func TestAnotherLengthBeforeBackward(t *testing.T) {
	const features, headDim, ranks = 8, 2, 2
	for _, lengths := range [][]int{{7, 8}, {8, 7}, {7, 9}} {
		require.NoError(t, disttest.OnRanks(ranks, func(r *dist.Rank) error {
			u := &cp.Ulysses{Group: r.World, HeadDim: headDim}
			there, back := u.ToHeads(), u.ToPositions()
			w := tensor.NewParam(tensor.Constant(3), features)
			w.Through(&autograd.Copy{Group: r.World})
			w.Make(r.Device, tensor.Float64, 1)
			want := make([]float64, features)
			var losses []tensor.Tensor
			for _, n := range lengths {
				whole := make([]float64, n*features)
				for i := range whole {
					whole[i] = float64(i*i%11 - 3)
					want[i%features] += 2 * whole[i] * whole[i] * 3
				}
				tape := tensor.NewTape(r.Device)
				defer tape.Close()
				x := tape.Input(u.Part(tensor.FromSlice(whole, 1, n, features).WithRows(r.World.Rows(0, 1))))
				y := tape.Apply(back, tape.Apply(there, x.Mul(tape.Use(w))).Square())
				losses = append(losses, y.Sum())
			}
			for _, loss := range losses {
				loss.Tape().Backward(loss, tensor.More())
			}
			require.Equal(t, want, tensor.Floats(w.Grad.ToLocal()), "positions %v", lengths)
			return nil
		}))
	}
}

// What does not divide, and what no loader gave, is an error that says so.
func TestUlyssesRefuses(t *testing.T) {
	require.NoError(t, disttest.OnRanks(4, func(r *dist.Rank) error {
		mesh, err := r.Mesh("cp=4")
		require.NoError(t, err)
		u := &cp.Ulysses{Group: mesh.Group("cp"), HeadDim: 2}
		whole := tensor.New(r.Device, tensor.Float32, 3, 8, 12)
		err = tensor.Try(func() { u.Part(whole) })
		require.ErrorContains(t, err, "float32[3,8,12] needs dimensions of rows and positions, and the rows of a loader")
		err = tensor.Try(func() { u.Part(tensor.New(r.Device, tensor.Int64, 3, 3).WithRows(r.World.Rows(0, 3))) })
		require.ErrorContains(t, err, "int64[3,3]: 3 positions are fewer than the 4 ranks that divide them")
		rows := whole.WithRows(r.World.Rows(0, 3))
		tape := tensor.NewTape(r.Device)
		x := tape.Input(u.Part(rows))
		require.Equal(t, []int{3, 2, 12}, x.Shape().Dims)
		err = tensor.Try(func() { tape.Apply(u.ToHeads(), x) })
		require.ErrorContains(t, err, "6 heads do not divide over 4 ranks: the number of ranks must divide 6")
		tape.Reset()
		p := tensor.NewParam(tensor.Constant(1), 3, 8, 16)
		p.Make(r.Device, tensor.Float32, 1)
		err = tensor.Try(func() { tape.Apply(u.ToHeads(), tape.Use(p)) })
		require.ErrorContains(t, err, "an input is invariant, must be varying")
		tape.Reset()
		p = tensor.NewParam(tensor.Constant(1), 3, 32, 16)
		p.Place(mesh.Group("cp").Axis(), layout.Division{Dim: 1})
		p.Make(r.Device, tensor.Float32, 1)
		err = tensor.Try(func() { tape.Apply(u.ToHeads(), tape.Use(p)) })
		require.ErrorContains(t, err, "whole sequences")
		return nil
	}))
}

// Ranks that are given different batches would join parts of them. They are told so in their first step.
func TestRanksNeedOneBatch(t *testing.T) {
	for want, change := range map[string]func(x tensor.Tensor, g *dist.Group) tensor.Tensor{
		"rank 1 of 2 has int64[3,4], rows 0 of 3, with the checksum ": func(x tensor.Tensor, g *dist.Group) tensor.Tensor {
			tensor.Data[int64](x)[11] = int64(g.Rank())
			return x
		},
		"rank 1 of 2 has int64[3,4], rows 1 of 4, with the checksum ": func(x tensor.Tensor, g *dist.Group) tensor.Tensor {
			return x.WithRows(g.Rows(g.Rank(), 4))
		},
		"rank 1 of 2 has int64[2,4], rows 0 of 3, with the checksum ": func(x tensor.Tensor, g *dist.Group) tensor.Tensor {
			return tensor.New(x.Device(), tensor.Int64, 3-g.Rank(), 4).WithRows(x.Rows())
		},
		"": func(x tensor.Tensor, _ *dist.Group) tensor.Tensor { return x },
	} {
		for first := range 2 { // the input, and the labels
			part := func(r *dist.Rank) (err error) {
				u := &cp.Ulysses{Group: r.World, HeadDim: 2}
				x := tensor.New(r.Device, tensor.Int64, 3, 4).WithRows(r.World.Rows(0, 3))
				for range first {
					u.Part(x)
				}
				for range 2 { // a program that goes on after the error is refused again
					err = tensor.Try(func() { u.Part(change(x, r.World)) })
				}
				return err
			}
			if want == "" {
				require.NoError(t, disttest.OnRanks(2, part))
			} else {
				disttest.EachFails(t, 2, "cp.Ulysses.Part: ranks that divide sequences need the same batch: "+want, part)
			}
		}
	}
}

// Ranks of two groups compare what any of them has.
func TestAllRanksNeedOneBatch(t *testing.T) {
	for other := range 4 {
		number := max(other, 1) // of the first that differs from rank 0
		disttest.EachFails(t, 4, fmt.Sprintf("cp.Unified.Part: ranks that divide sequences need the same batch: rank %d of 4 has ", number),
			func(r *dist.Rank) error {
				x := numbers(3, 4)
				if r.World.Rank() == other {
					tensor.Data[int64](x)[11] = 0
				}
				f := division{2, 2}.of(r, 2)
				return tensor.Try(func() { f.Part(x.WithRows(r.World.Rows(0, 3))) })
			})
	}
}

// What ranks of two groups have is not in their order; nor is it all there on those of one.
func TestUnifiedIsNotGathered(t *testing.T) {
	for among, says := range map[string]string{
		"":     "joined, these are not in the order of positions",
		"ring": "parts of the sequence too", "uly": "parts of the sequence too",
	} {
		err := disttest.OnRanks(4, func(r *dist.Rank) error {
			mesh, err := r.World.Mesh("ring=2,uly=2")
			if err != nil {
				return err
			}
			g := r.World
			if among != "" {
				g = mesh.Group(among)
			}
			tape := tensor.NewTape(r.Device)
			x := cp.Unified(mesh.Group("ring"), mesh.Group("uly"), 2).Part(numbers(3, 8).WithRows(r.World.Rows(0, 3)))
			tape.Apply(&autograd.AllGather{Group: g, Dim: 1}, tape.Input(x))
			return nil
		})
		require.ErrorContains(t, err, says, among)
	}
}
