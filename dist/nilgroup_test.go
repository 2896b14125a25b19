package dist

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// A rank that gave Split a negative color has no group. If it uses it, the error says so.
func TestNoGroup(t *testing.T) {
	var g *Group
	x := tensor.New(cpu.New(1), tensor.Float32, 2)
	for name, use := range map[string]func(){
		"Rank": func() { g.Rank() }, "Size": func() { g.Size() }, "Name": func() { _ = g.Name() }, "Ranks": func() { g.Ranks() },
		"Axes": func() { g.Axes() }, "Rows": func() { g.Rows(0, 2) }, "Device": func() { g.Device() }, "Timeout": func() { g.Timeout() },
		"With": func() { g.With() }, "Split": func() { _, _ = g.Split(0, 0) }, "Mesh": func() { _, _ = g.Mesh("dp=1") },
		"Broadcast":       func() { _ = g.Broadcast(x, 0).Wait() },
		"AllReduce":       func() { _ = g.AllReduce(x, Sum).Wait() },
		"Reduce":          func() { _ = g.Reduce(x, Sum, 0).Wait() },
		"AllGather":       func() { _ = g.AllGather(x, x).Wait() },
		"Gather":          func() { _ = g.Gather(x, x, 0).Wait() },
		"Scatter":         func() { _ = g.Scatter(x, x, 0).Wait() },
		"ReduceScatter":   func() { _ = g.ReduceScatter(x, x, Sum).Wait() },
		"AllToAll":        func() { _ = g.AllToAll(x, x).Wait() },
		"AllGatherV":      func() { _ = g.AllGatherV(x, x, []int{2}).Wait() },
		"ReduceScatterV":  func() { _ = g.ReduceScatterV(x, x, []int{2}, Sum).Wait() },
		"AllToAllV":       func() { _ = g.AllToAllV(x, x, []int{2}, []int{2}).Wait() },
		"Barrier":         func() { _ = g.Barrier().Wait() },
		"Monitored":       func() { _ = g.MonitoredBarrier().Wait() },
		"SumFloats":       func() { _ = g.SumFloats([]float64{1}) },
		"SumTensor":       func() { _ = g.SumTensor(x) },
		"Send":            func() { _ = g.Send(x, 0, 0).Wait() },
		"Recv":            func() { _ = g.Recv(x, 0, 0).Wait() },
		"RecvAny":         func() { _, _ = g.RecvAny(x, 0) },
		"Batch":           func() { _ = g.Batch(func(*Batch) {}).Wait() },
		"OnRank0":         func() { _, _ = OnRank0(g, func() (int, error) { return 1, nil }) },
		"Agree":           func() { _ = Agree(g, "test", nil, nil) },
		"AllGatherObject": func() { _, _ = AllGatherObject(g, 1) },
	} {
		require.ErrorContains(t, tensor.Try(use), "the group is nil: Split gave this rank none", name)
	}
}
