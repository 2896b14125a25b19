package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// measureAllReduce measures sums over two ranks that share the device. Every byte of both buffers must be read once and written once, so
// the large one cannot be faster than a copy.
func measureAllReduce(m *meter) error {
	open, err := dist.Devices(m.device)
	if err != nil {
		return err
	}
	cfg := dist.Config{Ranks: 2, Exact: true, Threads: 1, Log: io.Discard, Device: func(_, threads int) (tensor.Device, error) { return open(0, threads) }}
	return dist.Run(context.Background(), cfg, func(_ context.Context, r *dist.Rank) error {
		large := m.pick(64<<20, 1<<16)
		if err := m.allReduce(r, large, "GB/s", 16e-9*float64(large)); err != nil {
			return err
		}
		for n := 2048; n < large; n *= 8 { // up to where copying is all that counts: beside figures of one-shot and two-shot kernels
			if err := m.allReduce(r, n, "calls/s", 1); err != nil {
				return err
			}
		}
		return nil
	})
}

// allReduce measures sums of n elements, one after the other. Rank 0 decides how many are in a window, and keeps the rates.
func (m *meter) allReduce(r *dist.Rank, n int, unit string, work float64) error {
	x := tensor.New(r.Device, tensor.Float32, n)
	once := func(calls int) (float64, error) {
		if err := r.World.Barrier().Wait(); err != nil {
			return 0, err
		}
		start := time.Now()
		for range calls {
			if err := r.World.AllReduce(x, dist.Sum).Wait(); err != nil {
				return 0, err
			}
		}
		err := r.Device.Queue(0).Sync()
		return time.Since(start).Seconds() / float64(calls), err
	}
	if err := sums(r, x); err != nil {
		return fmt.Errorf("%s, two ranks on one device: %w", tensor.FormatBytes(4*n), err)
	}
	var per float64
	for _, calls := range []int{2, 3} { // the first ones compile and allocate
		var err error
		if per, err = once(calls); err != nil {
			return err
		}
	}
	plan := []float64{0}
	if r.World.Rank() == 0 {
		plan[0] = float64(min(max(m.pick(10, 1), int(m.length/per)), 5000))
	}
	if err := r.World.SumFloats(plan); err != nil {
		return err
	}
	var rates []float64
	for range 1 + windows {
		per, err := once(int(plan[0]))
		if err != nil {
			return err
		}
		rates = append(rates, work/per)
	}
	if r.World.Rank() == 0 {
		m.ours(fmt.Sprintf("%s, two ranks on one device", tensor.FormatBytes(4*n)), unit, rates[1:])
	}
	return nil
}

// sums returns an error unless x is the sum of ones, and then sets x to zeros.
func sums(r *dist.Rank, x tensor.Tensor) error {
	fill := func(v float64) { tensor.Constant(v).Fill(x, 0, 0) }
	fill(1)
	if err := r.World.AllReduce(x, dist.Sum).Wait(); err != nil {
		return err
	}
	defer fill(0)
	const some = 1 << 11
	return samples(x.Len(), some, exact, func(i int) (got, want []float64) {
		return part(x, i, some), slices.Repeat([]float64{2}, some)
	})
}
