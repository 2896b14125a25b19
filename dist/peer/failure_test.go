package peer_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/dist/local"
	"github.com/ringo-ml/ringo/dist/peer"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/cuda"
)

// fails runs fn on n ranks that share a GPU. It returns the error of each rank, and the time.
func fails(t *testing.T, start disttest.Start, n int, fn func(r *dist.Rank) error) ([]error, time.Duration) {
	t.Helper()
	var mu sync.Mutex
	errs, begin := make([]error, n), time.Now()
	var took time.Duration
	require.Error(t, start(t, n, dist.Config{Threads: 1, Timeout: time.Minute, Log: io.Discard}, func(r *dist.Rank) error {
		err := fn(r)
		mu.Lock()
		defer mu.Unlock()
		errs[r.World.Rank()], took = err, max(took, time.Since(begin))
		return err
	}))
	return errs, took
}

// One rank gives host memory while the others give device memory.
func TestDifferentMemory(t *testing.T) {
	start := machine(t, 1, emu.Config{})
	errs, _ := fails(t, start, 2, func(r *dist.Rank) error {
		x := tensor.New(r.Device, tensor.Float32, 10)
		if r.World.Rank() == 1 {
			x = tensor.ToHost(x)
		}
		return r.World.AllReduce(x, dist.Sum).Wait()
	})
	for _, err := range errs {
		assert.ErrorContains(t, err, "allreduce seq 1 of group world: device memory (rank 0) vs host memory (rank 1)")
	}
	errs, _ = fails(t, start, 2, func(r *dist.Rank) error {
		x := tensor.New(r.Device, tensor.Float32, 10)
		return r.World.AllGather(tensor.New(cpu.New(1), tensor.Float32, 20), x).Wait()
	})
	assert.ErrorContains(t, errors.Join(errs...), "input and output are in different memory, one of them the host's")
}

// A rank fails while the devices of the others still run what they share with it. No rank waits longer than the devices run, and when
// Wait has returned an error, no memory is written any more.
func TestRankFailsBetweenOperations(t *testing.T) {
	start := machine(t, 1, emu.Config{Delay: 2 * time.Millisecond})
	boom := errors.New("boom")
	errs, took := fails(t, start, 3, func(r *dist.Rank) error {
		x := tensor.New(r.Device, tensor.Float32, 50_000)
		for i := range 20 {
			if i == 10 && r.World.Rank() == 1 {
				return boom
			}
			if err := r.World.AllReduce(x, dist.Sum).Wait(); err != nil {
				before := bytes.Clone(tensor.ToHost(x).Bytes())
				assert.True(t, bytes.Equal(before, tensor.ToHost(x).Bytes()))
				return err
			}
		}
		return nil
	})
	for rank, err := range errs {
		assert.ErrorContains(t, err, "boom", "rank %d", rank)
	}
	assert.Less(t, took, time.Second+reliability.Slack)
}

// A kernel that accesses memory out of bounds is noticed later. The error names the operation, and the launches before it.
func TestKernelFaults(t *testing.T) {
	emu.Only(t, "the device is of no use afterwards")
	machine(t, 1, emu.Config{})
	dev, err := cuda.NewDevice(0)
	require.NoError(t, err)
	d, err := peer.New(dev.GPU(), dev.Queue(0).(*cuda.Queue).Stream())
	require.NoError(t, err)
	little, err := dev.Alloc(512)
	require.NoError(t, err)
	hub := local.NewHub(2)
	ends := make([]backend.Backend, 2)
	for i := range ends {
		hub.Engine(i).(*local.Engine).Use(d)
	}
	for i := range ends {
		ends[i], err = hub.Engine(i).Open(backend.Spec{ID: 1, Gen: 1, Name: "world", Ranks: []int{0, 1}, Rank: i})
		require.NoError(t, err)
		m := backend.Mem{Ptr: little, Bytes: 400_000, Device: true}
		require.NoError(t, ends[i].Issue(&backend.Op{Kind: backend.AllReduce, DType: tensor.Float32, Seq: 1, Count: 100_000, Src: m, Dst: m}))
	}
	for deadline := time.Now().Add(20 * time.Second); err == nil && time.Now().Before(deadline); {
		_, err0 := ends[0].Progress()
		_, err1 := ends[1].Progress()
		err = errors.Join(err0, err1)
	}
	require.ErrorContains(t, err, ": allreduce seq 1 of group world: cuda: ")
	require.ErrorContains(t, err, "CUDA_ERROR_ILLEGAL_ADDRESS")
	require.ErrorContains(t, err, "peer_sum")
	emu.Heal()
	for i := range ends {
		require.NoError(t, hub.Engine(i).Close())
	}
	dev.Free(little)
	require.NoError(t, dev.Close())
}

// More ranks than a kernel can have parameters for.
func TestTooManyRanks(t *testing.T) {
	machine(t, 1, emu.Config{})
	dev, err := cuda.NewDevice(0)
	require.NoError(t, err)
	d, err := peer.New(dev.GPU(), dev.Queue(0).(*cuda.Queue).Stream())
	require.NoError(t, err)
	const n = 65
	hub, spec := local.NewHub(n), backend.Spec{ID: 1, Gen: 1, Name: "world"}
	for i := range n {
		hub.Engine(i).(*local.Engine).Use(d)
		spec.Ranks = append(spec.Ranks, i)
	}
	x := tensor.New(dev, tensor.Float32, 100)
	m := backend.Mem{Ptr: x.Ptr(), Bytes: 400, Device: true}
	var first backend.Backend
	for spec.Rank = range n {
		be, err := hub.Engine(spec.Rank).Open(spec)
		require.NoError(t, err)
		require.NoError(t, be.Issue(&backend.Op{Kind: backend.AllReduce, DType: tensor.Float32, Seq: 1, Count: 100, Src: m, Dst: m}))
		if first == nil {
			first = be
		}
	}
	_, err = first.Progress()
	require.ErrorContains(t, err, "rank 0: allreduce seq 1 of group world: 65 ranks of one process on GPUs; a reduction takes 64 at most")
	for i := range n {
		require.NoError(t, hub.Engine(i).Close())
	}
	require.NoError(t, dev.Close())
}

// Devices without a path between them: operations go through host memory, and the log says so.
func TestDevicesApart(t *testing.T) {
	var log bytes.Buffer
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(old)
	for _, gpus := range []int{1, 2} {
		start := machine(t, gpus, emu.Config{Apart: true, NoPeers: true})
		require.NoError(t, start(t, 3, dist.Config{Threads: 1}, func(r *dist.Rank) error {
			x := constant(r.Device, float32(r.World.Rank()))
			disttest.OK(r.World.AllReduce(x, dist.Sum).Wait())
			assert.InDelta(t, 3, tensor.Floats(x)[7], 0)
			return nil
		}))
		if gpus == 1 {
			assert.Empty(t, log.String())
		}
	}
	assert.Contains(t, log.String(), "what ranks exchange goes through host memory")
	assert.Contains(t, log.String(), "there is no peer-to-peer path")
}
