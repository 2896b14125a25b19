package optim_test

import (
	"errors"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/capture"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/cuda"
	"github.com/ringo-ml/ringo/tensor/tensortest"
)

// averages returns the parameters' values inside Use.
func averages(t *testing.T, e *optim.EMA, ps nn.Params) (v []float64) {
	t.Helper()
	require.NoError(t, e.Use(func() error {
		v = flat(ps)
		return nil
	}))
	return v
}

// Averages equal those of AveragedModel with get_ema_multi_avg_fn. Use changes nothing.
func TestEMAMatchesTorch(t *testing.T) {
	f := loadFixture(t)
	require.Len(t, f.Averages, 4)
	for decay, byType := range f.Averages {
		for dtype, want := range byType {
			t.Run(decay+"/"+dtype, func(t *testing.T) {
				d, err := tensor.ParseDType(dtype)
				require.NoError(t, err)
				ps := start(d)
				opt := inTorch["adamw"](ps)
				share, err := strconv.ParseFloat(decay, 64)
				require.NoError(t, err)
				e := optim.NewEMA(opt, share)
				tol := map[tensor.DType]float64{tensor.Float64: 1e-12, tensor.Float32: 2e-6}[d]
				for step := range 20 {
					gradients(ps, step)
					require.NoError(t, opt.Step())
					if v, ok := want.Params[strconv.Itoa(step+1)]; ok {
						require.InDeltaSlice(t, v, averages(t, e, ps), tol, "after step %d", step+1)
					}
				}
				require.InDeltaSlice(t, f.Sets["adamw"][dtype].Params["20"], flat(ps), tol)
			})
		}
	}
}

// trainMixed does steps on parameters of two types, with averages from step from on, and calls do after each.
func trainMixed(t *testing.T, steps, from int, do func(step int, opt *optim.Optimizer, e *optim.EMA,
	ps nn.Params) (*optim.Optimizer, *optim.EMA, nn.Params)) (values, averaged []float64) {
	t.Helper()
	ps := mixed()
	opt := inTorch["adamw"](ps)
	var e *optim.EMA
	for step := range steps {
		if step == from {
			e = optim.NewEMA(opt, 0.8)
		}
		gradients(ps, step)
		require.NoError(t, opt.Step())
		opt, e, ps = do(step, opt, e, ps)
	}
	return flat(ps), averages(t, e, ps)
}

// Averages are in the state under their own names, and a run that resumes has the bits of one that was not interrupted.
func TestEMAResumes(t *testing.T) {
	for _, from := range []int{0, 5} {
		values, averaged := trainMixed(t, 14, from,
			func(_ int, opt *optim.Optimizer, e *optim.EMA, ps nn.Params) (*optim.Optimizer, *optim.EMA, nn.Params) {
				return opt, e, ps
			})
		again, averagedAgain := trainMixed(t, 14, from,
			func(step int, opt *optim.Optimizer, e *optim.EMA, ps nn.Params) (*optim.Optimizer, *optim.EMA, nn.Params) {
				if step != 7 {
					return opt, e, ps
				}
				saved := snapshot(opt.State())
				names := map[string]bool{}
				for _, x := range saved.Tensors {
					names[x.Name] = true
				}
				require.True(t, names["p0.ema"] && names["p3.ema"] && names["p3.master"], "%v", names)
				next := mixed()
				for i, p := range next {
					copy(p.Value.Bytes(), ps[i].Value.Bytes())
				}
				o := inTorch["adamw"](next)
				require.ErrorContains(t, o.SetState(saved), "unknown tensor p0.ema")
				a := optim.NewEMA(o, 0.8)
				require.NoError(t, o.SetState(saved))
				return o, a, next
			})
		require.Equal(t, values, again)
		require.Equal(t, averaged, averagedAgain)
		require.NotEqual(t, values, averaged)
	}
}

// Use restores every bit, also if the function fails or panics. For 16-bit parameters, the master is averaged, and then rounded.
func TestEMAUse(t *testing.T) {
	ps := mixed()
	opt := inTorch["adamw"](ps)
	e := optim.NewEMA(opt, 0.9)
	ps[3].Consume()
	for step := range 3 {
		gradients(ps, step)
		require.NoError(t, opt.Step())
		if step == 0 { // in which p3 has no gradient
			require.Equal(t, flat(ps), averages(t, e, ps))
		}
	}
	before := flat(ps)
	masters := snapshot(opt.State())
	broken := errors.New("broken")
	require.Equal(t, broken, e.Use(func() error { return broken }))
	require.Equal(t, before, flat(ps))
	require.Panics(t, func() { _ = e.Use(func() error { panic(broken) }) })
	require.Equal(t, before, flat(ps))
	require.NoError(t, e.Use(func() error {
		for _, x := range masters.Tensors {
			if x.Name == "p3.ema" {
				rounded := tensor.New(host, tensor.BFloat16, x.Tensor.Len())
				store(rounded, tensor.Floats(x.Tensor))
				require.Equal(t, tensor.Floats(rounded), tensor.Floats(ps[3].Value))
				require.NotEqual(t, before[len(before)-x.Tensor.Len():], tensor.Floats(ps[3].Value))
			}
		}
		require.ErrorContains(t, tensor.Try(func() { _ = opt.Step() }),
			"optim: Step inside EMA.Use: the parameters have their averages as values")
		require.ErrorContains(t, tensor.Try(func() { opt.State() }), "optim: State inside EMA.Use")
		require.ErrorContains(t, tensor.Try(func() { _ = opt.SetState(masters) }), "optim: SetState inside EMA.Use")
		return nil
	}))
	for i, x := range snapshot(opt.State()).Tensors {
		require.Equal(t, masters.Tensors[i].Tensor.Bytes(), x.Tensor.Bytes(), x.Name)
	}
	gradients(ps, 3)
	require.NoError(t, opt.Step())
	ps[3].Fill(ps[3].Value, 1, 0) // loaded without its master
	loaded := tensor.Floats(ps[3].Value)
	opt.Reload(ps[3:], nil)
	averages(t, e, ps)
	require.Equal(t, loaded, tensor.Floats(ps[3].Value))
}

// Averages that are made later begin with the current values.
func TestEMAOfATraining(t *testing.T) {
	ps := mixed()
	opt := inTorch["adamw"](ps)
	gradients(ps, 1)
	require.NoError(t, opt.Step())
	e := optim.NewEMA(opt, 0.75)
	before := flat(ps)
	require.Equal(t, before, averages(t, e, ps))
	gradients(ps, 2)
	require.NoError(t, opt.Step())
	want := flat(ps)
	for i, v := range before {
		want[i] = 0.75*v + 0.25*want[i]
	}
	require.InDeltaSlice(t, want, averages(t, e, ps), 4e-3)
	require.InDeltaSlice(t, want[:15], averages(t, e, ps)[:15], 1e-6)
}

// A Backward inside Use of something computed outside is an error, because the values differ.
func TestEMAChangesValues(t *testing.T) {
	p := one("p", tensor.Float64, []float64{1, 2}, nil)
	p.Consume()
	opt, tape := optim.NewSGD(nn.Params{p}, optim.SGDConfig{LR: 1}), tensor.NewTape(host)
	e := optim.NewEMA(opt, 0.5)
	tape.Backward(tape.Use(p).Square().Sum())
	require.NoError(t, opt.Step())
	loss := tape.Use(p).Square().Sum()
	err := tensor.Try(func() {
		_ = e.Use(func() error { tape.Backward(loss); return nil })
	})
	require.ErrorContains(t, err, "changed")
}

// A step allocates nothing on the heap and on the device.
func TestEMAAllocatesNothing(t *testing.T) {
	ps := mixed()
	opt := inTorch["adamw"](ps)
	optim.NewEMA(opt, 0.9)
	step := func() {
		for _, p := range ps {
			p.FillGrad()
		}
		require.NoError(t, opt.Step())
	}
	step()
	assert.Zero(t, testing.AllocsPerRun(20, step))
}

// A step that a Scaler skips does not change the averages.
func TestEMAWithAScaler(t *testing.T) {
	p := tensor.NewParam(tensor.Constant(1), 3)
	p.Make(host, tensor.Float16, 0)
	s := &optim.Scaler{Scale: 1 << 30}
	opt, tape := optim.NewSGD(nn.Params{p}, optim.SGDConfig{LR: 0.25, Scaler: s}), tensor.NewTape(host)
	e := optim.NewEMA(opt, 0.5)
	var want float64
	for step := range 24 {
		tape.Backward(tape.Use(p).Sum(), tensor.Scale(s.Scale))
		done := opt.Steps()
		require.NoError(t, opt.Step())
		tape.Reset()
		switch {
		case opt.Steps() == done:
			require.Less(t, step, 20)
		case done == 0:
			want = tensor.Floats(p.Value)[0]
		default:
			want += 0.5 * (tensor.Floats(p.Value)[0] - want)
		}
		if opt.Steps() > 0 {
			require.InDelta(t, want, averages(t, e, nn.Params{p})[0], 1e-3)
		}
	}
	require.Positive(t, opt.Steps())
	require.Less(t, opt.Steps(), 24)
}

// Devices have the CPU's averages, also in captured steps. Making averages after a step was captured is an error: the replays would not
// update them.
func TestEMAOnDevices(t *testing.T) {
	train := func(dev tensor.Device, captures bool, late bool) (v []float64, err error) {
		a, b := tensor.NewParam(tensor.UniformInit(-1, 1), 300), tensor.NewParam(tensor.UniformInit(-1, 1), 70)
		a.SetName("a")
		b.SetName("b")
		a.Make(dev, tensor.Float64, 3)
		b.Make(dev, tensor.BFloat16, 4)
		opt, tape := optim.NewAdamW(nn.Params{a, b}, optim.AdamWConfig{LR: 0.1}), tensor.NewTape(dev)
		defer tape.Close()
		var e *optim.EMA
		if !late {
			e = optim.NewEMA(opt, 0.9)
		}
		step := func(...tensor.Tensor) error {
			defer tape.Reset()
			tape.Backward(tape.Use(a).Square().Sum().Cast(tensor.Float32).Add(tape.Use(b).Square().Sum().Cast(tensor.Float32)))
			return opt.Step()
		}
		if captures {
			s := capture.New(dev, step)
			defer s.Close()
			step = s.Run
		}
		for i := range 9 {
			if late && i == 6 {
				e = optim.NewEMA(opt, 0.9)
			}
			if failed := tensor.Try(func() { err = step() }); failed != nil {
				return nil, failed
			}
			if err != nil {
				return nil, err
			}
			if i == 5 && !late { // between replays
				require.NoError(t, e.Use(func() error { return nil }))
			}
		}
		return averages(t, e, nn.Params{a, b}), nil
	}
	host := cpu.New(1)
	defer host.Close()
	want, err := train(host, false, false)
	require.NoError(t, err)
	got, err := train(tensortest.NewRemote(t, 1), false, false)
	require.NoError(t, err)
	require.InDeltaSlice(t, want, got, 1e-12)
	emu.Start(t, emu.Config{Devices: 1, Lazy: true, Reverse: true})
	gpu, err := cuda.NewDevice(0)
	require.NoError(t, err)
	defer func() { assert.NoError(t, gpu.Close()) }()
	for _, captures := range []bool{false, true} {
		got, err = train(gpu, captures, false)
		require.NoError(t, err)
		require.InDeltaSlice(t, want, got, 1e-9)
	}
	_, err = train(gpu, true, true)
	require.ErrorContains(t, err, "NewEMA after the step was captured: replays would not average")
}
