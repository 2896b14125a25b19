package cuda_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cuda"
)

// prepared is a launch of a kernel on small operands, ready to be repeated.
type prepared struct {
	name string
	k    tensor.Kernel
	a    tensor.Args
	keep []tensor.Tensor
}

// prepare makes a launch of each kind: by a map, with places, a copy, in one and two passes, over a list.
func prepare(dev *cuda.Device) (ps []*prepared) {
	add := func(op tensor.Op, elements int, inputs int, set func(a *tensor.Args)) *prepared {
		p := &prepared{name: op.String(), k: dev.Kernels()[op][tensor.Float32]}
		p.a = tensor.Args{Op: op, DType: tensor.Float32, Outs: 1, N: 1 + inputs}
		for i := range 1 + inputs {
			x := ones(dev, elements)
			p.keep = append(p.keep, x)
			p.a.X[i], p.a.Len[i] = x.Ptr(), elements
		}
		set(&p.a)
		ps = append(ps, p)
		return p
	}
	add(tensor.OpReLU, 1000, 1, func(*tensor.Args) {})
	add(tensor.OpAdd, 1000, 2, layouts[1].set).a.Dim[0] = 1000
	add(tensor.OpCopy, 1000, 1, layouts[1].set).a.Dim[0] = 1000
	add(tensor.OpCopy, 64*96, 1, moves[7].set)
	add(tensor.OpSum, 1000, 1, func(a *tensor.Args) { a.Dim = [6]int{1, 1000, 1} })
	add(tensor.OpSum, 5000, 1, func(a *tensor.Args) { a.Dim = [6]int{1, 5000, 1} })
	adam := add(tensor.OpAdam, 1, 0, func(a *tensor.Args) {
		a.N, a.I[1], a.F = 0, 1, [8]float64{1e-3, 0.9, 0.999, 1e-8}
	})
	for range 150 {
		for range 4 {
			x := ones(dev, 10)
			adam.keep, adam.a.List = append(adam.keep, x), append(adam.a.List, x.Ptr())
		}
		adam.a.ListLen = append(adam.a.ListLen, 10)
	}
	return ps
}

// TestLaunchesAllocateNothing: neither on the Go heap nor on the device, and nothing is copied to or from the host.
func TestLaunchesAllocateNothing(t *testing.T) {
	dev := device(t)
	q := dev.Queue(0)
	require.NoError(t, dev.Bind())
	ps := prepare(dev)
	for _, p := range ps {
		p.k(q, &p.a)
	}
	require.NoError(t, q.Sync())
	before := dev.GPU().Stats()
	for _, p := range ps {
		n := testing.AllocsPerRun(10, func() { p.k(q, &p.a) })
		require.Zero(t, n, p.name)
	}
	after := dev.GPU().Stats()
	after.Launches = before.Launches
	require.Equal(t, before, after)
	require.NoError(t, q.Sync())
}

// BenchmarkLaunch is the host's part of a launch; the emulated stream is held back, so that no kernel runs meanwhile.
func BenchmarkLaunch(b *testing.B) {
	dev := device(b)
	q := dev.Queue(0).(*cuda.Queue)
	require.NoError(b, dev.Bind())
	for _, p := range prepare(dev) {
		p.k(q, &p.a)
		require.NoError(b, q.Sync())
		b.Run(p.name, func(b *testing.B) {
			b.ReportAllocs()
			const chunk = 500
			for b.Loop() {
				b.StopTimer()
				require.NoError(b, q.Sync())
				hold(q)
				b.StartTimer()
				for range chunk {
					p.k(q, &p.a)
				}
				b.StopTimer()
				release(q)
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*chunk), "ns/launch")
		})
		runtime.KeepAlive(p)
	}
}
