package cuda

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/dl"
)

// Graph is a recorded sequence of work, launched as one.
type Graph struct {
	Nodes int // kernels, copies and fills in it

	dev    *Device
	graph  uintptr // as recorded: its nodes are handles for nodes of exec
	exec   uintptr
	last   *Func
	params nodeParams
}

// Node is a kernel of a graph.
type Node uintptr

// nodeParams is CUDA_KERNEL_NODE_PARAMS_v2.
type nodeParams struct {
	fn              uintptr
	grid, block     [3]uint32
	shared          uint32
	params          *unsafe.Pointer
	extra, kern, of uintptr
}

// BeginCapture starts recording. Work that is queued on s, and on streams that wait
// for its events, becomes part of a graph and does not run. Until EndCapture, this
// thread may not wait for the device, query events or allocate device memory: that
// is an error, and makes the recording invalid.
func (s *Stream) BeginCapture() error {
	const threadLocal = 1
	err := s.dev.check("cuStreamBeginCapture", dl.Call(s.dev.drv.fn.StreamBeginCapture, s.handle, threadLocal))
	if s.capturing = err == nil; s.capturing {
		s.dev.captures.Add(1)
	}
	return err
}

// Capturing reports whether some stream of the device records.
func (dev *Device) Capturing() bool { return dev.captures.Load() > 0 }

// Captured returns the node of the last recorded launch.
func (s *Stream) Captured() (Node, error) {
	const active = 1
	var at struct {
		status      int32
		nodes, many uintptr
	}
	r := dl.Call(s.dev.drv.fn.StreamGetCaptureInfo, s.handle, uintptr(unsafe.Pointer(&at.status)), 0, 0,
		uintptr(unsafe.Pointer(&at.nodes)), uintptr(unsafe.Pointer(&at.many)))
	if err := s.dev.check("cuStreamGetCaptureInfo", r); err != nil {
		return 0, err
	}
	if at.status != active || at.many != 1 {
		return 0, fmt.Errorf("cuda: stream %s records nothing whose last node is known (status %d, %d nodes)", s.Name, at.status, at.many)
	}
	return **(**Node)(unsafe.Pointer(&at.nodes)), nil
}

// EndCapture ends the recording, and makes a graph that can be launched. s must
// have waited for all streams that joined. After an error the stream is as it was
// before the recording.
func (s *Stream) EndCapture() (*Graph, error) {
	fn, dev := &s.dev.drv.fn, s.dev
	if s.capturing {
		s.capturing = false
		dev.captures.Add(-1)
	}
	g := &Graph{dev: dev, last: &Func{Name: "graph"}}
	if err := dev.check("cuStreamEndCapture", dl.Call(fn.StreamEndCapture, s.handle, uintptr(unsafe.Pointer(&g.graph)))); err != nil {
		return nil, err
	}
	var nodes uintptr
	err := dev.check("cuGraphGetNodes", dl.Call(fn.GraphGetNodes, g.graph, 0, uintptr(unsafe.Pointer(&nodes))))
	if err == nil {
		err = dev.check("cuGraphInstantiateWithFlags", dl.Call(fn.GraphInstantiate, uintptr(unsafe.Pointer(&g.exec)), g.graph, 0))
	}
	if err != nil {
		return nil, errors.Join(err, dev.check("cuGraphDestroy", dl.Call(fn.GraphDestroy, g.graph)))
	}
	g.Nodes = int(nodes)
	return g, nil
}

// SetParams sets the grid and the parameters of a kernel in the graph, from the
// next Launch on. Queued launches keep theirs. It does not allocate.
func (g *Graph) SetParams(n Node, f *Func, grid, block Dim, shared int, a *Args) error {
	g.params = nodeParams{fn: f.handle, grid: grid.sizes(), block: block.sizes(), shared: uint32(shared), params: &a.ptrs[0]}
	r := dl.Call4(g.dev.drv.fn.GraphExecSetKernel, g.exec, uintptr(n), uintptr(unsafe.Pointer(&g.params)), 0)
	if int32(r) != 0 {
		return f.check(fmt.Sprintf("cuGraphExecKernelNodeSetParams[grid %v block %v shared %d]", grid, block, shared), r)
	}
	return nil
}

func (d Dim) sizes() [3]uint32 {
	return [3]uint32{uint32(max(d.X, 1)), uint32(max(d.Y, 1)), uint32(max(d.Z, 1))}
}

// Launch queues the whole graph on s.
func (g *Graph) Launch(s *Stream) error {
	s.dev.stats.launches.Add(1)
	s.dev.recent.add(g.last)
	if r := dl.Call4(s.dev.drv.fn.GraphLaunch, g.exec, s.handle, 0, 0); int32(r) != 0 {
		return s.dev.fail("cuGraphLaunch", int(int32(r)))
	}
	return s.launched(g.last)
}

// Close destroys the graph. Queued launches still run.
func (g *Graph) Close() error {
	fn := &g.dev.drv.fn
	return errors.Join(g.dev.check("cuGraphExecDestroy", dl.Call(fn.GraphExecDestroy, g.exec)),
		g.dev.check("cuGraphDestroy", dl.Call(fn.GraphDestroy, g.graph)))
}
