package cp_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/cp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// waves returns elements that differ, for tensors of these dimensions.
func waves(seed float64, dims ...int) tensor.Tensor {
	x := tensor.New(cpu.New(1), tensor.Float64, dims...)
	for i := range tensor.Data[float64](x) {
		tensor.Data[float64](x)[i] = math.Sin(seed + 1.7*float64(i)*float64(i%13+1))
	}
	return x
}

// attentionOf is a case of attention: queries, keys, values, and the gradient of the output.
type attentionOf struct{ rows, total, heads, kv, hd int }

func (c attentionOf) tensors() (x [4]tensor.Tensor) {
	for i, heads := range [4]int{c.heads, c.kv, c.kv, c.heads} {
		x[i] = waves(float64(1+i), c.rows, c.total, heads*c.hd)
	}
	return x
}

// run returns the output of f and the gradients of queries, keys and values.
func run(tape *tensor.Tape, x [4]tensor.Tensor, f func(q, k, v tensor.Tensor) tensor.Tensor) (y [4][]float64) {
	in := [3]tensor.Tensor{tape.Leaf(x[0]), tape.Leaf(x[1]), tape.Leaf(x[2])}
	out := tape.Keep(f(in[0], in[1], in[2]))
	tape.BackwardFrom([]tensor.Tensor{out}, x[3:])
	y[0] = tensor.Floats(out)
	for i := range in {
		y[1+i] = tensor.Floats(tape.GradOf(in[i]))
	}
	return y
}

// naive is the attention of a rank that gathers all: queries, keys and values, and the gradient of the output, in the order of positions.
// It returns this rank's part of the output and of the gradients. ids are the documents of all positions, or none.
func naive(g *dist.Group, f *cp.Ring, mine [4]tensor.Tensor, c attentionOf, ids tensor.Tensor) (y [4][]float64) {
	if c.rows == 0 {
		return y
	}
	places := tensor.Data[int64](partOf(f, numbers(c.rows, c.total).WithRows(g.Rows(0, c.rows)), ids)) // of this rank's positions
	type part struct {
		Places []int64
		X      [4][]float64
	}
	p := part{Places: places}
	for i, x := range mine {
		p.X[i] = tensor.Floats(x)
	}
	var whole [4]tensor.Tensor
	for i, x := range mine {
		whole[i] = tensor.New(x.Device(), tensor.Float64, c.rows, c.total, x.Dim(2))
	}
	for _, other := range disttest.Must(dist.AllGatherObject(g, p)) {
		for i := range whole {
			w := whole[i].Dim(2)
			for k, place := range other.Places {
				copy(tensor.Data[float64](whole[i])[int(place)*w:], other.X[i][k*w:(k+1)*w])
			}
		}
	}
	all := run(tensor.NewTape(cpu.New(1)), whole, func(q, k, v tensor.Tensor) tensor.Tensor {
		return ops.CrossAttention(q, k, v, c.hd, ops.AttentionOptions{Causal: true, QueryDocs: ids, KeyDocs: ids})
	})
	for i := range y {
		w := len(all[i]) / c.rows / c.total
		for _, place := range places {
			y[i] = append(y[i], all[i][int(place)*w:int(place+1)*w]...)
		}
	}
	return y
}

// partOf is this rank's part of x, with these documents, or with none.
func partOf(f *cp.Ring, x, ids tensor.Tensor) tensor.Tensor {
	if ids.IsZero() {
		return f.Part(x)
	}
	return f.PartOfDocuments(x, ids)
}

// numbers are those of the positions of all rows.
func numbers(rows, total int) tensor.Tensor {
	x := tensor.New(cpu.New(1), tensor.Int64, rows, total)
	for i := range tensor.Data[int64](x) {
		tensor.Data[int64](x)[i] = int64(i)
	}
	return x
}

// division is of so many ranks, of which some exchange positions for heads.
type division struct{ ring, ulysses int }

func (d division) of(r *dist.Rank, headDim int) *cp.Ring {
	f, _ := d.on(r, headDim)
	return f
}

// on also returns the ranks that exchange positions for heads.
func (d division) on(r *dist.Rank, headDim int) (f *cp.Ring, ulysses *dist.Group) {
	mesh := disttest.Must(r.Mesh(fmt.Sprintf("ring=%d,uly=%d", d.ring, d.ulysses)))
	ring, ulysses := mesh.Group("ring"), mesh.Group("uly")
	if d.ulysses == 1 {
		return &cp.Ring{Group: ring, HeadDim: headDim}, ulysses
	}
	return cp.Unified(ring, ulysses, headDim), ulysses
}

// divisions are those of this file's tests, for any number of heads, and for even ones.
var divisions = [2][]division{{{1, 1}, {2, 1}, {3, 1}, {4, 1}}, {{1, 2}, {2, 2}, {3, 2}}}

// equalsNaive compares the ring's attention and its gradients with naive, and returns how many bytes all ranks sent around, and exchanged.
func equalsNaive(t *testing.T, c attentionOf, d division, ids tensor.Tensor) (sent, exchanged uint64) {
	t.Helper()
	var around, across atomic.Uint64
	require.NoError(t, disttest.OnRanks(d.ring*d.ulysses, func(r *dist.Rank) error {
		f, ulysses := d.on(r, c.hd)
		var mine [4]tensor.Tensor
		for i, x := range c.tensors() {
			mine[i] = partOf(f, x.WithRows(r.World.Rows(0, c.rows)), ids)
		}
		tape, before := tensor.NewTape(r.Device), f.Group.Stats().Payload["send"]
		tape.Input(mine[0])
		got := run(tape, mine, func(q, k, v tensor.Tensor) tensor.Tensor {
			if ids.IsZero() {
				return tape.Apply(f, q, k, v)
			}
			return tape.Apply(f, q, k, v, tape.Input(ids))
		})
		around.Add(f.Group.Stats().Payload["send"] - before)
		across.Add(ulysses.Stats().Wire["alltoall"] + ulysses.Stats().Wire["alltoallv"])
		for i, want := range naive(r.World, f, mine, c, ids) {
			require.InDeltaSlice(t, want, got[i], 1e-13, "rank %d: %s", r.World.Rank(), [4]string{"output", "dq", "dk", "dv"}[i])
		}
		return nil
	}))
	return around.Load(), across.Load()
}

// The ring's attention and its gradients are those of a rank that gathers all keys: with fewer heads of keys, and runs of other lengths, of
// which some are empty. Forward sends keys and values n-1 times; Backward again, and their gradients n times.
func TestRingEqualsNaive(t *testing.T) {
	for _, c := range []attentionOf{{2, 24, 4, 2, 3}, {1, 7, 2, 2, 4}, {3, 13, 6, 1, 2}, {2, 4, 2, 1, 3}, {0, 9, 2, 1, 3}} {
		for _, d := range slices.Concat(divisions[:2-c.kv%2]...) {
			t.Run(fmt.Sprintf("%+v on %+v", c, d), func(t *testing.T) {
				if c.total < d.ring*d.ulysses {
					t.Skip("a rank would have no positions")
				}
				sent, exchanged := equalsNaive(t, c, d, tensor.Tensor{})
				if c.total >= 2*d.ring && d.ring > 1 {
					require.EqualValues(t, 8*2*c.rows*c.total*c.kv*c.hd*(3*d.ring-2), sent)
				}
				if c.total%(d.ring*d.ulysses) == 0 {
					all := 2 * 8 * c.rows * c.total * (2*c.heads + 2*c.kv) * c.hd
					require.EqualValues(t, all*(d.ulysses-1)/d.ulysses, exchanged)
				}
			})
		}
	}
}

// Queries see the keys of their own document only, and keys go no further than to ranks with a part of their documents.
func TestRingOfDocuments(t *testing.T) {
	c := attentionOf{2, 24, 4, 2, 3}
	for name, ids := range map[string]func(row, position int) int{
		"one":         func(_, _ int) int { return 7 },
		"two":         func(row, position int) int { return (position + 5*row) / 15 },
		"short":       func(_, position int) int { return position / 3 },
		"each":        func(_, position int) int { return position },
		"one of many": func(_, position int) int { return max(0, position-11) },
		"late":        func(row, position int) int { return min(position, 13+row) },
		"in no order": func(row, position int) int { return position * position / 7 % (3 + row) },
	} {
		x := numbers(c.rows, c.total)
		for i := range tensor.Data[int64](x) {
			tensor.Data[int64](x)[i] = int64(ids(i/c.total, i%c.total))
		}
		for k, d := range slices.Concat(divisions[:]...) {
			if (k+len(name))%4 == 0 == reliability.Long(t) {
				continue
			}
			t.Run(fmt.Sprint(name, " on ", d), func(t *testing.T) {
				sent, _ := equalsNaive(t, c, d, x.Cast([2]tensor.DType{tensor.Int64, tensor.Int32}[len(name)%2]))
				all := uint64(8 * 2 * c.rows * c.total * c.kv * c.hd * (3*d.ring - 2))
				switch {
				case d.ring == 1:
				case name == "each" || name == "short" && d.ring != 3: // a document is on one rank
					require.Zero(t, sent)
				case name == "one":
					require.Equal(t, all, sent)
				case name == "short":
					require.Less(t, sent, all)
				}
			})
		}
	}
}

func TestLongRingOfDocuments(t *testing.T) { reliability.AsLong(t, TestRingOfDocuments) }

// Documents are whole numbers, one for each position of whole sequences.
func TestOtherDocumentsAreRefused(t *testing.T) {
	const wants = "wants the id of each position of whole sequences, int64[2 12] or int32[2 12]"
	c := attentionOf{2, 12, 2, 2, 3}
	for _, x := range []tensor.Tensor{waves(1, 2, 12), numbers(1, 12), numbers(2, 6), numbers(1, 24).View(24)} {
		disttest.EachFails(t, 2, fmt.Sprintf("cp.Ring.PartOfDocuments: documents %v: %s", x.Shape(), wants), func(r *dist.Rank) error {
			(&cp.Ring{Group: r.World, HeadDim: 3}).PartOfDocuments(numbers(2, 12).WithRows(r.World.Rows(0, 2)), x)
			return nil
		})
		disttest.EachFails(t, 2, fmt.Sprintf("cp.Ring: documents %v: %s", x.Shape(), wants), func(r *dist.Rank) error {
			f, tape := &cp.Ring{Group: r.World, HeadDim: 3}, tensor.NewTape(r.Device)
			q := tape.Input(f.Part(c.tensors()[0].WithRows(r.World.Rows(0, 2))))
			tape.Apply(f, q, q, q, tape.Input(x))
			return nil
		})
	}
}

// Ranks compare documents in each step: one that begins to have others is named before ranks wait for keys that nobody sends.
func TestRanksNeedTheSameDocuments(t *testing.T) {
	c := attentionOf{2, 12, 2, 2, 3}
	for i, engine := range []string{"goroutines", "shm", "tcp", "GPUs", "NCCL"} {
		if i%4 > 0 && !reliability.Long(t) {
			continue
		}
		for k, d := range []division{{2, 1}, {4, 1}, {1, 2}, {2, 2}} {
			if i == 4 && k > 0 && !reliability.Long(t) {
				continue
			}
			for n, length := range []int{12, 5, 1} { // all keys are sent, some, none
				if n != (k+2)%3 && !reliability.Long(t) {
					continue
				}
				steps, ranks := 0, d.ring*d.ulysses
				cfg := dist.Config{Ranks: ranks, Threads: 1, Timeout: time.Minute, Log: io.Discard}
				err := disttest.LauncherFor(t, engine, ranks)(t.Context(), cfg, func(_ context.Context, r *dist.Rank) error {
					f, tape := d.of(r, c.hd), tensor.NewTape(r.Device)
					for step := range 6 {
						of := length
						if r.World.Rank() == 1 {
							if steps = step; step == 4 {
								of = 12 / length
							}
						}
						if err := tensor.Try(func() { attend(tape, f, r, c, of) }); err != nil {
							return err
						}
					}
					return nil
				})
				require.ErrorContains(t, err, "tags of cp.Ring, they are checksums of the documents",
					"%s, %+v, documents of %d", engine, d, length)
				require.GreaterOrEqual(t, steps, 4)
			}
		}
	}
}

func TestLongRanksNeedTheSameDocuments(t *testing.T) {
	reliability.AsLong(t, TestRanksNeedTheSameDocuments)
}

// attend does a step whose documents have so many positions.
func attend(tape *tensor.Tape, f *cp.Ring, r *dist.Rank, c attentionOf, length int) {
	ids := numbers(c.rows, c.total)
	for i := range tensor.Data[int64](ids) {
		tensor.Data[int64](ids)[i] = int64(i % c.total / length)
	}
	var in [3]tensor.Tensor
	for i, x := range c.tensors() {
		if i < 3 {
			in[i] = tape.Input(f.PartOfDocuments(x.WithRows(r.World.Rows(0, c.rows)), ids))
		}
	}
	tape.Apply(f, in[0], in[1], in[2], tape.Input(ids)).Sum().Item()
	tape.Reset()
}

// fed is a ring with two inputs more: one whose Rows are those of the step, and the documents.
type fed struct{ *cp.Ring }

func (f fed) Forward(c *tensor.Ctx, in []tensor.Tensor) tensor.Tensor {
	return f.Ring.Forward(c, []tensor.Tensor{in[0], in[1], in[2], in[4]})
}

func (f fed) Backward(c *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) {
	f.Ring.Backward(c, g, grads[:4])
}

// Backward is the adjoint of Forward, with one document and with several.
func TestRingAdjoint(t *testing.T) {
	const rows, total = 2, 9
	for _, d := range []division{{2, 1}, {3, 1}, {4, 1}, {1, 2}, {2, 2}} {
		op := func(heads int) disttest.Operand {
			return disttest.Operand{Kind: tensor.Varying, Dims: func(rank, _ int) []int {
				n, of := 0, rank/d.ulysses
				for _, k := range [2]int{of, 2*d.ring - 1 - of} {
					lo, hi := layout.Share(total, k, 2*d.ring)
					n += hi - lo
				}
				lo, hi := layout.Share(n, rank%d.ulysses, d.ulysses)
				return []int{rows, hi - lo, 3 * heads}
			}}
		}
		for _, length := range []int{total, 4} {
			ids := func(*dist.Rank) tensor.Tensor {
				x := numbers(rows, total)
				for i := range tensor.Data[int64](x) {
					tensor.Data[int64](x)[i] = int64(i % total / length)
				}
				return x
			}
			part := func(r *dist.Rank) tensor.Tensor {
				return d.of(r, 3).PartOfDocuments(numbers(rows, total).WithRows(r.World.Rows(0, rows)), ids(r))
			}
			disttest.Adjoint(t, d.ring*d.ulysses, func(r *dist.Rank) disttest.Communicating { return fed{d.of(r, 3)} },
				op(4), op(2), op(2), disttest.Operand{Const: part}, disttest.Operand{Const: ids})
		}
	}
}

// What a rank needs for its part of each sequence falls with the number of ranks, also while it computes.
func TestRingMemory(t *testing.T) {
	c := attentionOf{2, 256, 4, 2, 8}
	peaks := map[int]int{}
	for _, ranks := range []int{2, 4, 8} {
		require.NoError(t, disttest.OnRanks(ranks, func(r *dist.Rank) error {
			f := &cp.Ring{Group: r.World, HeadDim: c.hd}
			var mine [4]tensor.Tensor
			for i, x := range c.tensors() {
				mine[i] = f.Part(x.WithRows(r.World.Rows(0, c.rows)))
			}
			tape := tensor.NewTape(r.Device)
			run(tape, mine, func(q, k, v tensor.Tensor) tensor.Tensor { return tape.Apply(f, q, k, v) })
			if r.World.Rank() == 0 {
				_, peaks[ranks] = tape.Memory()
			}
			return nil
		}))
	}
	for _, ranks := range []int{4, 8} {
		require.InEpsilon(t, float64(2*peaks[2])/float64(ranks), peaks[ranks], 0.15, "%v", peaks)
	}
}

// One rank computes as without a ring, in as much memory.
func TestRingOfOne(t *testing.T) {
	c := attentionOf{2, 96, 4, 2, 8}
	x, f := c.tensors(), &cp.Ring{HeadDim: c.hd}
	measure := func(attend func(tape *tensor.Tape, q, k, v tensor.Tensor) tensor.Tensor) (y [4][]float64, peak int) {
		require.NoError(t, disttest.OnRanks(1, func(r *dist.Rank) error {
			f.Group = r.World
			tape := tensor.NewTape(r.Device)
			y = run(tape, x, func(q, k, v tensor.Tensor) tensor.Tensor { return attend(tape, q, k, v) })
			_, peak = tape.Memory()
			return nil
		}))
		return y, peak
	}
	want, most := measure(func(_ *tensor.Tape, q, k, v tensor.Tensor) tensor.Tensor {
		return ops.CrossAttention(q, k, v, c.hd, ops.AttentionOptions{Causal: true}).Scale(2)
	})
	got, peak := measure(func(tape *tensor.Tape, q, k, v tensor.Tensor) tensor.Tensor { return tape.Apply(f, q, k, v).Scale(2) })
	require.Equal(t, want, got)
	require.Equal(t, most, peak)
}

// Sequences with fewer positions than ranks are refused on all of them, before they compare their batches.
func TestRingOfShortSequences(t *testing.T) {
	for _, d := range []division{{4, 1}, {2, 2}} {
		const want = "int64[2,3]: 3 positions are fewer than the 4 ranks that divide them"
		disttest.EachFails(t, 4, want, func(r *dist.Rank) error {
			f := d.of(r, 2)
			return tensor.Try(func() { f.Part(numbers(2, 3).WithRows(r.World.Rows(0, 2))) })
		})
	}
}

// documents returns the ids of rows that have documents of these lengths.
func documents(rows ...[]int) tensor.Tensor {
	var ids []int64
	for _, lengths := range rows {
		for d, n := range lengths {
			ids = append(ids, slices.Repeat([]int64{int64(d)}, n)...)
		}
	}
	return tensor.FromSlice(ids, len(rows), len(ids)/len(rows))
}

// Documents make even parts of sequences uneven work. The parts of PartOfDocuments have as many positions and nearly equal areas, which
// Imbalance tells, if they need not stay Even: each rank counts the pairs of its positions.
func TestImbalance(t *testing.T) {
	for i, c := range []struct {
		ids        tensor.Tensor
		ranks      int
		even, want float64
	}{
		{documents([]int{4096}), 3, 1.001, 1.001},
		{documents([]int{0, 4, 4}), 2, 1, 1},
		{documents([]int{1024, 2048, 1024}), 2, 1.333, 1},
		{documents([]int{500, 3000, 596}), 4, 1.320, 1.006},
		{documents([]int{100, 200, 400, 800, 1600, 996}), 4, 1.711, 1.016},
		{documents([]int{100, 200, 400, 800, 1600, 996}), 8, 1.763, 1.050},
		{documents([]int{1000, 1000, 1000, 1097}), 8, 1.070, 1.037},
		{documents([]int{5, 6, 2}, []int{1, 8, 4}, []int{13}), 3, 1.119, 1.051},
	} {
		if i%2 == 0 && !reliability.Long(t) {
			continue
		}
		require.NoError(t, disttest.OnRanks(c.ranks, func(r *dist.Rank) error {
			f := &cp.Ring{Group: r.World, HeadDim: 2}
			rows, total := c.ids.Dim(0), c.ids.Dim(1)
			all := numbers(rows, total).WithRows(r.World.Rows(0, rows))
			parts := [2][]int64{tensor.Data[int64](f.Part(all)), tensor.Data[int64](f.PartOfDocuments(all, c.ids))}
			require.Len(t, parts[1], len(parts[0]))
			imbalances := [2]float64{}
			for i, mine := range parts {
				areas := disttest.Must(dist.AllGatherObject(r.World, areaOf(mine, c.ids)))
				sum := 0
				for _, area := range areas {
					sum += area
				}
				imbalances[i] = float64(slices.Max(areas)*c.ranks) / float64(sum)
			}
			require.Equal(t, imbalances[1], f.Imbalance(c.ids))
			require.InDeltaSlice(t, []float64{c.even, c.want}, imbalances[:], 0.0006)
			f.Even = true
			require.Equal(t, imbalances[0], f.Imbalance(c.ids))
			require.Equal(t, parts[0], tensor.Data[int64](f.PartOfDocuments(all, c.ids)))
			return nil
		}))
	}
}

func TestLongImbalance(t *testing.T) { reliability.AsLong(t, TestImbalance) }

// areaOf counts the pairs of these positions, as queries, and keys of their documents.
func areaOf(places []int64, ids tensor.Tensor) (n int) {
	of := tensor.Data[int64](ids)
	for _, q := range places {
		for k := q; k >= q/int64(ids.Dim(1))*int64(ids.Dim(1)) && of[k] == of[q]; k-- {
			n++
		}
	}
	return n
}
