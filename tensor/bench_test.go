package tensor_test

import (
	"testing"

	. "github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// nullDevice computes nothing, so only the tape's time is measured.
type nullDevice struct {
	*counted
	table Table
}

func newNullDevice(tb testing.TB) *nullDevice {
	d := &nullDevice{counted: &counted{Device: cpu.New(1)}}
	tb.Cleanup(d.Close)
	for op, kernels := range d.Device.Kernels() {
		for dt, k := range kernels {
			if k != nil {
				d.table[op][dt] = func(Queue, *Args) {}
			}
		}
	}
	return d
}

func (d *nullDevice) Kernels() *Table { return &d.table }

// BenchmarkTape measures the cost of a node, forward and backward, without its kernels; also with rows of a batch that ranks share.
func BenchmarkTape(b *testing.B) {
	dev := newNullDevice(b)
	for name, r := range map[string]Rows{"": {}, "_rows": {Stride: 1, Total: 6, Over: 1}} {
		of := func(x Tensor) Tensor {
			if r.Over != 0 {
				x = x.WithRows(r)
			}
			return x
		}
		ps := &params{dev: dev, dtype: Float32}
		var blocks []*mlp
		for range 12 {
			blocks = append(blocks, newMLP(ps, 1, 2, 1)) // linear, ReLU, linear; add
		}
		x := of(New(dev, Float32, 3, 1))
		benchmarkNodes(b, "mlp"+name, ps, r.Over, func(t *Tape) Tensor {
			h := t.Input(x)
			for _, m := range blocks {
				h = h.Add(m.forward(h))
			}
			return h.Sum()
		})
		ps = &params{dev: dev, dtype: Float32}
		m, tokens := newGPT(ps, 4, 2, 4, 2, 4), of(New(dev, Int64, 2, 3))
		benchmarkNodes(b, "gpt"+name, ps, r.Over, func(t *Tape) Tensor {
			ids, labels := gptBatch(t, tokens)
			return ops.CrossEntropy(m.forward(t, ids), labels, ops.CrossEntropyOptions{})
		})
	}
}

func benchmarkNodes(b *testing.B, name string, ps *params, sum Axes, forward func(t *Tape) Tensor) {
	for _, p := range ps.list {
		p.SumOver(sum)
	}
	b.Run(name, func(b *testing.B) {
		t := NewTape(ps.dev)
		nodes := 0
		step := func() {
			loss := forward(t)
			nodes = Nodes(t)
			t.Backward(loss)
			ps.consume()
			t.Reset()
		}
		step()
		b.ReportAllocs()
		for b.Loop() {
			step()
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(nodes), "ns/node")
	})
}
