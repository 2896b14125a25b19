package tensor_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/trace"
	. "github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// lane is a fake lane of collectives: an operation runs only when it is waited for.
type lane struct {
	log  *strings.Builder
	ops  []func()
	done int // operations that are over
	err  error
	rec  *trace.Recorder
	seen int // kernels written to the log so far
}

func (l *lane) issue(run func()) Pending {
	l.note("issue")
	l.ops = append(l.ops, run)
	return Pending{l, uint64(len(l.ops))}
}

func (l *lane) FenceDone(seq uint64) bool { return int(seq) <= l.done }

func (l *lane) FenceWait(seq uint64) error {
	l.note("wait")
	for l.done < int(seq) {
		l.ops[l.done]()
		l.done++
	}
	return l.err
}

// note logs the kernels launched since the last note, then the text.
func (l *lane) note(what string) {
	if l.rec != nil {
		for _, s := range l.rec.Spans()[l.seen:] {
			if s.Track == trace.Compute {
				fmt.Fprintf(l.log, "%s ", s.Name)
			}
		}
		l.seen = len(l.rec.Spans())
		fmt.Fprintf(l.log, "[%s] ", what)
	}
}

// slowScale stands for the conjugate of a column-parallel layer: the identity, whose gradient a collective doubles. Until it is waited for,
// its buffer is NaN.
type slowScale struct{ l *lane }

func (slowScale) Name() string                       { return "slow_scale" }
func (slowScale) Forward(_ *Ctx, in []Tensor) Tensor { return in[0] }
func (s slowScale) Backward(c *Ctx, g Tensor, grads []Tensor) {
	buf := Data[float32](g)
	twice := make([]float32, len(buf))
	for i, v := range buf {
		twice[i] = 2 * v
		buf[i] = float32(math.NaN())
	}
	grads[0] = g
	p := s.l.issue(func() { copy(buf, twice) })
	Raw(g).Borrow(s.l, p.Seq)
	c.Pending(0, p)
}

// nowScale is slowScale without a delay.
type nowScale struct{}

func (nowScale) Name() string                       { return "now_scale" }
func (nowScale) Forward(_ *Ctx, in []Tensor) Tensor { return in[0] }
func (nowScale) Backward(_ *Ctx, g Tensor, grads []Tensor) {
	grads[0] = g.Scale(2)
}

// pendingModels are models in which a contribution that is still missing meets others.
var pendingModels = map[string]func(t *Tape, f Function, x Tensor, w []*Param) Tensor{
	"chain": func(t *Tape, f Function, x Tensor, w []*Param) Tensor {
		for _, p := range w {
			x = Linear(t.Apply(f, x), t.Use(p), Tensor{}).Tanh()
		}
		return x
	},
	"residual": func(t *Tape, f Function, x Tensor, w []*Param) Tensor {
		for _, p := range w {
			x = x.Add(Linear(t.Apply(f, x), t.Use(p), Tensor{}).Tanh())
		}
		return x
	},
	"residual behind": func(t *Tape, f Function, x Tensor, w []*Param) Tensor {
		for _, p := range w {
			x = Linear(t.Apply(f, x), t.Use(p), Tensor{}).Tanh().Add(x.Square())
		}
		return x
	},
	"sum": func(t *Tape, f Function, x Tensor, w []*Param) Tensor {
		return t.Apply(f, x).Add(x)
	},
	"two, then one that is there": func(t *Tape, f Function, x Tensor, w []*Param) Tensor {
		y := x.Square()
		return Linear(t.Apply(f, x), t.Use(w[0]), Tensor{}).Add(Linear(t.Apply(f, x), t.Use(w[1]), Tensor{})).Add(y)
	},
	"q, k, v with their own": func(t *Tape, f Function, x Tensor, w []*Param) Tensor {
		q, k, v := Linear(t.Apply(f, x), t.Use(w[0]), Tensor{}), Linear(t.Apply(f, x), t.Use(w[1]), Tensor{}),
			Linear(t.Apply(f, x), t.Use(w[2]), Tensor{})
		return x.Add(MatMul(ops.Softmax(MatMul(q, k, false, true)), v, false, false))
	},
	"twice in a row, and a slice": func(t *Tape, f Function, x Tensor, w []*Param) Tensor {
		y := t.Apply(f, t.Apply(f, x))
		return Linear(y, t.Use(w[0]), Tensor{}).Add(x.Slice(0, 0, 1)).Add(y)
	},
	"checkpoint": func(t *Tape, f Function, x Tensor, w []*Param) Tensor {
		return t.Checkpoint(func(in ...Tensor) Tensor {
			return in[0].Add(Linear(t.Apply(f, in[0]), t.Use(w[0]), Tensor{}).Tanh())
		}, x).Add(x)
	},
	"parameter": func(t *Tape, f Function, x Tensor, w []*Param) Tensor {
		return Linear(x, t.Apply(f, t.Use(w[0])), Tensor{}).Add(Linear(x, t.Use(w[0]), Tensor{}))
	},
}

func TestPending(t *testing.T) {
	dev := cpu.New(1)
	defer dev.Close()
	for name, model := range pendingModels {
		run := func(f Function) [][]float64 {
			ps := &params{dev: dev, dtype: Float32}
			in := ps.add("x", UniformInit(-1, 1), 4, 6)
			var w []*Param
			for i := range 3 {
				w = append(w, ps.add(fmt.Sprint("w", i), UniformInit(-1, 1), 6, 6))
			}
			tape := NewTape(dev)
			Poison(tape)
			for range 2 {
				ps.consume()
				tape.Backward(model(tape, f, tape.Use(in).Affine(1, 0), w).Sum())
				tape.Reset()
			}
			return ps.grads()
		}
		want := run(nowScale{})
		for i := range 3 {
			l := &lane{}
			got := run([]Function{slowScale{l}, &slowParts{l}, &slowAgain{slowParts{l}}}[i])
			requireGrads(t, want, got, 0, name)
			assert.Equal(t, len(l.ops), l.done, name)
			assert.NotZero(t, l.done, name)
		}
	}
}

// The gradient of the weights is computed after the collective for the input is issued, and before it is waited for.
func TestWeightGradientsOverlap(t *testing.T) {
	dev := cpu.New(1)
	defer dev.Close()
	rec := trace.New(1000)
	tape := NewTape(dev, Trace(rec))
	ps := &params{dev: dev, dtype: Float32}
	w, b := ps.add("w", UniformInit(-1, 1), 6, 6), ps.add("b", UniformInit(-1, 1), 6)
	l := &lane{log: &strings.Builder{}}
	in := tape.Use(ps.add("x", Constant(1), 4, 6)).Affine(1, 0)
	x := in.Exp()
	q := Linear(tape.Apply(slowScale{l}, x), tape.Use(w), tape.Use(b))
	k := Linear(tape.Apply(slowScale{l}, x), tape.Use(w), tape.Use(b))
	loss := q.Sub(k.Square()).Sum()
	l.rec, l.seen = rec, len(rec.Spans())
	tape.Backward(loss)
	l.note("end")
	trace := l.log.String()
	// The gradient of k; dX of k; its collective; while that runs, dW and db of k; then the same for q; then the waits for both.
	assert.Regexp(t, `^affine copy affine square_grad matmul \[issue\] matmul colsum matmul \[issue\] matmul colsum \[wait\] (\S+ )*\[wait\] `,
		strings.ReplaceAll(trace, "cast ", ""))
}

// Deferred work is also done before waiting for a collective of somebody else.
func TestWeightGradientsBeforeWait(t *testing.T) {
	dev := cpu.New(1)
	defer dev.Close()
	rec := trace.New(1000)
	tape := NewTape(dev, Trace(rec))
	ps := &params{dev: dev, dtype: Float32}
	w := ps.add("w", UniformInit(-1, 1), 6, 6)
	l := &lane{log: &strings.Builder{}}
	y := tape.Apply(identity{}, tape.Use(ps.add("x", Constant(1), 4, 6)).Affine(1, 0))
	near := Linear(y, tape.Use(w), Tensor{})
	far := tape.Apply(slowScale{l}, y)
	loss := near.Sub(far.Square()).Sum()
	l.rec, l.seen = rec, len(rec.Spans())
	tape.Backward(loss)
	assert.Regexp(t, `square_grad \[issue\] matmul matmul \[wait\] $`, l.log.String())
}

// The error of a collective that fails inside Backward reaches the caller.
func TestPendingFails(t *testing.T) {
	cause := errors.New("rank 1 closed the connection")
	l := &lane{err: cause}
	tape := NewTape(hostDevice)
	p := NewParam(Constant(1), 3)
	p.Make(hostDevice, Float32, 1)
	err := Try(func() { tape.Backward(tape.Apply(slowScale{l}, tape.Use(p).Exp()).Sum()) })
	require.ErrorIs(t, err, cause)
	assert.ErrorContains(t, err, "Backward float32[3]: rank 1")
	tape.Reset()
	assert.False(t, p.HasGrad())
}

// Pending contributions allocate nothing.
func TestPendingAllocatesNothing(t *testing.T) {
	skipInDebug(t)
	tape := NewTape(hostDevice)
	p := NewParam(Constant(1), 3)
	p.Make(hostDevice, Float32, 1)
	f := borrowing{&lane{}}
	step := func() {
		f.l.done++
		x := tape.Use(p).Exp()
		tape.Backward(x.Add(tape.Apply(f, x)).Sum())
		tape.Reset()
		p.Consume()
	}
	step()
	assert.Zero(t, testing.AllocsPerRun(50, step))
}

// borrowing is a collective that is over before anybody asks.
type borrowing struct{ l *lane }

func (borrowing) Name() string                       { return "borrowing" }
func (borrowing) Forward(_ *Ctx, in []Tensor) Tensor { return in[0] }
func (b borrowing) Backward(c *Ctx, g Tensor, grads []Tensor) {
	grads[0] = g
	Raw(g).Borrow(b.l, uint64(b.l.done))
	c.Pending(0, Pending{b.l, uint64(b.l.done)})
}
