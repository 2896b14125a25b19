package tensor_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	. "github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// spy records the tape's calls.
type spy struct {
	name  string
	log   *[]string
	after Pending // what GradReady starts
	err   error
}

func (s *spy) note(format string, a ...any) {
	*s.log = append(*s.log, s.name+" "+fmt.Sprintf(format, a...))
}

func (s *spy) BeforeUse(p *Param, phase Phase) { s.note("use %s %d", p.Name(), phase) }
func (s *spy) BackwardBegin(last bool)         { s.note("begin %v", last) }
func (s *spy) GradReady(p *Param, after Pending) Pending {
	s.note("ready %s %v", p.Name(), after.F != nil)
	if s.after.F == nil {
		return after
	}
	return s.after
}
func (s *spy) Changed(p *Param) { s.note("changed %s", p.Name()) }
func (s *spy) BackwardDone(last bool) error {
	s.note("done %v", last)
	return s.err
}

// hooked makes a parameter of one element with an owner.
func hooked(ps *params, name string, owner Hooks) *Param {
	p := ps.add(name, Constant(0.5), 1)
	if err := p.Own(owner, 0); err != nil {
		panic(err)
	}
	return p
}

// A tape that was told of a parameter calls its owner once, though nothing uses the parameter.
func TestTellOwner(t *testing.T) {
	var log []string
	ps := &params{dev: hostDevice, dtype: Float32}
	a, b := hooked(ps, "a", &spy{name: "s", log: &log}), hooked(ps, "b", &spy{name: "other", log: &log})
	tape := NewTape(hostDevice)
	tape.TellOwner(b)
	assert.False(t, b.Told(), "no Backward runs")
	tape.Backward(tape.Use(a).Square().Sum(), More())
	assert.Equal(t, "s use a 0, other begin false, s begin false, s use a 1, s ready a false, other done false, s done false",
		strings.Join(log, ", "))
	log = nil
	tape.Backward(tape.Use(a).Square().Sum())
	assert.Equal(t, "s use a 0, s begin true, s use a 1, s ready a false, s done true", strings.Join(log, ", "))
	assert.False(t, b.HasGrad())
}

func TestHooks(t *testing.T) {
	var log []string
	s := &spy{name: "s", log: &log}
	ps := &params{dev: hostDevice, dtype: Float32}
	a, b, tied := hooked(ps, "a", s), hooked(ps, "b", s), hooked(ps, "tied", s)
	unused, frozen, dead := hooked(ps, "unused", s), hooked(ps, "frozen", s), hooked(ps, "dead", s)
	frozen.Freeze()
	tape := NewTape(hostDevice)
	forward := func() Tensor {
		x := tape.Use(tied).Mul(tape.Use(a)).Mul(tape.Use(frozen))
		tape.Use(dead).Exp() // a branch that the loss does not see
		return x.Mul(tape.Use(b)).Mul(tape.Use(tied)).Sum()
	}
	loss := forward()
	assert.Equal(t, "s use tied 0, s use a 0, s use frozen 0, s use dead 0, s use b 0, s use tied 0", strings.Join(log, ", "))
	log = nil
	tape.Backward(loss, More())
	assert.Equal(t, "s begin false, s use tied 1, s use b 1, s ready b false, s use frozen 1, s use tied 1, s use a 1, "+
		"s ready tied false, s ready a false, s done false", strings.Join(log, ", "))
	assert.Equal(t, []bool{true, true, true, false, false, false},
		[]bool{a.HasGrad(), b.HasGrad(), tied.HasGrad(), unused.HasGrad(), frozen.HasGrad(), dead.HasGrad()})
	tape.Reset()
	log = nil
	tape.Backward(forward())
	assert.Equal(t, "s begin true", log[6])
	assert.Equal(t, "s done true", log[len(log)-1])
	assert.Equal(t, 1, strings.Count(strings.Join(log, ","), "begin"))
	assert.Equal(t, 2*2*0.0625, Floats(tied.Grad)[0], "two microbatches, two uses of 1/16 each")
}

// Without a Reset in between, a Backward calls the hooks of the parameters used since the one before, also through an old handle.
func TestHooksOfTwoModels(t *testing.T) {
	var log []string
	ps := &params{dev: hostDevice, dtype: Float32}
	a, b := hooked(ps, "a", &spy{name: "1", log: &log}), hooked(ps, "b", &spy{name: "2", log: &log})
	tape := NewTape(hostDevice)
	x, y := tape.Use(a), tape.Use(b)
	for _, leaf := range []Tensor{x, y, x} {
		loss := leaf.Square().Sum()
		log = nil
		tape.Backward(loss, More())
		if leaf == y {
			assert.Equal(t, "2 begin false, 2 use b 1, 2 ready b false, 2 done false", strings.Join(log, ", "))
		}
	}
	assert.Equal(t, "1 begin false, 1 use a 1, 1 ready a false, 1 done false", strings.Join(log, ", "))
	assert.Equal(t, []float64{2, 1}, []float64{a.Grad.Item(), b.Grad.Item()})
	tape.Use(b).Exp() // and no Backward
	tape.Reset()
	loss := tape.Use(a).Exp().Sum()
	log = nil
	tape.Backward(loss)
	assert.Equal(t, "1 begin true, 1 use a 1, 1 ready a false, 1 done true", strings.Join(log, ", "))
}

// A gradient may not be written while its collective runs.
func TestGradientInFlight(t *testing.T) {
	var log []string
	g := &gate{}
	owner := &spy{name: "s", log: &log, after: Pending{g, 1}}
	ps := &params{dev: hostDevice, dtype: Float32}
	p := hooked(ps, "p", owner)
	tape := NewTape(hostDevice)
	step := func(opts ...BackwardOption) { tape.Backward(tape.Use(p).Exp().Sum(), opts...) }
	step(More())
	assert.Equal(t, "s use p 0, s begin false, s use p 1, s ready p false, s done false", strings.Join(log, ", "))
	tape.Reset()
	assert.ErrorContains(t, Try(func() { step(More()) }), "gradient of p is written while its collective is in flight")
	tape.Reset()
	g.open = true
	step()
	tape.Reset()
	p.Consume()
	owner.err = errors.New("rank 3 is gone")
	assert.ErrorIs(t, Try(func() { step() }), owner.err)
	tape.Reset()
	owner.err = nil
	step() // the gradient of the failed step was dropped
	assert.True(t, p.HasGrad())
}

// named is an owner with a name.
type named struct{ *spy }

func (named) String() string { return "ddp" }

// A gradient has one owner. The error names both.
func TestOneOwner(t *testing.T) {
	p := NewParam(Constant(0), 1)
	p.SetName("up.weight")
	assert.Nil(t, p.Owner())
	first := named{}
	assert.NoError(t, p.Own(first, 0))
	assert.EqualError(t, p.Own(&spy{}, 0), "the gradient of up.weight belongs to ddp already: *tensor_test.spy cannot have it, too")
	assert.Equal(t, first, p.Owner())
}

// A parameter inside a Checkpoint is ready once, when its last use has been differentiated. This is so, too, if it is an input of the
// Checkpoint, or if the loss does not depend on the Checkpoint.
func TestHooksInCheckpoint(t *testing.T) {
	var log []string
	s := &spy{name: "s", log: &log}
	ps := &params{dev: hostDevice, dtype: Float32}
	a, b, c := hooked(ps, "a", s), hooked(ps, "b", s), hooked(ps, "c", s)
	tape := NewTape(hostDevice)
	first := hooked(ps, "first", s)
	one := tape.Use(first).Affine(0, 1)
	x := tape.Checkpoint(func(in ...Tensor) Tensor { return in[0].Mul(tape.Use(b)).Mul(tape.Use(b)) }, tape.Use(a)).Mul(one)
	tape.Checkpoint(func(in ...Tensor) Tensor { return in[0].Mul(tape.Use(c)) }, tape.Use(c))
	loss := x.Mul(tape.Use(c)).Sum()
	log = nil
	tape.Backward(loss)
	trace := strings.Join(log, ", ")
	for _, p := range []string{"a", "b", "c"} {
		assert.Equal(t, 1, strings.Count(trace, "ready "+p), "%s in %s", p, trace)
	}
	assert.Equal(t, []float64{0.125, 0.25, 0.125}, []float64{Floats(a.Grad)[0], Floats(b.Grad)[0], Floats(c.Grad)[0]})
	assert.Regexp(t, "ready [ab].*ready [ab].*ready first.*ready c", trace, "c is not known to be ready before the end")
	tape.Reset()
	assert.Zero(t, PendingUses(tape.Use(a)))
}

// A hook may move a parameter's value and provide the memory of its gradient (fsdp).
func TestHooksMoveMemory(t *testing.T) {
	ps := &params{dev: hostDevice, dtype: Float32}
	p, q := ps.add("p", UniformInit(-1, 1), 4), ps.add("q", Constant(1), 4)
	tape := NewTape(hostDevice)
	run := func() []float64 {
		tape.Backward(tape.Use(p).Mul(tape.Use(q)).Exp().Mul(tape.Use(p)).Sum())
		tape.Reset()
		g := Floats(p.Grad)
		ps.consume()
		return g
	}
	want := run()
	m := &mover{p: p, home: Floats(p.Value), grad: New(hostDevice, Float32, 4)}
	assert.NoError(t, p.Own(m, 0))
	m.BackwardDone(true)
	assert.Equal(t, want, run())
	assert.Equal(t, m.grad, p.Grad)
	assert.Equal(t, 4, m.moves)
	assert.ErrorContains(t, Try(func() { Floats(p.Value) }), "memory of p is not there")
	p.Grad = New(hostDevice, Float32, 3)
	m.grad = p.Grad
	assert.ErrorContains(t, Try(func() { run() }), "Backward p float32[4], float32[3]: the gradient of p is a tensor of another size")
}

// mover takes the value away, and brings it back at each use, in other memory.
type mover struct {
	p     *Param
	home  []float64
	grad  Tensor
	moves int
}

func (m *mover) BeforeUse(p *Param, phase Phase) {
	m.moves++
	Raw(p.Value).Place(New(hostDevice, Float32, 4).Ptr())
	for i, v := range m.home {
		StoreFloat(p.Value.Ptr(), Float32, i, v)
	}
	if phase == Backward {
		p.Grad = m.grad
	}
}
func (m *mover) BackwardBegin(bool)                    {}
func (m *mover) Changed(*Param)                        {}
func (m *mover) GradReady(_ *Param, p Pending) Pending { return p }
func (m *mover) BackwardDone(bool) error               { Raw(m.p.Value).Place(nil); return nil }

// The device's poll hook is called once for each operation, forward and backward.
func TestPoll(t *testing.T) {
	dev := cpu.New(1)
	defer dev.Close()
	n := 0
	dev.SetPoll(func() { n++ })
	ps := &params{dev: dev, dtype: Float32}
	m := newMLP(ps, 3, 4, 4, 2)
	tape := NewTape(dev)
	loss := m.forward(tape.Input(random(dev, Float32, 1, 2, 3))).Square().Sum()
	nodes := Nodes(tape)
	assert.Equal(t, nodes, n)
	tape.Backward(loss)
	assert.Equal(t, 2*nodes, n)
}
