package algo

import (
	"slices"

	"github.com/ringo-ml/ringo/dist/backend"
)

// Messages runs the operations of one rank of a group over a Transport, each with the algorithm that its Tuner chooses.
//
// In the comments of the algorithms n is the number of ranks, S the bytes of the full buffer, and a step is one message that must arrive
// before the next can be sent. Bytes are what a rank sends, without headers. In every algorithm each rank hears from every other before
// the operation ends, directly or through others that have compared what they got. So an operation about which ranks disagree succeeds on
// no rank.
//
// Linear and direct combine elements in rank order and have the same bits. The others combine partial results, in an order that depends
// on the algorithm, the number of ranks and the element's place. Their bits are the same on every run and on all ranks. They differ from
// those of linear, unless every partial result is exact, as sums of small integers are. These algorithms send 16-bit floats as partial
// results, so they round after each addition.
//
// A Messages belongs to one lane of one rank; Run blocks.
type Messages struct {
	t    backend.Transport
	v    backend.Virtual // t, if it has no memory
	at   Layout
	tune *Tuner
	lin  *Linear
	fold folder
	bufs [4][]byte // scratch
	host *hosts    // made when first needed
}

// NewMessages returns the algorithms over t, for the group of Tuner c.
func NewMessages(t backend.Transport, c *Tuner) *Messages {
	m := &Messages{t: t, at: c.at, tune: c, lin: NewLinear(t)}
	if m.v = m.lin.v; m.v != nil {
		m.fold.pair.work, m.fold.scale.work = m.v.Work, m.v.Work
	}
	return m
}

// Layout says on which host each rank of a group is: Layout[r] is the number of rank r's host. Hosts are numbered from 0, in the order in
// which they first appear. It is the same on all ranks.
type Layout []int

// OneHost returns the layout of n ranks on one host.
func OneHost(n int) Layout { return make(Layout, n) }

// LayoutOf returns the layout of ranks whose hosts have these names.
func LayoutOf(names []string) Layout {
	l, seen := make(Layout, len(names)), map[string]int{}
	for r, name := range names {
		h, ok := seen[name]
		if !ok {
			h = len(seen)
			seen[name] = h
		}
		l[r] = h
	}
	return l
}

// Hosts returns the number of hosts.
func (l Layout) Hosts() int {
	n := 0
	for _, h := range l {
		n = max(n, h+1)
	}
	return n
}

// ranks returns the ranks of each host, in order.
func (l Layout) ranks() [][]int {
	hosts := make([][]int, l.Hosts())
	for r, h := range l {
		hosts[h] = append(hosts[h], r)
	}
	return hosts
}

// method is an algorithm for one kind of operation.
type method struct {
	name string
	run  func(m *Messages, op *backend.Op) error
}

// every has the algorithms of all kinds.
var every = []method{{"linear", (*Messages).linear}, {"direct", (*Messages).direct}}

// methods are the algorithms of each kind besides those in every.
var methods = [backend.NumKinds][]method{
	backend.Broadcast: {{"chain", (*Messages).chain}, {"binomial", (*Messages).binomialBroadcast},
		{"hierarchical", (*Messages).hierarchicalBroadcast}},
	backend.Reduce: {{"binomial", (*Messages).binomialReduce}},
	backend.AllReduce: {{"ring", (*Messages).ringAllReduce}, {"halving-doubling", (*Messages).halvingDoubling},
		{"double-tree", (*Messages).doubleTree}, {"hierarchical", (*Messages).hierarchicalAllReduce}},
	backend.AllGather: {{"ring", (*Messages).ringAllGather}, {"bruck", (*Messages).bruckAllGather},
		{"hierarchical", (*Messages).hierarchicalAllGather}},
	backend.AllGatherV: {{"ring", (*Messages).ringAllGather}, {"bruck", (*Messages).bruckAllGather},
		{"hierarchical", (*Messages).hierarchicalAllGather}},
	backend.ReduceScatter: {{"ring", (*Messages).ringReduceScatter}, {"bruck", (*Messages).bruckReduceScatter},
		{"hierarchical", (*Messages).hierarchicalReduceScatter}},
	backend.ReduceScatterV: {{"ring", (*Messages).ringReduceScatter}, {"bruck", (*Messages).bruckReduceScatter},
		{"hierarchical", (*Messages).hierarchicalReduceScatter}},
	backend.AllToAll:  {{"pairwise", (*Messages).pairwise}, {"bruck", (*Messages).bruck}},
	backend.AllToAllV: {{"pairwise", (*Messages).pairwise}},
	backend.Barrier:   {{"dissemination", (*Messages).disseminationBarrier}},
}

// Names returns all algorithms, or those that a kind of operation has.
func Names(kinds ...backend.Kind) []string {
	var names []string
	for _, m := range every {
		names = append(names, m.name)
	}
	for k := range methods {
		for _, m := range methods[k] {
			if (len(kinds) == 0 || slices.Contains(kinds, backend.Kind(k))) && !slices.Contains(names, m.name) {
				names = append(names, m.name)
			}
		}
	}
	return names
}

func find(k backend.Kind, name string) func(m *Messages, op *backend.Op) error {
	for _, list := range [2][]method{every, methods[k]} {
		for _, m := range list {
			if m.name == name {
				return m.run
			}
		}
	}
	return nil
}

// Run does one operation. Its error is the transport's, or that of Check.
func (m *Messages) Run(op *backend.Op) error {
	run := find(op.Kind, m.tune.Choose(op))
	if run == nil {
		return m.tune.Check(op)
	}
	return run(m, op)
}

func (m *Messages) linear(op *backend.Op) error { return m.lin.Run(op) }

// slices cuts the buffer of op into n slices that differ by at most one element.
func (m *Messages) slices(op *backend.Op, n int) parts { return cut(op.Count, n, op.DType.Size()) }

// hosts returns the hosts of the ranks, as this rank sees them.
func (m *Messages) hosts() *hosts {
	if m.host == nil {
		m.host = newHosts(m.tune, m.t.Rank())
	}
	return m.host
}

// scratch returns n bytes of buffer i.
func (m *Messages) scratch(i, n int) []byte {
	if m.v != nil {
		return m.v.Memory(n)
	}
	if cap(m.bufs[i]) < n {
		m.bufs[i] = make([]byte, n)
	}
	return m.bufs[i][:n]
}

// copy is the built-in function, and takes virtual time if there is no memory.
func (m *Messages) copy(dst, src []byte) int {
	if m.v == nil {
		return copy(dst, src)
	}
	n := min(len(dst), len(src))
	m.v.Work(n)
	return n
}

// append adds b to the scratch memory out, which has room for it.
func (m *Messages) append(out, b []byte) []byte {
	n := len(out)
	out = out[:n+len(b)]
	m.copy(out[n:], b)
	return out
}
