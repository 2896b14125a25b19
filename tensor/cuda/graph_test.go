package cuda_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/capture"
	"github.com/ringo-ml/ringo/tensor/cuda"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// TestReplaysAreSteps: 11 steps, most of which are replays, have the same bits as 11 runs of the function, after each step.
func TestReplaysAreSteps(t *testing.T) {
	emu.Start(t, emu.Config{Lazy: true, Reverse: true})
	for name, make := range trainees {
		for i, dtype := range []tensor.DType{tensor.Float32, tensor.BFloat16} {
			if i != truth(name == "gpt") && !long(t) {
				continue
			}
			if name != "gpt" && dtype == tensor.BFloat16 {
				dtype = tensor.Float64
			}
			t.Run(fmt.Sprintf("%s %v", name, dtype), func(t *testing.T) {
				dev := open(t, 0)
				eager, m := make(dev, dtype), make(dev, dtype)
				step := capture.New(dev, m.step)
				for i := range 11 {
					x, y := eager.batch(i)
					require.NoError(t, eager.step(x, y))
					require.NoError(t, step.Run(m.batch(i)))
					want, host := eager.state()
					got, gotHost := m.state()
					require.Equal(t, want, got, "step %d", i)
					require.Equal(t, host, gotHost, "step %d", i)
				}
				require.NoError(t, step.Close())
			})
		}
	}
}

func TestLongReplaysAreSteps(t *testing.T) { reliability.AsLong(t, TestReplaysAreSteps) }

// TestReplayChangesValues: after a replay, a Backward of what was computed before it is an error, as after a step.
func TestReplayChangesValues(t *testing.T) {
	dev := device(t)
	m := mlp(dev, tensor.Float32)
	step := capture.New(dev, m.step)
	for i := range 5 {
		tape := tensor.NewTape(dev)
		loss := tape.Use(m.params[0]).Square().Sum()
		require.NoError(t, step.Run(m.batch(i)))
		require.ErrorContains(t, tensor.Try(func() { tape.Backward(loss) }), "was changed", "step %d", i)
		tape.Close()
	}
	require.NoError(t, step.Close())
}

// TestReplayCost: a replay is one launch, copies its inputs, and allocates nothing, for any number of kernels. The host waits for the copy
// of the inputs only if they are in host memory.
func TestReplayCost(t *testing.T) {
	dev := device(t)
	require.NoError(t, dev.Bind())
	for name, make := range trainees {
		m := make(dev, tensor.Float32)
		step := capture.New(dev, m.step)
		hx, hy := m.batch(0)
		x, y := tensor.New(dev, hx.DType(), hx.Shape().Dims...), tensor.New(dev, tensor.Int64, hy.Shape().Dims...)
		for range 5 {
			require.NoError(t, step.Run(x, y))
		}
		require.NoError(t, dev.Queue(0).Sync())
		before := dev.GPU().Stats()
		n := testing.AllocsPerRun(10, func() { require.NoError(t, step.Run(x, y)) })
		assert.True(t, n == 0 || reliability.Racing, "%s: %v allocations", name, n)
		after := dev.GPU().Stats()
		assert.Equal(t, before.Launches+11, after.Launches)
		after.Launches = before.Launches
		assert.Equal(t, before, after, name)
		require.NoError(t, step.Run(hx, hy))
		assert.Equal(t, before.HostToDevice+2, dev.GPU().Stats().HostToDevice)
	}
}

// TestOtherShapes: between replays, a batch of another shape, or with other rows of the global batch, runs the function.
func TestOtherShapes(t *testing.T) {
	dev := device(t)
	eager, m := mlp(dev, tensor.Float32), mlp(dev, tensor.Float32)
	step := capture.New(dev, m.step)
	defer step.Close()
	for i := range 12 {
		x, y := m.batch(i)
		switch i {
		case 4, 9:
			x, y = x.Range(0, 5*20).View(5, 20), y.Range(0, 5)
		case 5:
			x = x.WithRows(tensor.Rows{First: 16, Stride: 1, Total: 32})
		}
		bothStep(t, i, eager, m, step, x, y)
	}
}

// TestUnevenFirst: where the first batch is another part of as many rows, the step is recorded with the shape of the next such one.
func TestUnevenFirst(t *testing.T) {
	dev := device(t)
	eager, m := mlp(dev, tensor.Float32), mlp(dev, tensor.Float32)
	runs := 0
	step := capture.New(dev, func(in ...tensor.Tensor) error {
		runs++
		return m.step(in...)
	})
	defer step.Close()
	cut := func(x tensor.Tensor, n, total int) tensor.Tensor {
		dims := x.Shape().Dims
		size := x.Len() / dims[0]
		dims[0] = n
		return x.Range(0, n*size).View(dims...).WithRows(tensor.Rows{Stride: 1, Total: total})
	}
	for i, b := range []struct{ n, total, runs int }{
		{6, 10, 1}, {5, 10, 2}, {3, 6, 3}, {5, 10, 4}, {5, 10, 5}, {5, 10, 5}, {3, 6, 6}, {5, 10, 6},
	} {
		x, y := m.batch(i)
		bothStep(t, i, eager, m, step, cut(x, b.n, b.total), cut(y, b.n, b.total))
		assert.Equal(t, b.runs, runs, "step %d", i)
	}
}

// TestStateChangesBetweenReplays: SetLR, and a loaded state, are used from the next replay on.
func TestStateChangesBetweenReplays(t *testing.T) {
	dev := device(t)
	eager, m := mlp(dev, tensor.Float32), mlp(dev, tensor.Float32)
	step := capture.New(dev, m.step)
	defer step.Close()
	for i := range 10 {
		for _, m := range []*trainee{eager, m} {
			switch i {
			case 5:
				m.opt.SetLR(0.5)
			case 7:
				st := m.opt.State()
				for name := range st.Counts {
					st.Counts[name] = 2
				}
				for i, x := range st.Tensors {
					st.Tensors[i].Tensor = tensor.ToHost(x.Tensor)
				}
				st.Steps = 1
				require.NoError(t, m.opt.SetState(st))
				m.tape.SetStep(100, 0)
			}
		}
		x, y := m.batch(i)
		bothStep(t, i, eager, m, step, x, y)
	}
}

// TestMemoryOfGraphs: freed memory of a captured step is not given out until the step is closed.
func TestMemoryOfGraphs(t *testing.T) {
	dev := device(t)
	p, err := dev.Alloc(4096)
	require.NoError(t, err)
	x, sum := tensor.FromPtr(dev, p, tensor.Float32, 1024), tensor.New(dev, tensor.Float32)
	tape := tensor.NewTape(dev, tensor.NoGrad())
	step := capture.New(dev, func(...tensor.Tensor) error {
		tensor.Copy(sum, tape.Input(x).Affine(2, 1).Sum())
		tape.Reset()
		return nil
	})
	for range 3 {
		require.NoError(t, step.Run())
	}
	tensor.Constant(1).Fill(x, 0, 0)
	dev.Free(p)
	tape.Close()
	others := make([]tensor.Tensor, 0, 100)
	for range cap(others) {
		others = append(others, ones(dev, 1024), ones(dev, 256<<8))
	}
	require.NoError(t, step.Run())
	assert.Equal(t, 3*1024.0, sum.Item())
	for _, y := range others {
		assert.Equal(t, 1.0, tensor.Floats(y)[0])
		assert.NotEqual(t, p, y.Ptr())
	}
	require.NoError(t, step.Close())
	again, err := dev.Alloc(4096)
	require.NoError(t, err)
	assert.Equal(t, p, again)
	dev.Free(again)
	runtime.KeepAlive(others)
	require.ErrorContains(t, step.Run(), "closed")
}

// wrongly is a captured step that does something forbidden when it is recorded.
func wrongly(dev *cuda.Device, x tensor.Tensor, what func(y tensor.Tensor) error) *capture.Step {
	tape, runs := tensor.NewTape(dev, tensor.NoGrad()), 0
	return capture.New(dev, func(...tensor.Tensor) error {
		defer tape.Reset()
		y := tape.Input(x).Affine(2, 1)
		if runs++; runs == 3 {
			return what(y)
		}
		return nil
	})
}

// TestWhatStepsMustNotDo: each of these is an error that names it, and the device can still be used.
func TestWhatStepsMustNotDo(t *testing.T) {
	dev := device(t)
	x := ones(dev, 100)
	for _, c := range []struct {
		name, want string
		what       func(y tensor.Tensor) error
	}{
		{"read", "copies from or to host memory inside a captured step", func(y tensor.Tensor) error { tensor.Floats(y); return nil }},
		{"write", "copies from or to host memory", func(tensor.Tensor) error { tensor.Constant(2).Fill(x, 0, 0); return nil }},
		{"wait", "sync: cuda:0 waits inside a captured step", func(tensor.Tensor) error { return dev.Queue(0).Sync() }},
		{"mark", "marks a place", func(tensor.Tensor) error { dev.Queue(0).Mark(); return nil }},
		{"alloc", "takes more memory than in the runs before", func(tensor.Tensor) error { ones(dev, 3); return nil }},
		{"compile", "log_softmax: cuda:0 compiles a kernel", func(y tensor.Tensor) error { ops.LogSoftmax(y.Reshape(10, 10)); return nil }},
		{"own key", "a random key that is not the tape's", func(y tensor.Tensor) error {
			e := tensor.NewExec(dev)
			a := e.Args(ops.OpDropout, tensor.Float32).Out(x).In(x)
			a.Key, a.I = 12, [8]int{0, 1, 1, 1, 1}
			e.Launch()
			return nil
		}},
		{"set step", "SetStep: inside a captured step", func(y tensor.Tensor) error { y.Tape().SetStep(1, 0); return nil }},
		{"capture", "inside another one of cuda:0", func(tensor.Tensor) error {
			return capture.New(dev, func(...tensor.Tensor) error { return nil }).Run()
		}},
		{"begin", "is being captured already", func(tensor.Tensor) error { return dev.BeginGraph(nil, true) }},
		{"error", "no luck", func(tensor.Tensor) error { return fmt.Errorf("no luck") }},
	} {
		step := wrongly(dev, x, c.what)
		var err error
		for range 3 {
			require.NoError(t, err)
			if failed := tensor.Try(func() { err = step.Run() }); failed != nil {
				err = failed
			}
		}
		require.ErrorContains(t, err, c.want, c.name)
		require.ErrorContains(t, step.Run(), "failed when it was recorded", c.name)
		require.NoError(t, step.Close())
		require.NoError(t, dev.Queue(0).Sync(), c.name)
		good := wrongly(dev, x, func(tensor.Tensor) error { return nil })
		for range 5 {
			require.NoError(t, good.Run(), c.name)
		}
		require.NoError(t, good.Close())
	}
}

// TestMarksWhileRecording: marks of another queue may be checked while a graph is recorded. The driver may not be asked: that would make
// the recording invalid.
func TestMarksWhileRecording(t *testing.T) {
	dev := device(t)
	q := dev.Queue(1).(*cuda.Queue)
	runs := 0
	step := wrongly(dev, ones(dev, 100), func(tensor.Tensor) error {
		runs++
		hold(q)
		defer release(q)
		if q.Mark().Done() {
			return errors.New("a queue that is held is past a mark")
		}
		return nil
	})
	for range 5 {
		require.NoError(t, step.Run())
	}
	require.Equal(t, 1, runs)
	require.NoError(t, step.Close())
}

// TestRunOfBusySteps: Run by two goroutines, by the function itself, and after the device is closed.
func TestRunOfBusySteps(t *testing.T) {
	emu.Start(t, emu.Config{})
	dev, err := cuda.NewDevice(0)
	require.NoError(t, err)
	var step *capture.Step
	within, other := error(nil), make(chan error)
	x, y := ones(dev, 4), ones(dev, 4)
	step = capture.New(dev, func(...tensor.Tensor) error {
		tensor.Copy(x, y)
		within = step.Run()
		go func() { other <- step.Run() }()
		require.ErrorContains(t, <-other, "while it runs")
		return nil
	})
	for range 3 {
		require.NoError(t, step.Run())
		require.ErrorContains(t, within, "while it runs")
	}
	require.NoError(t, step.Run())
	require.NoError(t, dev.Close())
	require.ErrorContains(t, step.Run(), "the device is closed")
	require.NoError(t, step.Close())
}

// TestLeftOnTheTape: after a replay, a result that stays on the tape is invalid; it is not an older result.
func TestLeftOnTheTape(t *testing.T) {
	dev := device(t)
	tape, x := tensor.NewTape(dev, tensor.NoGrad()), ones(dev, 4)
	var y tensor.Tensor
	step := capture.New(dev, func(...tensor.Tensor) error {
		tape.Reset()
		y = tape.Input(x).Sum()
		return nil
	})
	defer step.Close()
	for i := range 5 {
		require.NoError(t, step.Run())
		require.Equal(t, i < 2, y.Valid())
	}
}

// TestGradientsOfCapturedSteps: recording decides whether a gradient is written or added to, so no gradient may be left after a step. The
// optimizer's step can be captured alone.
func TestGradientsOfCapturedSteps(t *testing.T) {
	dev := device(t)
	p := tensor.NewParam(tensor.Constant(1), 3)
	opt := optim.NewSGD(nn.Init(struct{ P *tensor.Param }{p}, dev, tensor.Float32, 1), optim.SGDConfig{LR: 1})
	tape := tensor.NewTape(dev)
	backward := func(opts ...tensor.BackwardOption) error {
		tape.Backward(tape.Use(p).Sum(), opts...)
		tape.Reset()
		return nil
	}
	leave := capture.New(dev, func(...tensor.Tensor) error { return backward(tensor.More()) })
	require.NoError(t, leave.Run())
	require.NoError(t, leave.Run())
	p.Consume()
	require.ErrorContains(t, leave.Run(), "makes a gradient of p and leaves it")
	p.Consume()

	whole := capture.New(dev, func(...tensor.Tensor) error {
		_ = backward()
		return opt.Step()
	})
	require.NoError(t, whole.Run())
	require.NoError(t, whole.Run())
	require.NoError(t, backward(tensor.More()))
	require.ErrorContains(t, tensor.Try(func() { _ = whole.Run() }), "p has a gradient from before")
	tape.Reset()
	p.Consume()

	step := capture.New(dev, func(...tensor.Tensor) error { return opt.Step() })
	for range 6 {
		require.NoError(t, backward())
		require.NoError(t, step.Run())
	}
	require.Equal(t, -7.0, tensor.Floats(p.Value)[0])
	require.NoError(t, errors.Join(leave.Close(), whole.Close(), step.Close()))
}

// TestVary: numbers change only in operations that consist of kernels.
func TestVary(t *testing.T) {
	dev := device(t)
	for _, p := range prepare(dev) {
		p.k(dev.Queue(0), &p.a)
		require.NoError(t, dev.BeginGraph(nil, true))
		var set func()
		err := tensor.Try(func() { set = dev.Vary(p.k, &p.a) })
		g, e := dev.EndGraph()
		require.NoError(t, e)
		if set == nil {
			require.Contains(t, []string{"copy", "matmul", "linear_act"}, p.name)
			require.ErrorContains(t, err, "in a kernel whose numbers change between replays")
			require.Nil(t, g, "nothing was launched")
			continue
		}
		set()
		require.NoError(t, errors.Join(g.Launch(), g.Close()))
	}
}
