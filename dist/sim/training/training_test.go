package training

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/sim"
)

// flat is ranks at one switch: a byte takes a nanosecond, and a message 2·ns + message.
func flat(ns, message float64) *sim.Topology {
	return &sim.Topology{Name: "flat", Host: 1 << 20, MessageNS: message,
		Links: []sim.Link{{Name: "wire", From: "rank", To: "switch", Ports: 1 << 20, GBs: 1, NS: ns}}}
}

// two is two levels: 4 ns and 1 ns a byte inside and between hosts of four.
func two(memory float64) *sim.Topology {
	return &sim.Topology{Name: "two", Host: 4, MemoryGBs: memory, Links: []sim.Link{
		{Name: "inside", From: "rank", To: "host", Ports: 4, GBs: 1, NS: 10},
		{Name: "nic", From: "rank", To: "net", Ports: 1 << 10, GBs: 0.25, NS: 100}}}
}

func on(top *sim.Topology) *sim.Library { return &sim.Library{Topology: top} }

func timeOf(t *testing.T, top *sim.Topology, kind backend.Kind, name string, ranks, bytes int) sim.Time {
	r, err := top.Run(kind, name, ranks, bytes)
	require.NoError(t, err)
	return r.Time
}
