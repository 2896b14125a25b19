package main

import (
	"context"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

// The memory streams of a reference do the operation: all ranks get its result. In the short form, what is copied as a whole goes past the
// cache, and all else is smaller.
func TestStreams(t *testing.T) {
	const n = 3
	for _, op := range benchOps {
		if op.kind == backend.Barrier {
			continue
		}
		full := 3 * (2*algo.BlockBytes + 100) // parts are copied in blocks that do not divide evenly
		if op.kind == backend.Broadcast || reliability.Long(t) {
			full = 3 * (22*algo.BlockBytes + 100) // the whole is copied past the cache
		}
		a, b, cases := make([][]byte, n), make([][]byte, n), make([]*benchCase, n)
		for r := range n {
			x, y := make([]float32, full), make([]float32, full)
			a[r] = unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), 4*full)
			b[r] = unsafe.Slice((*byte)(unsafe.Pointer(&y[0])), 4*full)
			c := &benchCase{op: op, n: n, rank: r, full: full, a: tensor.FromSlice(x, full), b: tensor.FromSlice(y, full)}
			c.counts = slices.Repeat([]int{full / n}, n)
			c.even, c.recv = first(c.b, full/n), c.counts
			c.uneven = c.even
			if in := op.input(c); !in.IsZero() {
				for i, d := 0, tensor.Data[float32](in); i < len(d); i++ {
					d[i] = value(r, i)
				}
			}
			cases[r] = c
		}
		red := new(algo.Reducer)
		red.Begin(&backend.Op{Red: backend.Sum, DType: tensor.Float32}, n)
		for r := range n {
			for _, s := range streams(op.kind, r, a, b) {
				s.run(red)
			}
		}
		for _, c := range cases {
			if out := op.output(c); !out.IsZero() {
				want := make([]float32, out.Len())
				for i := range want {
					want[i] = op.want(c, i)
				}
				assert.True(t, slices.Equal(want, tensor.Data[float32](out)), "%s, rank %d", op.name, c.rank)
			}
		}
	}
}

func TestLongStreams(t *testing.T) { reliability.AsLong(t, TestStreams) }

// A wrong result on one rank makes the row wrong on all, and the command fails. So does a Reduce that changes the input of a rank other
// than the root.
func TestBenchFindsWrongResults(t *testing.T) {
	sum, reduce := *findBenchOp("allreduce"), *findBenchOp("reduce")
	right := sum
	sum.want = func(c *benchCase, i int) float32 { return c.sum(i) + float32(c.rank*(i/15)) } // wrong in the last element of rank 1
	reduce.call = func(c *benchCase) dist.Work { return c.g.AllReduce(c.a, dist.Sum) }
	for _, x := range []struct {
		op      *benchOp
		correct bool
	}{{&right, true}, {&sum, false}, {&reduce, false}} {
		require.NoError(t, dist.Run(t.Context(), dist.Config{Ranks: 2, Threads: 1}, func(_ context.Context, r *dist.Rank) error {
			spec := &benchSpec{Here: 2}
			b := &bencher{r: r, spec: spec, control: r.World.With(dist.Name("control")), x: buffer(r, spec, 64), y: buffer(r, spec, 64)}
			row, err := b.row(x.op, "", 64)
			assert.Equal(t, x.correct, row.Correct, "%s, rank %d", x.op.name, r.World.Rank())
			failed := (&benchCmd{}).report([][]benchRow{{row}})
			assert.Equal(t, x.correct, failed == nil, failed)
			return err
		}))
	}
}
