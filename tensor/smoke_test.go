package tensor

import (
	"testing"
)

func mlpParams(dims ...int) (ps []*Param) {
	for i := 0; i+1 < len(dims); i++ {
		w := NewParam(KaimingUniform(dims[i]), dims[i+1], dims[i])
		w.SetName("w" + string(rune('0'+i)))
		b := NewParam(Constant(0), dims[i+1])
		b.SetName("b" + string(rune('0'+i)))
		ps = append(ps, w, b)
	}
	return
}

func TestSmoke(t *testing.T) {
	dev := NewCPU(2)
	defer dev.Close()
	ps := mlpParams(20, 32, 32, 5)
	for _, p := range ps {
		p.Make(dev, Float32, 1)
	}
	x := New(dev, Float32, 16, 20)
	UniformInit(-1, 1).Fill(x, 7, 0)
	y := New(dev, Int64, 16)
	for i := range Data[int64](y) {
		Data[int64](y)[i] = int64(i % 5)
	}
	tp := NewTape(dev)
	loss := 0.0
	step := func() {
		h := tp.Input(x)
		for i := 0; i < len(ps); i += 2 {
			h = Linear(h, tp.Use(ps[i]), tp.Use(ps[i+1]))
			if i+2 < len(ps) {
				h = h.ReLU()
			}
		}
		l := CrossEntropy(h, y, CrossEntropyOptions{})
		loss = float64(Data[float32](l)[0])
		tp.Backward(l)
		for _, p := range ps {
			v, g := Data[float32](p.Value), Data[float32](p.Grad)
			for i := range v {
				v[i] -= 0.5 * g[i]
			}
			p.Consume()
		}
		tp.Reset()
	}
	step()
	first := loss
	for range 300 {
		step()
	}
	t.Log(first, loss)
	if loss > 0.1*first {
		t.Fatal("did not learn")
	}
	if n := testing.AllocsPerRun(100, step); n != 0 {
		t.Fatal("allocs", n)
	}
}
