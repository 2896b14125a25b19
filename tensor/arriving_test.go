package tensor_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/trace"
	. "github.com/ringo-ml/ringo/tensor"
)

// slowParts is nowScale with an output and a gradient that a lane writes in two parts. A part is NaN until it is waited for.
type slowParts struct{ l *lane }

func (*slowParts) Name() string { return "slow_parts" }

// begin makes the lane write factor·x to y.
func (f *slowParts) begin(c *Ctx, y, x Tensor, factor float32) {
	to, from := Data[float32](y), Data[float32](x)
	for i := range to {
		to[i] = float32(math.NaN())
	}
	rows := y.Dim(0)
	each := y.Len() / rows
	for _, part := range [][2]int{{rows / 2, rows}, {0, rows / 2}} {
		p := f.l.issue(func() {
			for i := part[0] * each; i < part[1]*each; i++ {
				to[i] = factor * from[i]
			}
		})
		c.Arrives(y, part[0], part[1], p)
		Raw(y).Borrow(f.l, p.Seq)
		Raw(x).Borrow(f.l, p.Seq)
	}
}

func (f *slowParts) Forward(c *Ctx, in []Tensor) Tensor {
	y := c.New(Float32, in[0].Shape().Dims...)
	c.Save(in[0])
	f.begin(c, y, in[0], 1)
	return y
}

func (f *slowParts) Backward(c *Ctx, g Tensor, grads []Tensor) {
	grads[0] = c.New(Float32, g.Shape().Dims...)
	f.begin(c, grads[0], g, 2)
}

// slowAgain does not keep its output.
type slowAgain struct{ slowParts }

func (f *slowAgain) Fetch(c *Ctx, y Tensor) {
	y.Reshape(-1) // collectives have views
	f.begin(c, y, c.Saved(0), 1)
}

// gathered is a product after each of two calls of f.
func gathered(tape *Tape, f Function, ps *params) Tensor {
	x := tape.Use(ps.list[0]).Affine(1, 0)
	for _, w := range ps.list[1:] {
		x = Linear(tape.Apply(f, x), tape.Use(w), Tensor{})
	}
	return x.Sum()
}

func gatheredParams() *params {
	ps := &params{dev: hostDevice, dtype: Float32}
	ps.add("x", UniformInit(-1, 1), 5, 6)
	ps.add("v", UniformInit(-1, 1), 6, 6)
	ps.add("w", UniformInit(-1, 1), 6, 6)
	return ps
}

// A product multiplies each part when it has arrived. What is fetched again is requested before the input's gradient is computed, and
// waited for after it.
func TestArrivingOrder(t *testing.T) {
	rec := trace.New(1000)
	tape := NewTape(hostDevice, Trace(rec))
	l := &lane{log: &strings.Builder{}}
	l.rec = rec
	loss := gathered(tape, &slowAgain{slowParts{l}}, gatheredParams())
	l.note("end")
	assert.Equal(t, "affine [issue] [issue] [wait] matmul [wait] matmul [issue] [issue] [wait] matmul [wait] matmul sum [end] ",
		l.log.String())
	l.log.Reset()
	tape.Backward(loss)
	l.note("end")
	// The input of the last product is there. So its gradient is computed first and, while that is sent, the weight's. The input of the
	// first product is fetched again while its gradient is computed, from a gradient that arrives in parts.
	assert.Equal(t, "affine copy matmul [issue] [issue] matmul [issue] [issue] [wait] matmul [wait] matmul [issue] [issue] [wait] [wait] "+
		"matmul [wait] [wait] affine copy [end] ", l.log.String())
}

// The memory of a fetched output is freed when the next one is made.
func TestArrivingMemory(t *testing.T) {
	const rows, features, layers = 64, 32, 6
	live := func(f Function) int {
		tape := NewTape(hostDevice)
		defer tape.Close()
		ps := &params{dev: hostDevice, dtype: Float32}
		x := tape.Use(ps.add("x", Constant(1), rows, features))
		for range layers {
			x = Linear(tape.Apply(f, x), tape.Use(ps.add("w", Constant(1), features, features)), Tensor{})
		}
		n, _ := tape.Memory()
		tape.Backward(x.Sum())
		after, _ := tape.Memory()
		require.Less(t, after, 2*rows*features*4)
		return n
	}
	keeps, again := live(&slowParts{&lane{}}), live(&slowAgain{slowParts{&lane{}}})
	assert.Equal(t, (layers-1)*rows*features*4, keeps-again)
}

// An error of a collective is returned to whoever reads what it should bring.
func TestArrivingFails(t *testing.T) {
	f := &slowParts{&lane{err: errors.New("peer is gone")}}
	tape, ps := NewTape(hostDevice), gatheredParams()
	err := Try(func() { gathered(tape, f, ps) })
	require.ErrorContains(t, err, "slow_parts")
	require.ErrorContains(t, err, "peer is gone")
	tape.Reset()
	f.l.err = nil
	require.NotPanics(t, func() { tape.Backward(gathered(tape, f, ps)) })
}

// Tensors that arrive in parts allocate nothing.
func TestArrivingAllocatesNothing(t *testing.T) {
	skipInDebug(t)
	tape, ps := NewTape(hostDevice), gatheredParams()
	f := &here{}
	step := func() {
		tape.Backward(gathered(tape, f, ps))
		tape.Reset()
		ps.consume()
	}
	step()
	assert.Zero(t, testing.AllocsPerRun(50, step))
}

// here is a Fetcher whose parts arrive at once.
type here struct{}

func (*here) Name() string { return "here" }

func (f *here) Forward(c *Ctx, in []Tensor) Tensor {
	y := c.Tape().NewLike(in[0])
	c.Save(in[0])
	f.Fetch(c, y)
	return y
}

func (*here) Fetch(c *Ctx, y Tensor) {
	Copy(y, c.Saved(0))
	c.Arrives(y, 0, 2, Pending{})
	c.Arrives(y, 2, y.Dim(0), Pending{})
}

func (*here) Backward(_ *Ctx, g Tensor, grads []Tensor) { grads[0] = g }

// rowwise is the identity; it computes the product before it in two parts.
type rowwise struct{}

func (rowwise) Name() string { return "rowwise" }
func (rowwise) ByRows()      {}
func (rowwise) Forward(c *Ctx, in []Tensor) Tensor {
	y, n := c.Tape().NewLike(in[0]), in[0].Dim(0)
	c.Rows(y.Slice(0, n/3, n), in[0], n/3, n)
	c.Rows(y.Slice(0, 0, n/3), in[0], 0, n/3)
	return y
}
func (rowwise) Backward(_ *Ctx, g Tensor, grads []Tensor) { grads[0] = g }

// A product that is computed by rows has the same bits and gradients, also if it was computed before.
func TestByRows(t *testing.T) {
	grads := func(apply func(x, w Tensor) Tensor) [][]float64 {
		ps := gatheredParams()
		tape := NewTape(hostDevice)
		x := apply(tape.Use(ps.list[0]).Affine(1, 0), tape.Use(ps.list[1]))
		x = apply(x, tape.Use(ps.list[2]))
		out := Floats(x)
		tape.Backward(x.Square().Sum())
		return append(ps.grads(), out)
	}
	want := grads(func(x, w Tensor) Tensor { return Linear(x, w, Tensor{}) })
	require.Equal(t, want, grads(func(x, w Tensor) Tensor { return LinearApply(rowwise{}, x, w) }))
	require.Equal(t, want, grads(func(x, w Tensor) Tensor { return x.Tape().Apply(rowwise{}, Linear(x, w, Tensor{})) }))
	require.Equal(t, want, grads(func(x, w Tensor) Tensor { return LinearApply(identity{}, x, w) }))
}

// misplaced calls Arrives for a tensor that nobody would wait for.
type misplaced struct{ back, second bool }

func (misplaced) Name() string { return "misplaced" }

func (f misplaced) Forward(c *Ctx, in []Tensor) Tensor {
	y := c.Tape().NewLike(in[0])
	Copy(y, in[0])
	if !f.back {
		f.say(c, y)
	}
	return y
}

func (f misplaced) say(c *Ctx, x Tensor) {
	c.Arrives(c.Tape().NewLike(x), 0, x.Dim(0), Pending{})
	if f.second {
		c.Arrives(c.Tape().NewLike(x), 0, x.Dim(0), Pending{})
	}
}

func (f misplaced) Backward(c *Ctx, g Tensor, grads []Tensor) {
	if f.back {
		f.say(c, g)
	}
	grads[0] = g
}

// It is an error if a tensor for which Arrives was called is not returned, or if it is called for a second tensor, whose parts would be
// taken for the first one's.
func TestArrivesIsForTheOutput(t *testing.T) {
	for want, f := range map[string]misplaced{
		"not the output": {}, "not a gradient": {back: true}, "Arrives was already called": {second: true},
		"already called for another tensor": {back: true, second: true}} {
		tape, ps := NewTape(hostDevice), gatheredParams()
		err := Try(func() { tape.Backward(gathered(tape, f, ps)) })
		require.ErrorContains(t, err, want)
	}
}
