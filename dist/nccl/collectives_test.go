package nccl_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

// vector returns n elements of rank's data from element first on.
func vector(rank, first, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(100*rank + first + i)
	}
	return x
}

// total is the sum of vector over n ranks.
func total(n, first, count int) []float32 {
	x := make([]float32, count)
	for r := range n {
		for i, v := range vector(r, first, count) {
			x[i] += v
		}
	}
	return x
}

func concat(parts ...[]float32) []float32 {
	x := []float32{}
	for _, p := range parts {
		x = append(x, p...)
	}
	return x
}

func TestCollectives(t *testing.T) {
	for n := 1; n <= 4; n++ {
		for _, lazy := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d ranks, lazy %v", n, lazy), func(t *testing.T) {
				ranks(t, n, emu.Config{Lazy: lazy, Delay: 50 * time.Microsecond}, func(r *rank) error {
					for _, count := range []int{1, 7, 1000} {
						if err := errors.Join(collectives(r, count), uneven(r, count)); err != nil {
							return err
						}
					}
					return r.wait()
				})
			})
		}
	}
}

// at returns x on rank root, and nil on others.
func (r *rank) at(root int, x []float32) []float32 {
	if r.me == root {
		return x
	}
	return nil
}

func collectives(r *rank, count int) error {
	n, me, root := r.n, r.me, count%r.n
	mine, all := vector(me, 0, count), vector(me, 0, n*count)
	var gathered, turned []float32
	for i := range n {
		gathered = append(gathered, vector(i, 0, count)...)
		turned = append(turned, vector(i, me*count, count)...)
	}
	op := func(k backend.Kind) backend.Op { return backend.Op{Kind: k, Count: count, Root: root} }
	return errors.Join(
		r.does(op(backend.AllReduce), mine, total(n, 0, count)),
		r.does(op(backend.Reduce), mine, r.at(root, total(n, 0, count))),
		r.does(op(backend.Gather), mine, r.at(root, gathered)),
		r.does(op(backend.AllGather), mine, gathered),
		r.does(op(backend.Scatter), r.at(root, all), vector(root, me*count, count)),
		r.does(op(backend.ReduceScatter), all, total(n, me*count, count)),
		r.does(op(backend.AllToAll), all, turned),
		r.barrier(),
		r.broadcast(root, count),
	)
}

func (r *rank) broadcast(root, count int) error {
	m, err := r.upload(vector(r.me, 0, count))
	if err != nil {
		return err
	}
	op := backend.Op{Kind: backend.Broadcast, Count: count, Root: root, Dst: m}
	if r.me == root {
		op.Src = m
	}
	if err := errors.Join(r.issue(op), r.order()); err != nil {
		return err
	}
	got, err := r.download(m)
	assert.Equal(r.t, vector(root, 0, count), got, "broadcast on rank %d", r.me)
	return err
}

// uneven does the V forms; a rank may have nothing.
func uneven(r *rank, count int) error {
	n, me := r.n, r.me
	counts, first, sum := make([]int, n), 0, 0
	for i := range counts {
		if counts[i] = i * count; i < me {
			first += counts[i]
		}
		sum += counts[i]
	}
	var gathered, turned, sent []float32
	send, recv := make([]int, n), make([]int, n)
	for i := range n {
		gathered = append(gathered, vector(i, 0, counts[i])...)
		send[i], recv[i] = (me+2*i)%3*count, (i+2*me)%3*count
		sent = append(sent, vector(me, i, send[i])...)
		turned = append(turned, vector(i, me, recv[i])...)
	}
	return errors.Join(
		r.does(backend.Op{Kind: backend.AllGatherV, DstCounts: counts, Row: 1}, vector(me, 0, counts[me]), concat(gathered)),
		r.does(backend.Op{Kind: backend.ReduceScatterV, SrcCounts: counts, Row: 1}, vector(me, 0, sum), concat(total(n, first, counts[me]))),
		r.does(backend.Op{Kind: backend.AllToAllV, SrcCounts: send, DstCounts: recv, Row: 1}, concat(sent), concat(turned)),
	)
}

// barrier waits on the host, because the device has no result that it could use.
func (r *rank) barrier() error {
	return errors.Join(r.issue(backend.Op{Kind: backend.Barrier}), r.wait())
}

// A steady operation allocates nothing, and the host neither copies nor waits for the device. This holds also in rank order, which uses
// one kernel of ours.
func TestSteadyOperations(t *testing.T) {
	for algo, kernels := range map[string]int64{"": 0, backend.RankOrder: 1} {
		ranks(t, 1, emu.Config{}, func(r *rank) error { return steady(r, algo, kernels) })
	}
}

func steady(r *rank, algo string, kernels int64) error {
	m, err := r.upload(vector(0, 0, 100))
	if err != nil {
		return err
	}
	op := backend.Op{Kind: backend.AllReduce, DType: tensor.Float32, Count: 100, Src: m, Dst: m, Algo: algo}
	step := func() {
		r.seq++
		op.Seq = r.seq
		err = errors.Join(err, r.world.Issue(&op))
		for err == nil && !r.world.(backend.DeviceUser).Order(r.seq) {
			runtime.Gosched() // to the goroutine that issues: AllocsPerRun leaves it no other thread
			_, err = r.world.Progress()
		}
		for done := uint64(0); err == nil && done+backend.Depth/2 < r.seq; {
			done, err = r.world.Progress()
		}
	}
	for range 2 * backend.Depth {
		step()
	}
	before := r.dev.Stats()
	allocs := testing.AllocsPerRun(100, step)
	after := r.dev.Stats()
	if !reliability.Racing {
		assert.Less(r.t, allocs, 1.0)
	}
	before.Launches += 101 * kernels
	assert.Equal(r.t, before, after)
	return errors.Join(err, r.wait(), r.pool.Free(cuda.Ptr(uintptr(m.Ptr))))
}
