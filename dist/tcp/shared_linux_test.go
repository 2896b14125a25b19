package tcp_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/dist/shm"
	"github.com/ringo-ml/ringo/dist/tcp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

// startShared runs fn on n ranks that share memory.
func startShared(t *testing.T, n int, cfg dist.Config, fn func(r *dist.Rank) error) error {
	return run(t, n, cfg, nil, func(*tcp.Config) {}, fn)
}

func init() {
	wirings = append(wirings,
		wiring{"shared", startShared, []string{"Reductions", "HalfRoundsOnce", "Movement", "InPlace", "Forms", "Batch", "Objects",
			"RandomPrograms"}},
		wiring{"mixed", startMixed, nil})
}

func TestLongSharedFaults(t *testing.T) {
	reliability.SkipUnlessLong(t)
	t.Parallel()
	disttest.RunFaults(t, func(f disttest.Fault) disttest.Start {
		return func(t *testing.T, n int, cfg dist.Config, fn func(r *dist.Rank) error) error {
			return run(t, n, cfg, shm.Fault(f), func(*tcp.Config) {}, fn)
		}
	})
}

// Ranks on one host use shared memory, in all groups; one that does not want to decides for all.
func TestWhoShares(t *testing.T) {
	for _, c := range []struct {
		want string
		not  int
	}{{"shm", -1}, {"tcp", 0}, {"tcp", 2}} {
		rank := -1
		require.NoError(t, run(t, 3, dist.Config{Threads: 1}, nil, func(cfg *tcp.Config) { rank++; cfg.NoShared = rank == c.not },
			func(r *dist.Rank) error {
				g := disttest.Must(r.World.Split(r.World.Rank()%2, 0))
				if r.Engine() != c.want || g.Engine() != c.want {
					return fmt.Errorf("%s and %s, want %s", r.Engine(), g.Engine(), c.want)
				}
				return r.World.Barrier().Wait()
			}), c)
	}
}

// Buffers in shared memory, ordinary ones and a mix of both give the same results and the same bytes. The short form has one mix.
func TestSharedAlloc(t *testing.T) {
	t.Parallel()
	const n = 3
	require.NoError(t, startShared(t, n, dist.Config{Threads: 1}, func(r *dist.Rank) error {
		for mask := range 1 << n {
			if mask != 5 && !reliability.Long(t) {
				continue
			}
			if err := allocate(r, mask, reliability.Long(t)); err != nil {
				return fmt.Errorf("ranks %03b have shared buffers: %w", mask, err)
			}
		}
		return nil
	}))
}

func TestLongSharedAlloc(t *testing.T) { reliability.AsLong(t, TestSharedAlloc) }

// allocate uses shared buffers on the ranks of the mask, ordinary ones on the others.
func allocate(r *dist.Rank, mask int, long bool) error {
	count, rounds := 50_001, 2
	if long {
		count, rounds = 300_001, 3
	}
	g, n, me := r.World.With(), r.World.Size(), r.World.Rank()
	make_ := func(dims ...int) tensor.Tensor {
		if mask>>me&1 == 1 {
			return g.Alloc(tensor.Float32, dims...)
		}
		return tensor.New(r.Device, tensor.Float32, dims...)
	}
	for range rounds {
		x, all := make_(count), make_(n*count)
		for i, v := range tensor.Data[float32](x) {
			if v != 0 {
				return fmt.Errorf("element %d of new memory is %v", i, v)
			}
			tensor.Data[float32](x)[i] = float32(i%1000 + me)
		}
		if err := errors.Join(g.AllReduce(x, dist.Sum).Wait(), g.AllGather(all, x).Wait()); err != nil {
			return err
		}
		for i, v := range tensor.Data[float32](all) {
			if want := float32(3*(i%count%1000) + 3); v != want {
				return fmt.Errorf("element %d is %v, want %v", i, v, want)
			}
		}
		g.Free(x)
		g.Free(all)
	}
	if got := g.Stats().Wire["allgather"]; me == 0 && got != uint64(rounds*4*(n-1)*count) {
		return fmt.Errorf("all-gather: %d bytes", got)
	}
	return errors.Join(g.Barrier().Wait(), g.Close())
}

// A forced algorithm over messages runs over messages, also between ranks that share memory.
func TestSharedForcedAlgorithm(t *testing.T) {
	require.NoError(t, startShared(t, 3, dist.Config{Threads: 1}, func(r *dist.Rank) error {
		g := r.World.With(dist.Algo("allreduce:ring"))
		x := []float32{1, 2, 3, 4}
		disttest.OK(g.AllReduce(tensor.FromSlice(x, 4), dist.Sum).Wait())
		if r.Engine() != "shm" || g.Engine() != "tcp" || x[3] != 12 {
			return fmt.Errorf("%s, %s: %v", r.Engine(), g.Engine(), x)
		}
		return r.World.Barrier().Wait()
	}))
}

// mappings counts the segments of shared memory that are mapped here.
func mappings(t *testing.T) int {
	runtime.GC()
	text, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	return strings.Count(string(text), "memfd:ringo rank")
}

// awaitMappings waits until no more is mapped. What nobody uses goes with one of the next garbage collections, each of which
// may take a second on a busy machine.
func awaitMappings(t *testing.T, want int) {
	t.Helper()
	got := mappings(t)
	began := time.Now()
	for looks := 1; got > want && (looks < 20 || time.Since(began) < 20*time.Second); looks++ {
		got = mappings(t)
	}
	text, _ := os.ReadFile("/proc/self/maps")
	require.LessOrEqual(t, got, want, "%s", text)
}

// Memory of Alloc stays as it is after Run has returned, while a tensor or a view refers to it, and goes then.
func TestSharedAllocOutlivesRun(t *testing.T) {
	const n, count = 2, 100_000
	before := mappings(t) // of ranks that other tests have killed
	rounds := 1
	if reliability.Long(t) {
		rounds = 3
	}
	for round := range rounds {
		var kept [n]tensor.Tensor
		require.NoError(t, startShared(t, n, dist.Config{Threads: 1}, func(r *dist.Rank) error {
			x := r.Alloc(tensor.Float32, count)
			for i := range tensor.Data[float32](x) {
				tensor.Data[float32](x)[i] = float32(i%1000 + round)
			}
			kept[r.World.Rank()] = x.Range(1000, count)
			return r.World.AllReduce(x, dist.Sum).Wait()
		}))
		awaitMappings(t, before+n) // the heap of each rank, by itself
		for _, x := range kept {
			for i, v := range tensor.Data[float32](x) {
				require.Equal(t, float32(n*(i%1000+round)), v)
			}
			tensor.Data[float32](x)[0] = 1
		}
		runtime.KeepAlive(&kept)
	}
	awaitMappings(t, before)
}

func TestLongSharedAllocOutlivesRun(t *testing.T) { reliability.AsLong(t, TestSharedAllocOutlivesRun) }

// inShared reports whether p lies in a segment of shared memory.
func inShared(t *testing.T, p unsafe.Pointer) bool {
	text, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		var lo, hi uintptr
		_, err := fmt.Sscanf(line, "%x-%x", &lo, &hi)
		require.NoError(t, err, line)
		if lo <= uintptr(p) && uintptr(p) < hi {
			return strings.Contains(line, "memfd:ringo rank")
		}
	}
	return false
}

// What a tape with Rank.StepMemory computes lies where peers read and write in place. Close gives it back; a tape that is not closed
// keeps it as long as it or a tensor of it is reachable.
func TestTapeInSharedMemory(t *testing.T) {
	const n = 2
	before := mappings(t)
	var kept tensor.Tensor
	require.NoError(t, startShared(t, n, dist.Config{Threads: 1}, func(r *dist.Rank) error {
		tape := tensor.NewTape(r.Device, r.StepMemory())
		for _, count := range []int{1000, 100_000, 500_000} {
			x := tensor.New(r.Device, tensor.Float32, count)
			tensor.Constant(2).Fill(x, 0, 0)
			y := tape.Input(x).Scale(2)
			disttest.OK(r.World.AllReduce(y, dist.Sum).Wait())
			got := tensor.Floats(y)
			if !inShared(t, y.Ptr()) || got[0] != 4*n || got[count-1] != 4*n {
				return fmt.Errorf("shared: %t, %v and %v", inShared(t, y.Ptr()), got[0], got[count-1])
			}
			if r.World.Rank() == 1 {
				kept = y
				continue
			}
			tape.Reset()
		}
		if r.World.Rank() == 0 {
			tape.Close()
		}
		return nil
	}))
	awaitMappings(t, before+1)
	require.Equal(t, 4.*n, tensor.Floats(kept)[499_999])
	kept = tensor.Tensor{}
	awaitMappings(t, before)
}
