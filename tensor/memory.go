package tensor

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"text/tabwriter"
)

// MemoryKind says what memory is used for.
type MemoryKind uint8

// The kinds of memory. The zero value is for memory that is not counted: a slice, or memory of another library.
const (
	Uncounted      MemoryKind = iota
	Parameters                // values, for the optimizer or for Forward
	Gradients                 // of parameters, for the optimizer
	OptimizerState            // moments, float32 masters of 16-bit parameters
	Activations               // step memory of tapes: what Forward keeps, and gradients of activations
	Gathered                  // other ranks' parameters, while they are gathered
	Communication             // buffers of sent and received data, except inside engines
	OtherMemory               // batches, widened operands of kernels, and tensors of New
	numMemoryKinds
)

var memoryKindNames = [numMemoryKinds]string{"uncounted", "parameters", "gradients", "optimizer", "activations", "gathered",
	"communication", "other"}

// String returns the name, such as "gradients".
func (k MemoryKind) String() string { return memoryKindNames[k] }

// Memory counts the bytes of a device by kind, now and at the peak. Memory is counted from its allocation until it is given back. The
// garbage collector gives back tensors outside tapes, so they count until it finds them unreachable. Step memory is counted while a tensor
// has it; Held also counts what a tape keeps for reuse. Tapes report it when Backward begins and ends, at Reset, and when they need more.
// Any goroutine may call the methods.
type Memory struct {
	kinds [numMemoryKinds]gauge
	peak  atomic.Int64 // of all kinds together
	held  gauge
}

type gauge struct{ live, peak atomic.Int64 }

func (g *gauge) add(bytes int) { raise(&g.peak, g.live.Add(int64(bytes))) }

// MemoryUse is a number of bytes, now and at the peak.
type MemoryUse struct {
	Live int `json:"live"`
	Peak int `json:"peak"`
}

// Add counts bytes of kind k. If they are negative, they were given back.
func (m *Memory) Add(k MemoryKind, bytes int) {
	m.kinds[k].add(bytes)
	raise(&m.peak, m.live())
}

func (m *Memory) sub(k MemoryKind, bytes int) { m.kinds[k].live.Add(-int64(bytes)) }

func raise(peak *atomic.Int64, v int64) {
	for old := peak.Load(); v > old && !peak.CompareAndSwap(old, v); old = peak.Load() {
	}
}

func (m *Memory) live() (n int64) {
	for k := range m.kinds {
		n += m.kinds[k].live.Load()
	}
	return n
}

// Of returns the bytes of a kind.
func (m *Memory) Of(k MemoryKind) MemoryUse {
	g := &m.kinds[k]
	return MemoryUse{int(g.live.Load()), int(g.peak.Load())}
}

// Held returns the bytes that tapes have from the device: Activations, and what they keep for reuse.
func (m *Memory) Held() MemoryUse { return MemoryUse{int(m.held.live.Load()), int(m.held.peak.Load())} }

// Total returns the bytes of all kinds together. Its peak may be less than the sum of the kinds' peaks, which may be at different times.
func (m *Memory) Total() MemoryUse { return MemoryUse{int(m.live()), int(m.peak.Load())} }

// ResetPeak sets the peaks to the current values.
func (m *Memory) ResetPeak() {
	for k := range m.kinds {
		g := &m.kinds[k]
		g.peak.Store(g.live.Load())
	}
	m.peak.Store(m.live())
	m.held.peak.Store(m.held.live.Load())
}

// ByName returns the bytes of each kind by its name, and of "total": for a summary in JSON.
func (m *Memory) ByName() map[string]MemoryUse {
	uses := map[string]MemoryUse{"total": m.Total()}
	for k := Parameters; k < numMemoryKinds; k++ {
		uses[k.String()] = m.Of(k)
	}
	return uses
}

// uses returns for example "parameters 2.55 MiB, gradients 2.55 MiB".
func (m *Memory) uses() string {
	var list []string
	for k := Parameters; k < numMemoryKinds; k++ {
		if n := m.Of(k).Live; n > 0 {
			list = append(list, k.String()+" "+FormatBytes(n))
		}
	}
	if list == nil {
		return "nothing"
	}
	return strings.Join(list, ", ")
}

// String returns a table of the kinds that were used, a line each.
func (m *Memory) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	line := func(name string, u MemoryUse) {
		fmt.Fprintf(w, "%s\t%s\t%s\t\n", name, FormatBytes(u.Live), FormatBytes(u.Peak))
	}
	fmt.Fprint(w, "memory\tnow\tpeak\t\n")
	for k := Parameters; k < numMemoryKinds; k++ {
		if u := m.Of(k); u.Peak > 0 {
			line(k.String(), u)
		}
	}
	line("total", m.Total())
	if u := m.Held(); u.Peak > 0 {
		line("held by tapes", u)
	}
	_ = w.Flush() // to memory
	return strings.TrimSuffix(b.String(), "\n")
}

// FormatBytes writes a number of bytes for people: "640 B", "1.50 MiB".
func FormatBytes(n int) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	v, unit := float64(n)/1024, 0
	for v >= 1024 && unit < 4 {
		v, unit = v/1024, unit+1
	}
	return fmt.Sprintf("%.2f %ciB", v, "KMGTP"[unit])
}

// account counts a piece of memory as one kind.
type account struct {
	m     *Memory
	bytes [numMemoryKinds]atomic.Int64
}

func (a *account) add(k MemoryKind, bytes int) {
	a.bytes[k].Add(int64(bytes))
	a.m.Add(k, bytes)
}

// close stops the counting. It is also the cleanup of the storage.
func (a *account) close() {
	for k := range a.bytes {
		if n := a.bytes[k].Swap(0); n != 0 {
			a.m.sub(MemoryKind(k), int(n))
		}
	}
}

// recount counts all of it as k.
func (a *account) recount(k MemoryKind) {
	n := int64(0)
	for i := range a.bytes {
		n += a.bytes[i].Load()
	}
	if a.bytes[k].Load() != n {
		a.close()
		a.add(k, int(n))
	}
}

// count counts bytes of the memory as k, until it is not reachable any more.
func (s *storage) count(k MemoryKind, bytes int) {
	if k == Uncounted {
		return
	}
	if s.acct == nil {
		s.acct = &account{m: s.dev.Memory()}
		runtime.AddCleanup(s, (*account).close, s.acct)
	}
	s.acct.add(k, bytes)
}
