package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/mpi"
	"github.com/ringo-ml/ringo/tensor"
)

func init() { children["pieces"] = pieces }

// pieces runs large operations with counts that are large, and again with the limit of a library whose counts are not.
func pieces() error {
	e, err := mpi.Join(20*time.Second, 0)
	if err != nil {
		return err
	}
	var all [2][]float32
	for i, limit := range []int{1 << 40, 0} {
		e.Limit(limit)
		run := func(_ context.Context, r *dist.Rank) (err error) {
			all[i], err = large(r)
			return err
		}
		cfg := dist.Config{Threads: 1, Log: io.Discard, Timeout: 20 * time.Second}
		if err := dist.RunEngine(context.Background(), cfg, e.View(uint64(i)), e.Rank(), e.Size(), e.Size(), run); err != nil {
			return err
		}
		if err := e.Rendezvous(); err != nil {
			return err
		}
	}
	if !slices.Equal(all[0], all[1]) {
		return errors.New("other bits in pieces")
	}
	fmt.Println("same", len(all[0]))
	e.Finish()
	return e.Close()
}

// large runs operations of more than 64 KiB, and returns what they leave. Sums of small integers are the same in any order; those
// of direct are in rank order.
func large(r *dist.Rank) (results []float32, err error) {
	const each = 50_001
	w, n, me := r.World, r.World.Size(), r.World.Rank()
	random := rand.New(rand.NewPCG(7, uint64(me)))
	fill := func(count int, value func() float32) tensor.Tensor {
		x := tensor.New(r.Device, tensor.Float32, count)
		for i := range tensor.Data[float32](x) {
			tensor.Data[float32](x)[i] = value()
		}
		return x
	}
	ints := func(count int) tensor.Tensor {
		return fill(count, func() float32 { return float32(random.IntN(1000)) })
	}
	empty := func(count int) tensor.Tensor { return tensor.New(r.Device, tensor.Float32, count) }
	do := func(out tensor.Tensor, work dist.Work) {
		if err == nil {
			err = work.Wait()
		}
		results = append(results, tensor.Data[float32](out)...)
	}
	x := ints(each)
	do(x, w.AllReduce(x, dist.Sum))
	x = fill(each, random.Float32)
	do(x, w.With(dist.Algo("direct")).AllReduce(x, dist.Sum))
	x = ints(each)
	do(x, w.Broadcast(x, n-1))
	x = empty(n * each)
	do(x, w.AllGather(x, ints(each)))
	x = empty(each)
	do(x, w.ReduceScatter(x, ints(n*each), dist.Sum))
	x = empty(n * each)
	do(x, w.AllToAll(x, ints(n*each)))
	x = ints(each)
	switch me {
	case 0:
		do(x, w.Send(x, 1, 3))
	case 1:
		do(x, w.Recv(x, 0, 3))
	}
	return results, err
}

// Buffers that are larger than a count have the same bits.
func TestPieces(t *testing.T) {
	out := succeeds(t, 3, "pieces")
	require.Len(t, lines(out, "same "), 3, out)
}
