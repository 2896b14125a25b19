package measure

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/algo"
	gpupeer "github.com/ringo-ml/ringo/dist/peer"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// measureAllReduce measures sums over two ranks that share the device. By two-shot every byte of both buffers must be read once and written
// once, so the large one cannot be faster than a copy.
func measureAllReduce(m *meter) error {
	open, err := dist.Devices(m.device)
	if err != nil {
		return err
	}
	cfg := dist.Config{Ranks: 2, Exact: true, Threads: 1, Log: io.Discard,
		Device: func(_, threads int) (tensor.Device, error) { return open(0, threads) }}
	return dist.Run(context.Background(), cfg, func(_ context.Context, r *dist.Rank) error {
		large := m.pick(64<<20, 1<<16)
		per, err := m.allReduce(r, r.World, large)
		if err != nil {
			return err
		}
		m.sums(r, large, "", "GB/s", 16e-9*float64(large), per)
		return m.ways(r, large)
	})
}

// ways measures small sums by one-shot and by two-shot. On a CPU there is only one way.
func (m *meter) ways(r *dist.Rank, large int) error {
	names := []string{algo.OneShot, algo.TwoShot}
	if m.dev.Host() {
		names = []string{""}
	}
	groups := make([]*dist.Group, len(names))
	for i, name := range names {
		groups[i] = r.World.With(dist.Algo(name))
	}
	for n := 2048; n < min(large, 16<<20); n *= 4 {
		for i, name := range names {
			if name == algo.OneShot && 4*n > gpupeer.LargestOneShot {
				continue
			}
			per, err := m.allReduce(r, groups[i], n)
			if err != nil {
				return err
			}
			m.sums(r, n, name, "calls/s", 1, per)
		}
	}
	return nil
}

// sums adds a row: the rates of sums of n elements.
func (m *meter) sums(r *dist.Rank, n int, way, unit string, work float64, seconds []float64) {
	if r.World.Rank() > 0 {
		return
	}
	what := memory.Format(4*n) + ", two ranks on one device"
	if way != "" {
		what += ", " + way
	}
	rates := make([]float64, len(seconds))
	for i, s := range seconds {
		rates[i] = work / s
	}
	m.ours(what, unit, rates)
}

// allReduce measures sums of n elements, one after the other, as timed does.
func (m *meter) allReduce(r *dist.Rank, g *dist.Group, n int) ([]float64, error) {
	x := tensor.New(r.Device, tensor.Float32, n)
	if err := ones(r, g, x); err != nil {
		return nil, fmt.Errorf("%s, two ranks on one device: %w", memory.Format(4*n), err)
	}
	return m.timed(r, func() error { return g.AllReduce(x, dist.Sum).Wait() })
}

// timed measures calls of fn on all ranks at the same time. It returns the seconds of a call in some windows, in ascending order. Rank 0
// decides how many are in a window.
func (m *meter) timed(r *dist.Rank, fn func() error) ([]float64, error) {
	once := func(calls int) (float64, error) {
		if err := r.World.Barrier().Wait(); err != nil {
			return 0, err
		}
		start := time.Now()
		for range calls {
			if err := fn(); err != nil {
				return 0, err
			}
		}
		err := r.Device.Queue(0).Sync()
		return time.Since(start).Seconds() / float64(calls), err
	}
	var per float64
	for _, calls := range []int{m.pick(2, 1), m.pick(3, 1)} { // the first ones compile and allocate
		var err error
		if per, err = once(calls); err != nil {
			return nil, err
		}
	}
	plan := []float64{0}
	if r.World.Rank() == 0 {
		plan[0] = float64(min(max(m.pick(10, 1), int(m.length/per)), 5000))
	}
	if err := r.World.SumFloats(plan); err != nil {
		return nil, err
	}
	var seconds []float64
	for range 1 + m.windows() {
		per, err := once(int(plan[0]))
		if err != nil {
			return nil, err
		}
		seconds = append(seconds, per)
	}
	seconds = seconds[1:]
	slices.Sort(seconds)
	return seconds, nil
}

// ones returns an error unless x is the sum of ones, and then sets x to zeros.
func ones(r *dist.Rank, g *dist.Group, x tensor.Tensor) error {
	fill := func(v float64) { tensor.Constant(v).Fill(x, 0, 0) }
	fill(1)
	if err := g.AllReduce(x, dist.Sum).Wait(); err != nil {
		return err
	}
	defer fill(0)
	const some = 1 << 11
	return samples(x.Len(), some, exact, func(i int) (got, want []float64) {
		return part(x, i, some), slices.Repeat([]float64{2}, some)
	})
}
