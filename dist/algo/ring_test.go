package algo_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/algo/memnet"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

// naiveRing is the all-reduce of ring.go without chunks. sum is this rank's input and becomes the sum over all ranks. Slice i is elements
// count·i/n to count·(i+1)/n. Read it before ring.go.
func naiveRing(t backend.Transport, sum []float64) error {
	n, rank := t.Size(), t.Rank()
	next, prev := (rank+1)%n, (rank-1+n)%n
	slice := func(i int) []float64 {
		i = (i + 2*n) % n
		return sum[len(sum)*i/n : len(sum)*(i+1)/n]
	}
	// Reduce-scatter: in each step a rank sends the partial sum of a slice, and adds its input to the one that it receives. After n−1
	// steps slice rank, which began at rank+1, is complete here.
	for s := range n - 1 {
		mine := slice(rank - 2 - s)
		in := make([]float64, len(mine))
		if err := t.SendRecv(next, float64Bytes(slice(rank-1-s)), prev, float64Bytes(in), 0); err != nil {
			return err
		}
		for i := range mine {
			mine[i] = in[i] + mine[i]
		}
	}
	// All-gather: the complete slices go around in the same way.
	for s := range n - 1 {
		if err := t.SendRecv(next, float64Bytes(slice(rank-s)), prev, float64Bytes(slice(rank-1-s)), 0); err != nil {
			return err
		}
	}
	return nil
}

// The pipelined ring adds in the same order as the naive one. So the bits are the same, also when sums are rounded, and so are the bytes
// that a rank sends.
func TestRingEqualsNaive(t *testing.T) {
	x := reduction{backend.Sum, tensor.Float64}
	for n := 1; n <= 7; n++ {
		if n > 3 && n != 5 && !reliability.Long(t) {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			w, rng := newWorld(t, n), rand.New(rand.NewPCG(5, uint64(n)))
			for _, count := range []int{0, 1, n - 1, n + 1, 1003, n*100_000 + 3} { // the last one has several chunks in each slice
				if n > 3 && count > 1003 && !reliability.Long(t) {
					continue
				}
				in, want := make([][]byte, n), make([][]float64, n)
				for r := range n {
					want[r] = make([]float64, count)
					for i := range want[r] {
						want[r][i] = rng.NormFloat64()
					}
					in[r] = bytes.Clone(float64Bytes(want[r]))
				}
				out, sent := w.reduceOn(backend.AllReduce, "ring", x, in, 0, false)
				naive := make([]uint64, n)
				net := memnet.New(n, func(m *memnet.Message) { naive[m.From] += uint64(len(m.Bytes)) })
				require.NoError(t, net.Run(context.Background(), func(t *memnet.Rank) error { return naiveRing(t, want[t.Rank()]) }))
				for r := range n {
					require.True(t, bytes.Equal(float64Bytes(want[r]), out[r]), "%d elements on %d ranks, rank %d", count, n, r)
				}
				require.Equal(t, naive, sent)
			}
		})
	}
}

func TestLongRingEqualsNaive(t *testing.T) { reliability.AsLong(t, TestRingEqualsNaive) }

func float64Bytes(x []float64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 8*len(x))
}
