package blas

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/cuda"
)

const (
	// candidates is how many algorithms cuBLASLt is asked for: its heuristic's best ones.
	candidates = 8
	// rounds is how often each of them is timed. The least time counts.
	rounds = 4
	// gain is how much faster than the heuristic's first algorithm another one must be: timings differ by as much.
	gain = 1.02
)

// A choice is kept in a file, and only what is in the file is used. So all processes with this folder use the same algorithm, which
// means the same bits, whoever timed first. Without the file the heuristic's first algorithm stays.

// tune gives the plan the fastest of the candidates for it.
func (h *Handle) tune(s *cuda.Stream, p *plan, g *Gemm) error {
	p.tuned = true
	if len(p.found) < 2 {
		return nil
	}
	path := h.choicePath(g)
	if p.choose(path) {
		return nil
	}
	if _, err := os.Stat(path); err == nil {
		return nil // damaged, or of another library: once it is deleted, algorithms are timed again
	}
	times, err := h.timeAll(s, p, g)
	if cuda.IsOutOfMemory(err) {
		return nil // the product itself may need less
	}
	if err != nil {
		return fmt.Errorf("timing algorithms of %v: %w", g, err)
	}
	best := 0
	for i, t := range times {
		if t < times[best] && t*gain < times[0] {
			best = i
		}
	}
	about := fmt.Sprintf("%v, %s, %s: %.4g ms, the first algorithm %.4g", g, h.dev.Name, h.lib.Lib.Version, times[best], times[0])
	keepChoice(path, about, &p.found[best])
	p.choose(path)
	return nil
}

// choicePath is the file of a choice. Its name stands for all that the choice depends on.
func (h *Handle) choicePath(g *Gemm) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %+v", h.dev.Name, h.lib.Version, g.key()))
	return filepath.Join(h.folder, "gemm-"+hex.EncodeToString(sum[:16])+".txt")
}

// bytes is the algorithm as cuBLASLt describes it.
func (r *heuristic) bytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&r.algo)), unsafe.Sizeof(r.algo))
}

// choose takes the algorithm in a file, if it is one of those found. A file may be damaged, or of a library that says it has the same
// version.
func (p *plan) choose(path string) bool {
	text, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	_, last, _ := strings.Cut(string(text), "\n")
	i := slices.IndexFunc(p.found, func(r heuristic) bool { return hex.EncodeToString(r.bytes()) == strings.TrimSpace(last) })
	if i >= 0 {
		p.algo = p.found[i]
	}
	return i >= 0
}

// keepChoice writes a file whole or not at all, and never over another one. If it cannot, there is no choice.
func keepChoice(path, about string, r *heuristic) {
	if os.MkdirAll(filepath.Dir(path), 0o755) != nil {
		return
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return
	}
	defer os.Remove(f.Name())
	_, err = fmt.Fprintf(f, "%s\n%x\n", about, r.bytes())
	if closed := f.Close(); err == nil && closed == nil {
		_ = os.Link(f.Name(), path) // another process may have been first
	}
}

// timeAll returns the milliseconds of each candidate, in turns, so that a change of the clock's rate meets all of them. One that cuBLASLt
// refuses takes for ever. What they write, the product writes again.
func (h *Handle) timeAll(s *cuda.Stream, p *plan, g *Gemm) (times []float32, err error) {
	trial := *g
	if g.Beta != 0 && g.Out() == g.C { // it would add to C several times
		if trial.D, err = h.pool.Alloc(s, ((max(g.Batch, 1)-1)*g.StrideC+g.M*g.LDC)*types[g.Type].size); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, h.pool.Free(trial.D)) }()
	}
	times = slices.Repeat([]float32{math.MaxFloat32}, len(p.found))
	refused := make([]bool, len(p.found))
	for round := range rounds + 1 { // the first one only warms up
		for i := range p.found {
			if refused[i] {
				continue
			}
			t, err := h.timed(s, func() error { return h.run(s, p, &p.found[i], &trial) })
			switch _, of := errors.AsType[*Error](err); {
			case of:
				refused[i] = true
			case err != nil:
				return nil, err
			case round > 0:
				times[i] = min(times[i], t)
			}
		}
	}
	return times, nil
}

// timeOnce returns how many milliseconds a stream takes for what run queues.
func (h *Handle) timeOnce(s *cuda.Stream, run func() error) (ms float32, err error) {
	var marks [2]*cuda.Event
	for i := range marks {
		if marks[i], err = h.dev.NewEvent(true); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, marks[i].Close()) }()
	}
	if err := errors.Join(marks[0].Record(s), run(), marks[1].Record(s)); err != nil {
		return 0, err
	}
	if err := marks[1].Sync(); err != nil {
		return 0, err
	}
	return marks[1].Elapsed(marks[0])
}
