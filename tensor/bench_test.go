package tensor

import "testing"

// nullDevice computes nothing: what is left is the tape.
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

func BenchmarkTapeOverhead(b *testing.B) {
	dev := newNullDevice(b)
	ps := mlpParams(1, 1, 1, 1, 1, 1, 1, 1, 1)
	for _, p := range ps {
		p.Make(dev, Float32, 1)
	}
	x := New(dev, Float32, 1, 1)
	t := NewTape(dev)
	nodes := 0
	step := func() {
		h := t.Input(x)
		for i := 0; i < len(ps); i += 2 {
			h = h.Add(Linear(h, t.Use(ps[i]), t.Use(ps[i+1])).ReLU().Mul(h))
		}
		l := h.Sum()
		nodes = t.nn
		t.Backward(l)
		for _, p := range ps {
			p.Consume()
		}
		t.Reset()
	}
	step()
	b.ReportAllocs()
	for b.Loop() {
		step()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(nodes), "ns/node")
}
