package sim

import (
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/tensor"
)

// Kinds are the operations that can be simulated. Those with uneven parts are not among them.
var Kinds = []backend.Kind{backend.Broadcast, backend.Reduce, backend.AllReduce, backend.Gather, backend.AllGather, backend.Scatter,
	backend.ReduceScatter, backend.AllToAll, backend.Barrier}

// Result is what an operation took.
type Result struct {
	Op       string    `json:"op"`
	Algo     string    `json:"algo"`
	Ranks    int       `json:"ranks"`
	Bytes    int       `json:"bytes"` // S, the full buffer, as for algo.Bytes
	Seconds  float64   `json:"seconds"`
	BusGBs   float64   `json:"bus_gbs"` // as ringo bench has it, in 10⁹ bytes per second
	Messages int       `json:"messages"`
	Across   int       `json:"bytes_across"` // bytes from host to host
	Links    []Traffic `json:"links"`
	Time     Time      `json:"-"`
}

// Traffic is the bytes on a kind of link.
type Traffic struct {
	Link  string `json:"link"`
	Bytes int    `json:"bytes"` // on all of them, in both directions
	Most  int    `json:"most"`  // on the one with the most, in one direction, or in both where they take turns
}

// Run simulates an operation of so many bytes. An empty name means the algorithm that the Tuner chooses. Parts of ranks are rounded up to
// whole bytes. The root is rank 0.
func (t *Topology) Run(kind backend.Kind, name string, ranks, bytes int) (*Result, error) {
	switch {
	case !slices.Contains(Kinds, kind):
		return nil, fmt.Errorf("sim: %v cannot be simulated; there are %v", kind, Kinds)
	case name != "" && !slices.Contains(algo.Names(kind), name):
		return nil, fmt.Errorf("sim: algorithm %q cannot do %v, which has: %s", name, kind, strings.Join(algo.Names(kind), ", "))
	case bytes < 0 || bytes > 1<<40:
		return nil, fmt.Errorf("sim: %d bytes: want 0 to 1 TiB", bytes)
	}
	touched := bytes + bytes/2 // a half is on the way, or in another buffer
	if t.Window && ranks <= t.Host && kind == backend.AllReduce && (name == "" || name == "direct") {
		touched = bytes // a part of all buffers
	}
	net, err := t.network(ranks, touched)
	if err != nil {
		return nil, err
	}
	g := net.group(upTo(ranks))
	if g.shared && name == "" {
		name = "direct"
	}
	c := newCall(kind, name, ranks, bytes)
	for _, r := range g.ranks {
		r.start(func() error { return r.do(c) })
	}
	if err := net.run(); err != nil {
		return nil, err
	}
	op := c.op(g.ranks[0])
	res := &Result{Op: kind.String(), Algo: g.tuner.Choose(&op), Ranks: ranks, Bytes: c.bytes, Time: net.last, Links: net.traffic(),
		Seconds: net.last.Seconds(), Messages: net.messages, Across: net.across}
	if res.Time > 0 {
		res.BusGBs = float64(c.bytes) / res.Seconds / 1e9 * busFactor(kind, ranks)
	}
	return res, nil
}

func upTo(n int) []int { return turned(1, n, 1, 0) }

func newCall(kind backend.Kind, name string, ranks, bytes int) *call {
	c := &call{backend.Op{Kind: kind, Algo: name, Red: backend.Sum, DType: tensor.Uint8, Seq: 1, Count: bytes}, bytes}
	switch {
	case kind == backend.Barrier:
		c.Count, c.bytes = 0, 0
	case parted(kind):
		c.Count = (bytes + ranks - 1) / ranks
		c.bytes = c.Count * ranks
	}
	return c
}

// parted reports whether each rank has a part of the buffer.
func parted(k backend.Kind) bool {
	return slices.Contains([]backend.Kind{backend.Gather, backend.AllGather, backend.Scatter, backend.ReduceScatter, backend.AllToAll}, k)
}

// busFactor is the part of the buffer that a rank must move in any case, as in nccl-tests.
func busFactor(k backend.Kind, ranks int) float64 {
	s := float64(ranks-1) / float64(ranks)
	switch {
	case k == backend.AllReduce:
		return 2 * s
	case parted(k):
		return s
	}
	return 1
}

// call is an operation of all ranks, without buffers. Elements are bytes.
type call struct {
	backend.Op
	bytes int // of the full buffer
}

// op returns the operation of a rank. Its part lies where it is in the full buffer, so that nothing needs to be copied there.
func (c *call) op(r *rank) backend.Op {
	op, all := c.Op, r.Memory(c.bytes)
	op.Src = backend.Mem{Ptr: unsafe.Pointer(unsafe.SliceData(all)), Bytes: c.bytes}
	op.Dst = op.Src
	if parted(c.Kind) && c.Kind != backend.AllToAll {
		own := all[r.number*c.Count:][:c.Count]
		mine := backend.Mem{Ptr: unsafe.Pointer(unsafe.SliceData(own)), Bytes: c.Count}
		if c.Kind == backend.Scatter || c.Kind == backend.ReduceScatter {
			op.Dst = mine
		} else {
			op.Src = mine
		}
	}
	return op
}

// do runs an operation. As threads run ahead of the clock, those of a rank may be in several at a time, and each has buffers of its own.
func (r *rank) do(c *call) error {
	if r.shared && (c.Algo == "" || c.Algo == "direct") {
		return r.window(c)
	}
	op := c.op(r)
	return algo.NewMessages(r, r.tuner).Run(&op)
}
