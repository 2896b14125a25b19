package tensor

import "testing"

// nullDevice computes nothing, so only the tape's time is measured.
type nullDevice struct {
	*CPU
	table Table
}

func newNullDevice(tb testing.TB) *nullDevice {
	d := &nullDevice{CPU: NewCPU(1)}
	tb.Cleanup(d.CPU.Close)
	for op := range cpuTable {
		for dt, k := range cpuTable[op] {
			if k != nil {
				d.table[op][dt] = func(Queue, *Args) {}
			}
		}
	}
	return d
}

func (d *nullDevice) Kernels() *Table { return &d.table }

// BenchmarkTape measures the cost of a node, forward and backward, without its kernels.
func BenchmarkTape(b *testing.B) {
	dev := newNullDevice(b)
	ps := &params{dev: dev, dtype: Float32}
	var blocks []*mlp
	for range 12 {
		blocks = append(blocks, newMLP(ps, 1, 2, 1)) // linear, ReLU, linear; add
	}
	x := New(dev, Float32, 1, 1)
	benchmarkNodes(b, "mlp", ps, func(t *Tape) Tensor {
		h := t.Input(x)
		for _, m := range blocks {
			h = h.Add(m.forward(h))
		}
		return h.Sum()
	})
	ps = &params{dev: dev, dtype: Float32}
	m, tokens := newGPT(ps, 4, 2, 4, 2, 4), New(dev, Int64, 1, 3)
	benchmarkNodes(b, "gpt", ps, func(t *Tape) Tensor {
		ids, labels := gptBatch(t, tokens)
		return CrossEntropy(m.forward(t, ids), labels, CrossEntropyOptions{})
	})
}

func benchmarkNodes(b *testing.B, name string, ps *params, forward func(t *Tape) Tensor) {
	b.Run(name, func(b *testing.B) {
		t := NewTape(ps.dev)
		nodes := 0
		step := func() {
			loss := forward(t)
			nodes = t.nn
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
