package memory

import (
	"fmt"
	"strings"
	"sync/atomic"
	"text/tabwriter"
)

// Use says what memory is used for.
type Use uint8

// The uses of memory. The zero value is for memory that is not counted: a slice, or memory of another library.
const (
	Uncounted      Use = iota
	Parameters         // values, for the optimizer or for Forward
	Gradients          // of parameters, for the optimizer
	OptimizerState     // moments, float32 masters of 16-bit parameters
	Activations        // step memory of tapes: what Forward keeps, and gradients of activations
	Gathered           // other ranks' parameters, while they are gathered
	Communication      // buffers of sent and received data, except inside engines
	Other              // batches, widened operands of kernels, and tensors of tensor.New
	numUses
)

var names = [numUses]string{"uncounted", "parameters", "gradients", "optimizer", "activations", "gathered", "communication", "other"}

// String returns the name, such as "gradients".
func (u Use) String() string { return names[u] }

// Counter counts the bytes of a device by their use, now and at the peak. Memory is counted from its allocation until it is given back. The
// garbage collector gives back tensors outside tapes, so they count until it finds them unreachable. Step memory is counted while a tensor
// has it; Held also counts what a tape keeps for reuse. Tapes report it when Backward begins and ends, at Reset, and when they need more.
// Any goroutine may call the methods.
type Counter struct {
	uses [numUses]gauge
	peak atomic.Int64 // of all uses together
	held gauge
}

type gauge struct{ live, peak atomic.Int64 }

func (g *gauge) add(bytes int) { raise(&g.peak, g.live.Add(int64(bytes))) }

func (g *gauge) bytes() Bytes { return Bytes{int(g.live.Load()), int(g.peak.Load())} }

// Bytes is a number of bytes, now and at the peak.
type Bytes struct {
	Live int `json:"live"`
	Peak int `json:"peak"`
}

// Add counts bytes for a use. If they are negative, they were given back.
func (c *Counter) Add(u Use, bytes int) {
	c.uses[u].add(bytes)
	raise(&c.peak, c.live())
}

// AddHeld counts bytes that a tape has from the device. If they are negative, it gave them back.
func (c *Counter) AddHeld(bytes int) { c.held.add(bytes) }

func raise(peak *atomic.Int64, v int64) {
	for old := peak.Load(); v > old && !peak.CompareAndSwap(old, v); old = peak.Load() {
	}
}

func (c *Counter) live() (n int64) {
	for u := range c.uses {
		n += c.uses[u].live.Load()
	}
	return n
}

// Of returns the bytes of a use.
func (c *Counter) Of(u Use) Bytes { return c.uses[u].bytes() }

// Held returns the bytes that tapes have from the device: Activations, and what they keep for reuse.
func (c *Counter) Held() Bytes { return c.held.bytes() }

// Total returns the bytes of all uses together. Its peak may be less than the sum of the uses' peaks, which may be at different times.
func (c *Counter) Total() Bytes { return Bytes{int(c.live()), int(c.peak.Load())} }

// ResetPeak sets the peaks to the current values.
func (c *Counter) ResetPeak() {
	for u := range c.uses {
		g := &c.uses[u]
		g.peak.Store(g.live.Load())
	}
	c.peak.Store(c.live())
	c.held.peak.Store(c.held.live.Load())
}

// ByName returns the bytes of each use by its name, and of "total": for a summary in JSON.
func (c *Counter) ByName() map[string]Bytes {
	uses := map[string]Bytes{"total": c.Total()}
	for u := Parameters; u < numUses; u++ {
		uses[u.String()] = c.Of(u)
	}
	return uses
}

// List returns what is used now, for example "parameters 2.55 MiB, gradients 2.55 MiB", or "nothing".
func (c *Counter) List() string {
	var list []string
	for u := Parameters; u < numUses; u++ {
		if n := c.Of(u).Live; n > 0 {
			list = append(list, u.String()+" "+Format(n))
		}
	}
	if list == nil {
		return "nothing"
	}
	return strings.Join(list, ", ")
}

// String returns a table of what memory was used for, a line each.
func (c *Counter) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	line := func(name string, n Bytes) {
		fmt.Fprintf(w, "%s\t%s\t%s\t\n", name, Format(n.Live), Format(n.Peak))
	}
	fmt.Fprint(w, "memory\tnow\tpeak\t\n")
	for u := Parameters; u < numUses; u++ {
		if n := c.Of(u); n.Peak > 0 {
			line(u.String(), n)
		}
	}
	line("total", c.Total())
	if n := c.Held(); n.Peak > 0 {
		line("held by tapes", n)
	}
	_ = w.Flush() // to memory
	return strings.TrimSuffix(b.String(), "\n")
}

// Format writes a number of bytes for people: "640 B", "1.50 MiB".
func Format(n int) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	v, unit := float64(n)/1024, 0
	for v >= 1024 && unit < 4 {
		v, unit = v/1024, unit+1
	}
	return fmt.Sprintf("%.2f %ciB", v, "KMGTP"[unit])
}
