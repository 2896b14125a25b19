package dist

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/tensor"
)

var background = context.Background()

// call is the arguments of an operation.
type call struct {
	kind     backend.Kind
	op       Reduction
	root     int // or the peer of Send and Recv
	tag      int
	count    int
	dtype    tensor.DType
	of       tensor.Tensor // the tensor whose shape errors print
	xs       [2]tensor.Tensor
	src, dst backend.Mem
	send     []int // rows for each rank, in V forms
	recv     []int
	row      int
}

// issue gives an operation to lane l. All operations go through here, except Batch. err is what a check found: then nothing is sent, and
// the group fails, so that the peers do not wait.
func (g *group) issue(l *lane, c *call, err error) Work {
	if r := g.c.recording(); r != nil {
		return g.recordCall(r, l, c, err)
	}
	return g.issueNow(l, c, err)
}

// issueOwn is issue on the group's own lane.
func (g *Group) issueOwn(c *call, err error) Work {
	defer runtime.KeepAlive(g)
	return g.issue(g.lane, c, err)
}

func (g *group) issueNow(l *lane, c *call, err error) Work {
	if e := g.enter(); e != nil {
		return l.failed()
	}
	defer g.leave()
	g.c.mu.Lock()
	defer g.c.mu.Unlock()
	if err == nil {
		err = c.checkDevice(g.c.dev)
	}
	if g.err == nil && g.closed {
		err = errClosed
	}
	if g.err == nil && err != nil {
		l.refuse(c.kind, err)
	}
	l.makeRoom()
	u := g.useOf(c)
	if g.err == nil {
		if err := g.c.awaitConflicts(l, &u); err != nil {
			g.fail(err) // the failure of another group
		}
	}
	if g.err != nil || g.closed {
		return l.lost(u)
	}
	return l.start(c, u)
}

// lost notes an operation that a failed group does not begin. An operation that would use its result fails, too, until the program has
// seen the error. It needs c.mu.
func (l *lane) lost(u use) Work {
	l.issued++
	l.uses[l.issued%backend.Depth] = u
	if g := l.g; !g.closed {
		g.reported = false
		if !slices.Contains(l.c.unreported, g) {
			l.c.unreported = append(l.c.unreported, g)
		}
	}
	return Work{l, l.issued}
}

// refuse fails the group because of a wrong operation on lane l. It needs c.mu.
func (l *lane) refuse(kind backend.Kind, err error) {
	g := l.g
	e := &Error{Rank: l.c.rank, Group: g.name, Op: kind.String(), Seq: l.issued + 1, Cause: err}
	g.fail(e)
	if g.victim == "" {
		g.victim, g.seq = e.Op, e.Seq
	}
}

// makeRoom waits until the lane has a free slot for an operation. A failure is in g.err. It needs c.mu.
func (l *lane) makeRoom() {
	for l.g.err == nil && l.issued-l.done.Load() >= backend.Depth {
		l.crowded = true
		_ = l.c.wait(background, l, l.issued-backend.Depth+1, false)
	}
	l.crowded = false
}

// start gives an operation to the engine. It needs c.mu.
func (l *lane) start(c *call, u use) Work {
	g, seq := l.g, l.issued+1
	s := l.slot(seq)
	op := s.fill(c, seq, g.algo.names[c.kind], g.along)
	if what := l.lacks(op); what != "" {
		l.refuse(c.kind, fmt.Errorf("engine %s cannot do %s", g.engine(), what))
		return l.lost(u)
	}
	l.issued, l.uses[seq%backend.Depth] = seq, u
	l.c.noteIssued(l, op)
	g.payload[c.kind] += uint64(max(op.Src.Bytes, op.Dst.Bytes))
	g.calls[c.kind]++
	l.c.usage[c.kind].calls++
	l.c.usage[c.kind].payload += uint64(max(op.Src.Bytes, op.Dst.Bytes))
	err := l.stage(s)
	if err == nil {
		err = l.be.Issue(op)
	}
	if err != nil {
		g.fail(err)
		return Work{l, seq}
	}
	l.c.activate(l)
	s.xs = c.xs
	for _, x := range c.xs {
		if !x.IsZero() {
			tensor.Raw(x).Borrow(l, seq)
		}
	}
	return Work{l, seq}
}

// lacks returns what the engine cannot do of op, "" if it can do op. If the engine takes device memory, its own rules count.
func (l *lane) lacks(op *backend.Op) string {
	if op.OnDevice() && l.takes(op) {
		return ""
	}
	return l.caps.Lacks(op)
}

// failed returns a Work of a group that has just failed.
func (l *lane) failed() Work {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.issued++
	return Work{l, l.issued}
}

// fill writes the operation into its slot. It does not allocate once the slot has been used.
func (s *slot) fill(c *call, seq uint64, algorithm string, along func() tensor.Axes) *backend.Op {
	s.counts, s.dims = s.counts[:0], s.dimsBuf[:0]
	for _, n := range c.send {
		s.counts = append(s.counts, n*c.row)
	}
	for _, n := range c.recv {
		s.counts = append(s.counts, n*c.row)
	}
	if !c.of.IsZero() {
		for i := range c.of.NDim() {
			s.dims = append(s.dims, c.of.Dim(i))
		}
	} else if c.count > 0 {
		s.dims = append(s.dims, c.count)
	}
	s.op = backend.Op{Kind: c.kind, Red: c.op.red, DType: c.dtype, Seq: seq, Count: c.count, Root: c.root, Peer: c.root,
		Tag: c.tag, Factor: c.op.factor, Algo: algorithm, Src: c.src, Dst: c.dst, Row: c.row,
		Shape: tensor.Shape{DType: c.dtype, Dims: s.dims}}
	if c.op.tape != nil {
		s.op.Agreed = c.op.tape.Agreement(along())
	}
	if len(c.send) > 0 {
		s.op.SrcCounts = s.counts[:len(c.send)]
	}
	if len(c.recv) > 0 {
		s.op.DstCounts = s.counts[len(c.send):]
	}
	return &s.op
}

// floats returns the memory of x.
func floats(x []float64) backend.Mem {
	return backend.Mem{Ptr: unsafe.Pointer(unsafe.SliceData(x)), Bytes: 8 * len(x)}
}
