package cuda_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cuda"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// prepared is a launch of a kernel on small operands, which can be repeated.
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
	product := func(a *tensor.Args) {
		a.Dim = [6]int{1, 16, 32, 8}
		a.Stride[0][1], a.Stride[1][1], a.Stride[2][1] = 32, 8, 32
	}
	add(tensor.OpMatMul, 512, 2, product)
	add(tensor.OpMatMul, 512, 3, product) // with a bias
	add(tensor.OpLinearAct, 512, 3, func(a *tensor.Args) {
		product(a)
		a.I[5] = int(tensor.ActGELU)
	})
	add(ops.OpSoftmax, 512, 1, func(a *tensor.Args) { a.Dim = [6]int{16, 32} })
	add(ops.OpRMSNormGradW, 512, 3, func(a *tensor.Args) { a.Dim = [6]int{16, 32} })
	attend := add(ops.OpAttention, 512, 2, func(a *tensor.Args) {
		a.Dim, a.I, a.F, a.Outs = [6]int{1, 4, 24}, [8]int{8}, [8]float64{1, 0.5}, 2
		a.I[2], a.I[3], a.I[4], a.I[5] = 0, 1, 16, 16
	})
	attend.a.N = 3
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

// TestLaunchesAllocateNothing: launches allocate nothing on the Go heap or the device, and copy nothing to or from the host.
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
		require.True(t, n == 0 || reliability.Racing, "%s: %v allocations", p.name, n)
	}
	after := dev.GPU().Stats()
	after.Launches = before.Launches
	require.Equal(t, before, after)
	require.NoError(t, q.Sync())
}

// TestOpAfterGrowth: memory that an operation needs while it runs is filled by another one, which errors must not name.
func TestOpAfterGrowth(t *testing.T) {
	require.Equal(t, ops.OpMax, cuda.OpAfterGrowth(device(t), ops.OpMax))
}

// TestManyTiles: launches of more than 65535 tiles are accepted. They do not run, because the launch before them fails later.
func TestManyTiles(t *testing.T) {
	emu.Start(t, emu.Config{FailLaunch: 1})
	dev, err := cuda.NewDevice(0)
	require.NoError(t, err)
	q := dev.Queue(0).(*cuda.Queue)
	hold(q)
	x := tensor.New(dev, tensor.Float32, 1) // the zeros make the launch fail
	const many = 65536
	attention := heads{1, 32 * many, 1, 2, true, 0}
	products := grouped{many, 2, []int{64 * many}, false, 0}
	for op, set := range map[tensor.Op]func(a *tensor.Args){ops.OpAttention: attention.set, ops.OpAttentionGrad: attention.set,
		ops.OpGroupedLinear: products.set, ops.OpGroupedGrad: products.set} {
		a := &tensor.Args{Op: op, DType: tensor.Float32, Outs: 1, N: 5}
		for i := range a.N {
			a.X[i], a.Len[i] = x.Ptr(), 1
		}
		set(a)
		require.NoError(t, tensor.Try(func() { dev.Kernels()[op][tensor.Float32](q, a) }), "%v", op)
	}
	release(q)
	require.ErrorContains(t, dev.Close(), "a failure that the test asked for")
	emu.Heal()
}

// BenchmarkLaunch measures the host's part of a launch. The emulated stream is held, so no kernel runs at the same time.
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
