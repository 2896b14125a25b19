package cuda

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor"
)

// recording is a graph that is being recorded.
type recording struct {
	step  *tensor.Recording
	graph *graph
}

// graph is a captured step.
type graph struct {
	dev   *Device
	g     *cuda.Graph
	unpin func() error
}

// varying is a launch of a kernel of the table whose parameters change in a replay. It may consist of several nodes of the graph.
type varying struct {
	graph *graph
	nodes []cuda.Node
	set   bool // set the nodes' parameters instead of launching
	next  int  // index of the next node
}

// BeginGraph begins to record a CUDA graph. Before the first one of a step it waits for the queues.
func (d *Device) BeginGraph(step *tensor.Recording, first bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hosts.mu.Lock()
	defer d.hosts.mu.Unlock()
	if d.closed {
		return d.fail("capture", errClosed)
	}
	if d.recorded.Load() != nil {
		return d.fail("capture", errors.New("a step is being captured already"))
	}
	if err := d.Bind(); err != nil { // a recording belongs to a thread
		return d.fail("capture", err)
	}
	if first {
		if err := d.syncStreams(); err != nil {
			return d.fail("capture", err)
		}
		for _, q := range d.queues {
			q.settle()
		}
	}
	if err := d.queues[computeQueue].stream.BeginCapture(); err != nil {
		return d.fail("capture", err)
	}
	d.recorded.Store(&recording{step: step, graph: &graph{dev: d, unpin: d.pool.Pin()}})
	return nil
}

// EndGraph makes the graph; nil if nothing was launched.
func (d *Device) EndGraph() (tensor.Graph, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.recorded.Swap(nil)
	d.queues[computeQueue].varying = nil
	if r == nil {
		return nil, d.fail("capture", errors.New("nothing is being captured"))
	}
	g, err := d.queues[computeQueue].stream.EndCapture()
	if err == nil && g.Nodes == 0 {
		err = g.Close()
		g = nil
	}
	if g == nil {
		if err = errors.Join(err, r.graph.unpin()); err != nil {
			err = d.fail("capture", err)
		}
		return nil, err
	}
	r.graph.g = g
	d.graphs = append(d.graphs, r.graph)
	return r.graph, nil
}

// Recording returns the argument of BeginGraph, nil when nothing is recorded.
func (d *Device) Recording() *tensor.Recording {
	if r := d.recorded.Load(); r != nil {
		return r.step
	}
	return nil
}

// Vary launches k. set updates the parameters of k's nodes in the graph from a.
func (d *Device) Vary(k tensor.Kernel, a *tensor.Args) (set func()) {
	q, v := d.queues[computeQueue], &varying{graph: d.recorded.Load().graph}
	q.varying = v
	k(q, a)
	q.varying = nil
	v.set = true
	return func() {
		q.varying, v.next = v, 0
		defer func() { q.varying = nil }()
		k(q, a)
	}
}

// record stores the node of the last launch.
func (v *varying) record(s *cuda.Stream) error {
	n, err := s.Captured()
	v.nodes = append(v.nodes, n)
	return err
}

// update sets the parameters of the next node from q.args.
func (v *varying) update(q *Queue, f *cuda.Func, grid, block cuda.Dim, shared int) {
	n := v.nodes[v.next]
	v.next++
	if err := v.graph.g.SetParams(n, f, grid, block, shared, &q.args); err != nil {
		q.retry(err, func() error { return v.graph.g.SetParams(n, f, grid, block, shared, &q.args) })
	}
}

// fixed fails for work whose parameters cannot change in a graph (a copy, a product of cuBLASLt), if it is part of a varying launch.
func (q *Queue) fixed(what string) {
	if q.varying != nil {
		panic(&tensor.Failure{Op: q.op.String(), Err: fmt.Errorf("%v: %s in a kernel whose numbers change between replays", q.dev, what)})
	}
}

// Launch puts the step on the computing queue.
func (g *graph) Launch() error {
	d := g.dev
	if err := d.failure(); err != nil {
		return err
	}
	if g.g == nil {
		return d.fail("graph", errClosed)
	}
	s := d.queues[computeQueue].stream
	err := g.g.Launch(s)
	if err != nil && wrongContext(err) {
		if err = d.Bind(); err == nil {
			err = g.g.Launch(s)
		}
	}
	if err != nil {
		return d.fail("graph", err)
	}
	return nil
}

// Close destroys the graph and frees its memory.
func (g *graph) Close() error {
	g.dev.mu.Lock()
	defer g.dev.mu.Unlock()
	g.dev.graphs = slices.DeleteFunc(g.dev.graphs, func(x *graph) bool { return x == g })
	return g.dev.locked(g.close)
}

func (g *graph) close() error {
	if g.g == nil {
		return nil
	}
	err := errors.Join(g.g.Close(), g.unpin())
	g.g = nil
	return err
}

var errClosed = errors.New("the device is closed")

// refuse returns an error if a graph is being recorded: what must not happen then.
func (d *Device) refuse(op, what string) error {
	if d.recorded.Load() == nil {
		return nil
	}
	return &tensor.Failure{Op: op, Err: fmt.Errorf("%v %s inside a captured step (see capture.Step)", d, what)}
}
