package tensor_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	. "github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// Tensors that a Function makes and neither returns nor saves are freed at once; saved ones are freed after Backward.
func TestApplyMemory(t *testing.T) {
	p := NewParam(Constant(2), 256) // 1 KiB
	p.Make(hostDevice, Float32, 1)
	for _, c := range []struct {
		name  string
		opts  []TapeOption
		after int // KiB
	}{{"training", nil, 3}, {"no gradient", []TapeOption{NoGrad()}, 1}} {
		tape := NewTape(hostDevice, c.opts...)
		f := &square{}
		y := tape.Keep(tape.Apply(f, tape.Use(p)))
		assert.Equal(t, 4.0, Floats(y)[255])
		assert.False(t, f.scratch.Valid(), "freed")
		live, _ := tape.Memory()
		assert.Equal(t, c.after, live/kib, c.name)
		if c.opts == nil {
			loss := y.Sum()
			before := Nodes(tape)
			tape.Backward(loss)
			assert.Equal(t, 2, before, "what Forward computes is not recorded")
			assert.Equal(t, 12.0, Floats(p.Grad)[0], "thrice the true gradient: Backward decides")
			live, _ = tape.Memory()
			assert.Equal(t, 1, live/kib, "y was kept; what Backward made is freed")
		}
		tape.Reset()
		live, _ = tape.Memory()
		assert.Zero(t, live)
	}
}

// square returns x². It saves two tensors that it makes, and its gradient is three times the right one.
type square struct{ scratch Tensor }

func (*square) Name() string { return "square" }

func (s *square) Forward(c *Ctx, in []Tensor) Tensor {
	s.scratch = c.New(Float32, 256)
	three := in[0].Scale(3)
	c.Save(three)
	c.Save(in[0].Scale(2))
	return in[0].Mul(in[0])
}

func (s *square) Backward(c *Ctx, g Tensor, grads []Tensor) {
	c.New(Float32, 256) // never used
	grads[0] = g.Mul(c.Saved(1)).Add(g.Mul(c.Saved(0)).Scale(0)).Scale(3)
}

// fn is a Function made of funcs.
type fn struct {
	forward  func(c *Ctx, in []Tensor) Tensor
	backward func(c *Ctx, g Tensor, grads []Tensor)
}

func (fn) Name() string                         { return "fn" }
func (f fn) Forward(c *Ctx, in []Tensor) Tensor { return f.forward(c, in) }
func (f fn) Backward(c *Ctx, g Tensor, grads []Tensor) {
	f.backward(c, g, grads)
}

// Forward may return an input, an older tensor, or one of no tape; the original does not change.
func TestApplyReturnsSomethingElse(t *testing.T) {
	p := NewParam(Constant(2), 3)
	p.Make(hostDevice, Float32, 1)
	outside := FromSlice([]float32{1, 2, 3}, 3)
	tape := NewTape(hostDevice)
	x := tape.Use(p).Exp()
	older := x.Square()
	toX := func(_ *Ctx, g Tensor, grads []Tensor) { grads[0] = g }
	y := tape.Apply(fn{func(*Ctx, []Tensor) Tensor { return outside }, toX}, x)
	z := tape.Apply(fn{func(*Ctx, []Tensor) Tensor { return older }, toX}, x)
	u := tape.Apply(fn{func(_ *Ctx, in []Tensor) Tensor { return in[0].Slice(0, 0, 3) }, toX}, tape.Use(p))
	assert.NotEqual(t, older, z)
	tape.Backward(y.Add(z).Add(older).Add(u).Sum())
	const e2 = 7.38905609893065
	assert.InDeltaSlice(t, []float64{e2 + e2 + 2*e2*e2 + 1}, Floats(p.Grad)[:1], 1e-4)
	assert.Equal(t, []float64{1, 2, 3}, Floats(outside))
	tape.Reset()
	p.Consume()
	assert.ErrorContains(t, Try(func() {
		tape.Apply(fn{func(c *Ctx, in []Tensor) Tensor { c.Out(in[0]); return in[0].Exp() }, toX}, tape.Use(p))
	}), "a further output must be made in Forward")
	tape.Reset()
	// A gradient that is not needed, and a saved tensor as gradient, are allowed.
	x = tape.Use(p)
	y = tape.Apply(fn{func(c *Ctx, in []Tensor) Tensor { c.Save(in[1]); return in[0].Mul(in[1]) },
		func(c *Ctx, g Tensor, grads []Tensor) { grads[0], grads[1] = c.Saved(0), c.Saved(0) }}, x, outside)
	tape.Backward(y.Sum())
	assert.Equal(t, []float64{1, 2, 3}, Floats(p.Grad))
	assert.Equal(t, []float64{1, 2, 3}, Floats(outside))
}

func TestHostInts(t *testing.T) {
	for _, dev := range []Device{hostDevice, newRemote()} {
		tape := NewTape(dev)
		var got []int64
		f := fn{forward: func(c *Ctx, in []Tensor) Tensor {
			got = append(got, c.HostInts(in[1])...)
			assert.Equal(t, tape, c.Tape())
			return in[0]
		}}
		x, counts := tape.Input(FromSlice([]float32{1}, 1)), tape.Input(FromSlice([]int64{3, 0, 1 << 40}, 3))
		tape.Apply(f, x, counts)
		assert.Equal(t, []int64{3, 0, 1 << 40}, got)
		assert.ErrorContains(t, Try(func() { tape.Apply(f, x, x) }), "HostInts float32[1]: needs a contiguous int64 tensor")
		tape.Reset()
	}
}

// Memory that a user's rule allocates is freed. What it returns may be the gradient itself.
func TestRegisteredRuleMemory(t *testing.T) {
	pass := Register(OpSpec{Name: "test_pass", VJP: func(t *Tape, n *Node, _ uint8) {
		n.Grad().Exp() // thrown away
		t.AddGrad(n, 0, n.Grad())
		t.AddGrad(n, 1, n.Grad())
	}})
	p := NewParam(Constant(2), 256)
	p.Make(hostDevice, Float32, 1)
	tape := NewTape(hostDevice)
	x := tape.Use(p).Affine(1, 0)
	y := tape.New(Float32, 256)
	Copy(y, x)
	tape.Record(pass, y, x, x, Tensor{})
	loss := y.Sum()
	tape.Backward(loss)
	live, _ := tape.Memory()
	assert.Equal(t, MinBlock, live, "the loss")
	assert.Equal(t, 2.0, Floats(p.Grad)[7])
	tape.Reset()
	assert.ErrorContains(t, Try(func() { tape.Record(pass, FromSlice([]float32{1}, 1), tape.Use(p)) }), "must be a new tensor of the tape")
	assert.ErrorContains(t, Try(func() {
		x := tape.Use(p)
		tape.Record(pass, tape.New(Float32, 1), x, x, x, x, x, x, x, x, x)
	}), "9 inputs, at most 8")
	op := Register(OpSpec{Name: "test_reads_output", VJP: func(t *Tape, n *Node, _ uint8) { t.AddGrad(n, 0, n.Grad().Mul(n.Out())) }})
	tape.Reset()
	p.Consume()
	y = tape.New(Float32, 256)
	tape.Record(op, y, tape.Use(p))
	assert.ErrorContains(t, Try(func() { tape.Backward(y.Sum()) }), "is not there", "Saves does not have SaveOut")
}

// remote is a device whose memory Go code may not access, as far as the tape knows.
type remote struct {
	*cpu.Device
	copies int
}

func newRemote() *remote         { return &remote{Device: cpu.New(1)} }
func (r *remote) Host() bool     { return false }
func (r *remote) String() string { return "remote" }
func (r *remote) Copy(dst, src Ptr, n int, q Queue) {
	r.copies++
	r.Device.Copy(dst, src, n, q)
}

// On a device with its own memory, inputs and constants are copied to it, and initial values are made on the host.
func TestRemoteDevice(t *testing.T) {
	dev := newRemote()
	host := New(hostDevice, Float32, 5)
	p := NewParam(NormalInit(0, 1), 5)
	p.Make(hostDevice, Float32, 3)
	want := Floats(p.Value)
	p.Make(dev, Float32, 3)
	assert.Equal(t, want, Floats(p.Value))
	assert.Equal(t, make([]float64, 5), Floats(New(dev, Float32, 5)), "zeros")
	tape := NewTape(dev)
	x := tape.Input(host)
	assert.NotEqual(t, host.Ptr(), x.Ptr())
	tape.Backward(tape.Use(p).Mul(x.Affine(1, 2)).Add(host).Sum())
	assert.Equal(t, []float64{2, 2, 2, 2, 2}, Floats(p.Grad))
	assert.ErrorContains(t, Try(func() { Data[float32](p.Value) }), "memory of remote is not the host's")
	assert.Contains(t, p.Value.String(), "float32[5] [")
	assert.Greater(t, dev.copies, 5)
}

// A tensor of another tape is copied.
func TestInputOfAnotherTape(t *testing.T) {
	a, b := NewTape(hostDevice), NewTape(hostDevice)
	p := NewParam(Constant(1), 4, 3)
	p.Make(hostDevice, Float32, 1)
	x := a.Use(p).Scale(3)
	y := b.Input(x.Slice(1, 0, 2))
	a.Reset()
	a.New(Float32, 12)
	assert.Equal(t, []float64{3, 3, 3, 3, 3, 3, 3, 3}, Floats(y))
	assert.False(t, y.NeedsGrad())
	z := b.Input(p.Value)
	assert.Equal(t, p.Value.Ptr(), z.Ptr(), "memory from outside is shared")
	assert.Equal(t, z, b.Input(z))
}

// Views outside tapes: buckets and shards.
func TestViews(t *testing.T) {
	flat := FromSlice([]float32{0, 1, 2, 3, 4, 5, 6, 7}, 8)
	v := flat.Range(2, 8).View(2, 3)
	assert.Equal(t, "float32[2,3] [[2 3 4] [5 6 7]]", v.String())
	Data[float32](v)[0] = 9
	assert.Equal(t, float32(9), Data[float32](flat)[2])
	assert.Len(t, v.Bytes(), 24)
	assert.Equal(t, 0, flat.Range(8, 8).Len())
	assert.Equal(t, 6.0, flat.Range(6, 7).Item())
	assert.Equal(t, "cpu", v.Device().String())
	w := FromPtr(hostDevice, v.Ptr(), Int32, 2)
	assert.Equal(t, Int32, w.DType())
	assert.Equal(t, 1, FromSlice([]int64{}, 0, 3).NDim()-1)
}

// A Function may not return a transposed gradient, though it has as many elements as the input.
func TestGradientOfAnotherShape(t *testing.T) {
	p := NewParam(Constant(2), 3, 4)
	p.Make(hostDevice, Float32, 1)
	tape := NewTape(hostDevice)
	for _, pending := range []bool{false, true} {
		y := tape.Apply(fn{func(_ *Ctx, in []Tensor) Tensor { return in[0].Scale(2) }, func(c *Ctx, g Tensor, grads []Tensor) {
			grads[0] = g.Transpose(0, 1)
			if pending {
				c.Pending(0, Pending{F: &gate{open: true}, Seq: 1})
			}
		}}, tape.Use(p))
		err := Try(func() { tape.Backward(y.Sum()) })
		assert.ErrorContains(t, err,
			"Backward of fn a parameter float32[3,4], float32[4,3]: the gradient of input 0 has another shape than the input", "pending %t", pending)
		tape.Reset()
	}
}
