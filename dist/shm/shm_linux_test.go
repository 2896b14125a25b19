package shm

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

// hosts returns n ranks that have met.
func hosts(t *testing.T, n int) []*Host {
	t.Helper()
	out := make([]*Host, n)
	require.NoError(t, errors.Join(meet(t, n, out)...))
	t.Cleanup(func() {
		for _, h := range out {
			h.Close()
		}
	})
	return out
}

// meet makes n ranks meet, and returns the error of each.
func meet(t *testing.T, n int, out []*Host) []error {
	t.Helper()
	listeners := make([]*Listener, n)
	for r := range n {
		d, err := Listen(Config{Rank: r, Size: n, Secret: []byte("secret"), Job: "test"})
		require.NoError(t, err)
		listeners[r] = d
	}
	errs := make([]error, n)
	var wg sync.WaitGroup
	for r := range n {
		names := map[int]string{}
		for p, d := range listeners {
			if p != r {
				names[p] = d.Name()
			}
		}
		wg.Go(func() { out[r], errs[r] = listeners[r].Rendezvous(t.Context(), names) })
	}
	wg.Wait()
	for _, d := range listeners {
		d.Close()
	}
	return errs
}

func open(t *testing.T, hs []*Host, name string) []*End {
	t.Helper()
	ranks, ends := make([]int, len(hs)), make([]*End, len(hs))
	for r := range ranks {
		ranks[r] = r
	}
	for r, h := range hs {
		e, err := h.Open(backend.Spec{ID: backend.HashString(name), Name: name, Ranks: ranks, Rank: r}, 0)
		require.NoError(t, err)
		ends[r] = e
	}
	return ends
}

// steps makes all ranks take turns until operation seq is done everywhere, and returns the first error of each.
func steps(t *testing.T, ends []*End, seq uint64) []error {
	errs, left := make([]error, len(ends)), len(ends)
	over := make([]bool, len(ends))
	for deadline := time.Now().Add(20 * time.Second); left > 0; {
		require.True(t, time.Now().Before(deadline), "no progress")
		for r, e := range ends {
			if over[r] {
				continue
			}
			done, err := e.Step()
			if errs[r] = err; err != nil || done >= seq {
				over[r] = true
				left--
			}
		}
		if errors.Join(errs...) != nil {
			return errs
		}
	}
	return errs
}

func sum(seq uint64, p unsafe.Pointer, count int) *backend.Op {
	m := backend.Mem{Ptr: p, Bytes: 4 * count}
	return &backend.Op{Kind: backend.AllReduce, DType: tensor.Float32, Seq: seq, Count: count, Src: m, Dst: m}
}

// A segment that could shrink, is too short or is no memfd is refused by name, and nothing of it is touched.
func TestRefusesSegments(t *testing.T) {
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.NoError(t, unix.Ftruncate(fd, mostBytes[heap]))
	_, err = mapSegment(fd, 2, heap)
	require.EqualError(t, err, "shm: segment 1 of rank 2: not sealed: it could shrink")
	require.NoError(t, unix.Ftruncate(fd, pageBytes))
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	require.NoError(t, err)
	_, err = mapSegment(fd, 2, heap)
	require.EqualError(t, err, "shm: segment 1 of rank 2: has 4096 bytes, want pages, 67108864 to 68719476736")
	require.Error(t, unix.Ftruncate(fd, 0), "sealed")
	f, err := os.Open(os.Args[0])
	require.NoError(t, err)
	defer f.Close()
	_, err = mapSegment(int(f.Fd()), 2, heap)
	require.ErrorContains(t, err, "segment 1 of rank 2: no memfd")
}

// References that a peer has garbled are errors that name its segment; nothing outside is touched.
func TestRefusesReferences(t *testing.T) {
	const count = 100_000
	for name, c := range map[string]struct {
		garble func(d *desc)
		want   string
	}{
		"beyond the end": {func(d *desc) { d.src.off = uint64(mostBytes[heap]) - 8 },
			"segment 1 of rank 1: operation 1 of group world refers to 400000 bytes"},
		"wraps around":          {func(d *desc) { d.src.off = ^uint64(0) - 8 }, "segment 1 of rank 1"},
		"too long":              {func(d *desc) { d.dst.n = ^uint64(0) }, "segment 1 of rank 1"},
		"result beyond the end": {func(d *desc) { d.dst.off = uint64(mostBytes[heap]) - 8 }, "and 400000 at"},
		"of another kind":       {func(d *desc) { d.kind, d.dst.off = uint8(backend.ReduceScatter), 1<<40 }, "and 400000 at 0x10000000000"},
		"staged, too long":      {func(d *desc) { d.flags, d.src.n = staged, ^uint64(0) }, "segment 1 of rank 1"},
		"shorter than agreed":   {func(d *desc) { d.src.n = 4000 }, "segment 1 of rank 1"},
		"number":                {func(d *desc) { d.seq = 77 }, "segment 0 of rank 1: operation 1 of group world is garbled"},
		"kind":                  {func(d *desc) { d.kind = 200 }, "segment 0 of rank 1"},
		"counts":                {func(d *desc) { d.srcs = 3 }, "segment 0 of rank 1"},
		"kind without counts":   {func(d *desc) { d.kind = uint8(backend.AllGatherV) }, "segment 0 of rank 1: operation 1"},
		"dimensions":            {func(d *desc) { d.ndim = 255 }, "segment 0 of rank 1"},
	} {
		t.Run(name, func(t *testing.T) {
			hs := hosts(t, 2)
			ends := open(t, hs, "world")
			for r, h := range hs {
				p, _, err := h.Alloc(4 * count)
				require.NoError(t, err)
				ends[r].Start(sum(1, p, count))
			}
			c.garble(ends[1].mine.desc(1))
			begin := time.Now()
			errs := steps(t, ends, 1)
			reliability.Took(t, 35, "shm", 50*time.Millisecond, time.Since(begin))
			require.ErrorContains(t, errs[0], c.want)
		})
	}
}

// An AllToAllV without counts is the mistake of the rank that posted it.
func TestRefusesMissingCounts(t *testing.T) {
	ends, counts := open(t, hosts(t, 3), "world"), []int{1, 1, 1}
	for _, e := range ends {
		data := make([]byte, 6)
		e.Start(&backend.Op{Kind: backend.AllToAllV, DType: tensor.Uint8, Seq: 1, Row: 1, SrcCounts: counts, DstCounts: counts,
			Src: backend.Mem{Ptr: unsafe.Pointer(&data[0]), Bytes: 3}, Dst: backend.Mem{Ptr: unsafe.Pointer(&data[3]), Bytes: 3}})
	}
	ends[2].mine.desc(1).srcs = 0
	err := errors.Join(steps(t, ends, 1)...)
	require.ErrorContains(t, err, "segment 0 of rank 2: operation 1 of group world has no counts")
}

// A heap is for Alloc: ordinary memory that an operation reads and writes may be larger.
func TestMoreThanTheHeap(t *testing.T) {
	least, most := leastBytes, mostBytes
	defer func() { leastBytes, mostBytes = least, most }()
	leastBytes[heap], mostBytes[heap] = 1<<20, 1<<20
	const n, count = 2, 300_001 // 1.2 MB
	hs := hosts(t, n)
	ends := open(t, hs, "world")
	x, all, want := make([][]float32, n), make([][]float32, n), make([]float32, count)
	memory := func(s []float32) backend.Mem {
		return backend.Mem{Ptr: unsafe.Pointer(unsafe.SliceData(s)), Bytes: 4 * len(s)}
	}
	for r, e := range ends {
		x[r] = make([]float32, count)
		for i := range x[r] {
			x[r][i] = float32(i%1000 + r)
			want[i] += x[r][i]
		}
		e.Start(sum(1, memory(x[r]).Ptr, count))
	}
	require.NoError(t, errors.Join(steps(t, ends, 1)...))
	for r, e := range ends { // each has its input in its heap
		require.True(t, slices.Equal(want, x[r]), "sum of rank %d", r)
		p, _, err := hs[r].Alloc(4 * count / n)
		require.NoError(t, err)
		part := unsafe.Slice((*float32)(p), count/n)
		copy(part, x[r])
		part[0] = float32(-r)
		all[r] = make([]float32, n*len(part))
		e.Start(&backend.Op{Kind: backend.AllGather, DType: tensor.Float32, Seq: 2, Count: len(part), Src: memory(part), Dst: memory(all[r])})
	}
	require.NoError(t, errors.Join(steps(t, ends, 2)...))
	for r := range ends {
		for from := range n {
			part := all[r][from*(count/n):][:count/n]
			require.Equal(t, float32(-from), part[0])
			require.True(t, slices.Equal(want[1:count/n], part[1:]), "rank %d has of rank %d", r, from)
		}
	}
}

// A peer whose control segment cannot hold the group's block is an error that names it; nothing outside is touched.
func TestRefusesShortControl(t *testing.T) {
	hs := hosts(t, 2)
	ends := open(t, hs, "world")
	ctl := hs[0].peers[1].ctl
	whole := ctl.b
	defer func() { ctl.b = whole }()
	ctl.b = whole[:1<<20]
	ends[0].Start(&backend.Op{Kind: backend.Barrier, Seq: 1})
	_, err := ends[0].Step()
	require.ErrorContains(t, err, "segment 0 of rank 1: a group's block of 2183168 bytes at")
}

// Ranks without the secret get nothing, and others are met all the same.
func TestListenerRefusesStrangers(t *testing.T) {
	listeners := make([]*Listener, 3)
	for r := range listeners {
		secret := "secret"
		if r == 2 {
			secret = "another"
		}
		d, err := Listen(Config{Rank: min(r, 1), Size: 2, Secret: []byte(secret), Job: "test"})
		require.NoError(t, err)
		defer d.Close()
		listeners[r] = d
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err := listeners[2].Rendezvous(ctx, map[int]string{0: listeners[0].Name()})
	require.Error(t, err)
	var wg sync.WaitGroup
	var errs [2]error
	for r := range 2 {
		wg.Go(func() { _, errs[r] = listeners[r].Rendezvous(ctx, map[int]string{1 - r: listeners[1-r].Name()}) })
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs[:]...))
	for _, d := range listeners[:2] {
		defer d.h.Close()
	}
}

// A rank that nobody sees is named when the time is over.
func TestListenerNamesMissingRank(t *testing.T) {
	d, err := Listen(Config{Rank: 0, Size: 2, Secret: []byte("secret"), Job: "test"})
	require.NoError(t, err)
	defer d.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = d.Rendezvous(ctx, map[int]string{1: "@nobody"})
	require.ErrorContains(t, err, "rank 1 did not connect to map this rank's memory")
}

// A peer that was stopped in the middle of a write does not hold up an abort, and what it writes later is not seen.
func TestAbortTakesMemoryFromStoppedPeer(t *testing.T) {
	hs := hosts(t, 2)
	ends := open(t, hs, "world")
	require.NoError(t, errors.Join(steps(t, start(ends, &backend.Op{Kind: backend.Barrier, Seq: 1}), 1)...))
	p, _, err := hs[0].Alloc(64 << 10)
	require.NoError(t, err)
	ends[0].Start(sum(2, p, 16<<10))
	require.True(t, ends[1].Enter()) // and now it is stopped
	theirs := hs[1].peers[0].heap.b
	off, _ := hs[0].heap.seg.offset(p, 0)
	theirs[off] = 42
	require.Equal(t, byte(42), *(*byte)(p), "shared")
	begin := time.Now()
	ends[0].Fail()
	_, err = ends[0].Step()
	require.NoError(t, err)
	assert.Less(t, time.Since(begin), abortGrace+reliability.Slack)
	theirs[off] = 43
	require.Equal(t, byte(42), *(*byte)(p), "a peer writes after the abort")
	require.False(t, ends[1].Enter(), "the peer goes on touching memory")
	require.NoError(t, hs[0].Free(p))
	again, _, err := hs[0].Alloc(64 << 10)
	require.NoError(t, err)
	require.NotEqual(t, p, again, "memory that peers do not share is handed out")
}

// What is for all ranks stays in its slot until the slowest one has taken it.
func TestSlotsWaitForTheSlowest(t *testing.T) {
	const n, count = 3, 3 * slots * slotBytes / 4
	ends, x := open(t, hosts(t, n), "world"), [n][]float32{make([]float32, count), make([]float32, count), make([]float32, count)}
	for i := range x[0] {
		x[0][i] = float32(i / 1000)
	}
	for r, e := range ends {
		m := backend.Mem{Ptr: unsafe.Pointer(unsafe.SliceData(x[r])), Bytes: 4 * count}
		e.Start(&backend.Op{Kind: backend.Broadcast, DType: tensor.Float32, Seq: 1, Count: count, Src: m, Dst: m})
	}
	for range 10 * slots {
		for _, e := range []*End{ends[0], ends[2]} {
			_, err := e.Step()
			require.NoError(t, err)
		}
	}
	require.NoError(t, errors.Join(steps(t, ends, 1)...))
	for r := range ends {
		require.True(t, slices.Equal(x[0], x[r]), "rank %d", r)
	}
}

func start(ends []*End, op *backend.Op) []*End {
	for _, e := range ends {
		o := *op
		e.Start(&o)
	}
	return ends
}

// Groups give back what they used: the directory and segment 0 are as they were.
func TestGroupsGiveBack(t *testing.T) {
	hs := hosts(t, 3)
	for i := range 200 {
		ends := open(t, hs, strings.Repeat("g", i+1))
		require.NoError(t, errors.Join(steps(t, start(ends, &backend.Op{Kind: backend.Barrier, Seq: 1}), 1)...))
		for _, e := range ends {
			e.Close()
		}
	}
	for _, h := range hs {
		h.mu.Lock()
		h.sweep()
		h.mu.Unlock()
		assert.Empty(t, h.retired)
		assert.Len(t, h.blocks.used, 1, "the hub")
		assert.LessOrEqual(t, h.directory.top.Load(), uint64(3))
	}
}

// Memory comes zeroed, in one piece again after it was given back in any order, and more than there is is an error.
func TestHeap(t *testing.T) {
	h := hosts(t, 1)[0]
	var ps []unsafe.Pointer
	for range 5 {
		p, _, err := h.Alloc(3 * pageBytes)
		require.NoError(t, err)
		b := unsafe.Slice((*byte)(p), 3*pageBytes)
		for i := range b {
			require.Zero(t, b[i])
			b[i] = 1
		}
		ps = append(ps, p)
	}
	for _, i := range []int{1, 3, 2, 0, 4} {
		require.NoError(t, h.Free(ps[i]))
	}
	require.Equal(t, []span{{0, len(h.heap.seg.b)}}, h.heap.free)
	require.Error(t, h.Free(ps[0]), "twice")
	require.Error(t, h.Free(unsafe.Pointer(&ps)))
	_, _, err := h.Alloc(len(h.heap.seg.b) + 1)
	require.ErrorContains(t, err, "segment 1 of rank 0")
	empty, _, err := h.Alloc(0)
	require.NoError(t, err)
	p, _, err := h.Alloc(1)
	require.NoError(t, err)
	require.Zero(t, *(*byte)(p))
	require.NotEqual(t, empty, p)
	require.NoError(t, h.Free(p))
	require.NoError(t, h.Free(empty), "each has a place of its own")
}

// A token on the way to a bell that was not waited for is no harm, and a ring is not lost.
func TestBell(t *testing.T) {
	hs := hosts(t, 2)
	k := hs[1].peers[0].doorbell
	const rounds = 2000
	var wg sync.WaitGroup
	turn := make(chan struct{})
	wg.Go(func() {
		for range rounds {
			k.ring()
			<-turn
		}
	})
	for range rounds {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		require.NoError(t, hs[0].Park(ctx))
		cancel()
		turn <- struct{}{}
	}
	wg.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for hs[0].Park(ctx) == nil { // stray tokens
	}
	k.ring()
	require.NoError(t, hs[0].Park(ctx), "a ring counts more than an ended context")
}
