package blas

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/dl"
)

// maxPlans is the number of plans that are kept. When there are more, all are
// dropped.
const maxPlans = 4096

// Handle is cuBLASLt on one device. Its calls need the device's context on the
// thread (cuda.Device.Lock).
type Handle struct {
	lib    *Lib
	dev    *cuda.Device
	pool   *cuda.Pool
	handle uintptr

	mu     sync.Mutex
	plans  map[key]*plan
	spaces map[*cuda.Stream]space
	tmp    scratch

	folder string // of choices; "" if algorithms are not timed
	timed  func(s *cuda.Stream, run func() error) (ms float32, err error)
}

// space is the workspace of a stream. It has the largest size that was needed.
type space struct {
	ptr cuda.Ptr
	n   int
}

// New makes a handle whose workspaces come from pool. The thread must hold the
// device's context. With RINGO_CUDA_TUNE=1 it times algorithms.
func (l *Lib) New(dev *cuda.Device, pool *cuda.Pool) (*Handle, error) {
	h := &Handle{lib: l, dev: dev, pool: pool, plans: map[key]*plan{}, spaces: map[*cuda.Stream]space{}}
	h.timed = h.timeOnce
	if os.Getenv("RINGO_CUDA_TUNE") == "1" {
		h.folder = cuda.CacheDir()
	}
	if s := status(int32(dl.Call(l.fn.Create, uintptr(unsafe.Pointer(&h.handle))))); s != success {
		return nil,
			&Error{Call: "cublasLtCreate", Status: int(s), About: fmt.Sprintf("%s (%s) on device %d", l.Lib.Version, l.Lib.Path, dev.Index)}
	}
	return h, nil
}

// Close frees the workspaces, in the order of their streams, and the handle.
func (h *Handle) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forget()
	var err error
	for s, w := range h.spaces {
		if e := h.pool.Free(w.ptr); e != nil {
			err = e
		}
		delete(h.spaces, s)
	}
	if s := status(int32(dl.Call(h.lib.fn.Destroy, h.handle))); s != success && err == nil {
		err = &Error{Call: "cublasLtDestroy", Status: int(s), About: "handle"}
	}
	return err
}

func (h *Handle) forget() {
	for _, p := range h.plans {
		h.destroy(p)
	}
	clear(h.plans)
}

// MatMul queues a product on the stream. If cuBLASLt has no algorithm for it, the
// error is IsUnsupported. A product whose shape, types, epilogue and alignment were
// seen before costs one call, and allocates nothing.
func (h *Handle) MatMul(s *cuda.Stream, g *Gemm) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, err := h.plan(g)
	if err != nil {
		return err
	}
	if p.unsupported != nil {
		return p.unsupported
	}
	if err := h.point(p, g); err != nil {
		return err
	}
	if h.folder != "" && !p.tuned && !h.dev.Capturing() {
		if err := h.tune(s, p, g); err != nil {
			return err
		}
	}
	return h.run(s, p, &p.algo, g)
}

// run queues a product whose descriptor points to its operands.
func (h *Handle) run(s *cuda.Stream, p *plan, algo *heuristic, g *Gemm) error {
	work, err := h.workspace(s, int(algo.workspace))
	if err != nil {
		return err
	}
	t := &h.tmp
	alpha, beta := unsafe.Pointer(&t.scale[0]), unsafe.Pointer(&t.scale[1])
	t.scale[0], t.scale[1] = float32(g.Alpha), float32(g.Beta)
	if g.Type == Float64 {
		t.double[0], t.double[1] = g.Alpha, g.Beta
		alpha, beta = unsafe.Pointer(&t.double[0]), unsafe.Pointer(&t.double[1])
	}
	t.call = [16]uintptr{h.handle, p.desc, uintptr(alpha), uintptr(g.B), p.a, uintptr(g.A), p.b,
		uintptr(beta), uintptr(g.C), p.c, uintptr(g.Out()), p.c, uintptr(unsafe.Pointer(algo)),
		uintptr(work.ptr), uintptr(work.n), s.Handle()}
	r := dl.Call(h.lib.fn.Matmul, t.call[:]...)
	runtime.KeepAlive(p)
	if status(int32(r)) != success {
		return check("cublasLtMatmul", r, g)
	}
	return s.Note(p.note)
}

func (h *Handle) plan(g *Gemm) (*plan, error) {
	k := g.key()
	if p := h.plans[k]; p != nil {
		return p, nil
	}
	if len(h.plans) >= maxPlans {
		h.forget()
	}
	p, err := h.newPlan(g)
	if err != nil {
		return nil, err
	}
	h.plans[k] = p
	return p, nil
}

// workspace returns the stream's workspace, of at least n bytes. A larger one
// replaces a smaller one; the pool gives the smaller one out again for later work
// of the stream.
func (h *Handle) workspace(s *cuda.Stream, n int) (space, error) {
	w := h.spaces[s]
	if w.n >= n {
		return w, nil
	}
	ptr, err := h.pool.Alloc(s, n)
	if err != nil {
		return space{}, fmt.Errorf("workspace of cuBLASLt: %w", err)
	}
	if w.ptr != 0 {
		if err := h.pool.Free(w.ptr); err != nil {
			return space{}, err
		}
	}
	h.spaces[s] = space{ptr, n}
	return h.spaces[s], nil
}
