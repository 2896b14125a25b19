package autograd_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/tensor"
)

// Tokens that are gathered again, at once or in pieces, train as on one rank. The short form has two pieces.
func TestTokensEqualOneRank(t *testing.T) {
	for _, chunks := range []int{1, 2, 5} {
		if chunks != 2 && !reliability.Long(t) {
			continue
		}
		t.Run(fmt.Sprint(chunks), func(t *testing.T) {
			requireOneRank(t, job{model: func() model {
				m := newSequenceGPT().(*gpt)
				m.chunks = chunks
				return m
			}}, turns(t, 0, "dp=2,tp=2", "fsdp=2,tp=3")...)
		})
	}
}

func TestLongTokensEqualOneRank(t *testing.T) { reliability.AsLong(t, TestTokensEqualOneRank) }

// Backward of both is the adjoint, also with ranks without tokens, and with more pieces than tokens.
func TestTokensAdjoint(t *testing.T) {
	for ranks := 1; ranks <= 4; ranks++ {
		for _, tokens := range []int{3, 5} {
			for _, chunks := range []int{0, 1, 2, 7} {
				counts := layout.Shares(make([]int, ranks), tokens)
				disttest.Adjoint(t, ranks, func(r *dist.Rank) disttest.Communicating {
					return &autograd.TokenGather{AllGather: autograd.AllGather{Group: r.World, Counts: counts}, Chunks: chunks}
				}, disttest.Operand{Kind: tensor.Varying, Dims: func(rank, _ int) []int { return []int{counts[rank], 4} }})
				disttest.Adjoint(t, ranks, func(r *dist.Rank) disttest.Communicating {
					return &autograd.TokenScatter{ReduceScatter: autograd.ReduceScatter{Group: r.World, Counts: counts}, Chunks: chunks}
				}, disttest.Operand{Kind: tensor.Partial, Dims: disttest.Dims(tokens, 3)})
			}
		}
	}
}

// couple is two layers, divided over a group, applied to a rank's tokens.
type couple struct {
	gather  tensor.Function
	scatter tensor.Function
	up      *tensor.Param
	down    *tensor.Param
}

func (b *couple) forward(x tensor.Tensor) tensor.Tensor {
	t := x.Tape()
	y := tensor.Linear(t.Apply(b.gather, x), t.Use(b.up), tensor.Tensor{})
	return tensor.LinearApply(b.scatter, y, t.Use(b.down))
}

// Pieces change no bit of outputs and gradients, with a few tokens and with more than 16,384. With so many, another framework has read
// pieces before they had arrived, without an error (BMTrain 174).
func TestPiecesChangeNoBit(t *testing.T) {
	for _, c := range []struct {
		counts []int // tokens of ranks 0 to 2
		width  int
	}{{[]int{17, 40, 0}, 20}, {[]int{8000, 5000, 4001}, 4}} {
		want := pieces(t, -1, c.counts, c.width)
		for _, chunks := range []int{0, 1, 2, 3, 8} {
			got := pieces(t, chunks, c.counts, c.width)
			for rank := range got {
				require.True(t, slices.Equal(want[rank], got[rank]), "%d pieces, tokens %v, rank %d", chunks, c.counts, rank)
			}
		}
	}
}

// pieces returns each rank's output and gradients of weights, for two layers. With chunks -1 it uses AllGather and ReduceScatter.
func pieces(t *testing.T, chunks int, counts []int, width int) [][]float64 {
	out := make([][]float64, len(counts))
	run(t, len(counts), func(r *dist.Rank) error {
		rank, first, total := r.World.Rank(), 0, 0
		for i, n := range counts {
			if total += n; i < rank {
				first += n
			}
		}
		all := width * len(counts)
		b := &couple{up: tensor.NewParam(tensor.NormalInit(0, 1), all, width), down: tensor.NewParam(tensor.NormalInit(0, 1), all, width)}
		for i, p := range []*tensor.Param{b.up, b.down} {
			p.Place(r.World.Axis(), layout.Division{})
			p.Make(r.Device, tensor.Float32, uint64(10*i+rank))
		}
		in := tensor.New(r.Device, tensor.Float32, counts[rank], width)
		for i := range tensor.Data[float32](in) {
			tensor.Data[float32](in)[i] = float32(math.Sin(float64(i + rank)))
		}
		g, s := autograd.AllGather{Group: r.World, Counts: counts}, autograd.ReduceScatter{Group: r.World, Counts: counts}
		b.gather, b.scatter = &g, &s
		if chunks >= 0 {
			b.gather, b.scatter = &autograd.TokenGather{AllGather: g, Chunks: chunks}, &autograd.TokenScatter{ReduceScatter: s, Chunks: chunks}
		}
		tape := tensor.NewTape(r.Device)
		defer tape.Close()
		y := b.forward(b.forward(tape.Input(in.WithRows(r.World.Rows(min(first, total-max(counts[rank], 1)), total)))))
		out[rank] = tensor.Floats(y)
		tape.Backward(y.Mul(y).Sum())
		for _, p := range []*tensor.Param{b.up, b.down} {
			out[rank] = append(out[rank], tensor.Floats(p.Grad.ToLocal())...)
		}
		return nil
	})
	return out
}

// Tokens stay until they are sent, also where nothing comes: rank 0 may change them as soon as it has the whole.
func TestTokensStayUntilTheyAreSent(t *testing.T) {
	const rows = 10_000 // not posted with the operation
	synctest.Test(t, func(t *testing.T) {
		run(t, 2, func(r *dist.Rank) error {
			f := &autograd.TokenGather{AllGather: autograd.AllGather{Group: r.World, Counts: []int{rows, 0}}, Chunks: 2}
			tape := tensor.NewTape(r.Device, tensor.NoGrad())
			defer tape.Close()
			x := make([]float64, rows*(1-r.World.Rank()))
			if r.World.Rank() == 1 {
				time.Sleep(time.Second) // virtual: it ends when rank 0 cannot go on
			}
			y := tensor.Floats(tape.Apply(f, tape.Input(tensor.FromSlice(x, len(x), 1))))
			for i := range x {
				x[i] = 1
			}
			assert.Zero(t, slices.Max(y), "rank %d", r.World.Rank())
			return nil
		})
	})
}
