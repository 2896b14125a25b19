package optim_test

import (
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/capture"
	"github.com/ringo-ml/ringo/tensor/cuda"
	"github.com/ringo-ml/ringo/tensor/tensortest"
)

// valuesOf returns everything that a step changes.
func valuesOf(ps nn.Params, o *optim.Optimizer) (all [][]float64) {
	for _, p := range ps {
		all = append(all, tensor.Floats(p.Value))
	}
	for _, x := range o.State().Tensors {
		all = append(all, tensor.Floats(x.Tensor))
	}
	return all
}

// A step with a gradient that is not finite is an error that names the parameter, and changes nothing: in each type, clipped or not.
func TestStop(t *testing.T) {
	for _, d := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16, tensor.Float16} {
		for _, bad := range []float64{math.Inf(-1), math.NaN()} {
			for _, clip := range []float64{0, 1, math.Inf(1)} {
				a, b := one("a", d, []float64{1, 2}, []float64{3, 4}), one("b", d, []float64{1, 2}, []float64{3, 4})
				ps := nn.Params{a, b}
				o := optim.NewAdamW(ps, optim.AdamWConfig{LR: 0.1, WeightDecay: 0.1, Clip: clip})
				require.NoError(t, o.Step())
				before := valuesOf(ps, o)
				a.FillGrad()
				b.FillGrad()
				store(b.Grad, []float64{1, bad})
				var told *optim.NonfiniteError
				o.OnNonfinite(func(e *optim.NonfiniteError) { told, e.About = e, "found out" })
				var e *optim.NonfiniteError
				require.ErrorAs(t, o.Step(), &e)
				require.Same(t, told, e)
				require.Equal(t, [2]any{2, "b"}, [2]any{e.Step, e.Param})
				require.EqualError(t, e, fmt.Sprintf("optim: step 2: the norm of the gradients is %v; "+
					"the first one that is not finite is that of b; found out", math.Abs(bad)))
				require.Equal(t, before, valuesOf(ps, o))
				require.Equal(t, 1, o.Steps())
			}
		}
	}
}

// A loss that is not finite is noticed, although no gradient shows it.
func TestStopForTheLoss(t *testing.T) {
	p := one("a", tensor.Float32, []float64{1, 2}, nil)
	p.Consume()
	o, tape := optim.NewSGD(nn.Params{p}, optim.SGDConfig{LR: 1}), tensor.NewTape(host)
	tape.Backward(tape.Use(p).Sum().Affine(1, math.Inf(1)))
	require.ErrorContains(t, o.Step(), "optim: step 1: the norm of the gradients is NaN; the first one that is not finite is that of a")
}

// Skip leaves out so many steps one after another, counts them, and counts anew after a good step.
func TestSkip(t *testing.T) {
	p := one("a", tensor.Float64, []float64{1}, []float64{1})
	o := optim.NewAdamW(nn.Params{p}, optim.AdamWConfig{LR: 0.1, Nonfinite: optim.Skip(2)})
	var rows []int
	o.OnNonfinite(func(e *optim.NonfiniteError) { rows = append(rows, e.Skipped) })
	want := one("a", tensor.Float64, []float64{1}, []float64{1})
	good := optim.NewAdamW(nn.Params{want}, optim.AdamWConfig{LR: 0.1})
	step := func(g float64) error {
		p.FillGrad()
		store(p.Grad, []float64{g})
		return o.Step()
	}
	for _, g := range []float64{math.NaN(), 1, math.Inf(1), math.NaN(), 1, math.NaN(), math.NaN()} {
		require.NoError(t, step(g))
		require.False(t, p.HasGrad())
		if g == 1 {
			want.FillGrad()
			require.NoError(t, good.Step())
		}
		require.Equal(t, want.Value.Item(), p.Value.Item())
	}
	require.ErrorContains(t, step(math.NaN()), "optim: step 3: the norm of the gradients is NaN")
	require.Equal(t, []int{1, 1, 2, 1, 2, 0}, rows)
	require.Equal(t, [2]int{2, 5}, [2]int{o.Steps(), o.Skipped()})
	require.Equal(t, valuesOf(nn.Params{want}, good), valuesOf(nn.Params{p}, o))
}

// All ranks stop at the step at which the part of one of them is not finite.
func TestStopOnRanks(t *testing.T) {
	const n = 3
	group, all := &ranks{n: n}, cut(n)
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() {
			o := optim.NewAdamW(all[r], optim.AdamWConfig{LR: 0.1, Norm: numbered{group, r}})
			for step := range 5 {
				shardGradients(all[r], step)
				if step == 4 && r == 2 {
					tensor.Data[float64](all[r][0].Grad.ToLocal())[0] = math.NaN()
				}
				err := o.Step()
				if step < 4 {
					assert.NoError(t, err)
					continue
				}
				var e *optim.NonfiniteError
				assert.ErrorAs(t, err, &e)
				assert.Equal(t, 5, e.Step)
				assert.Equal(t, r == 2, e.Param != "", "only the rank that has it knows the parameter")
				assert.Equal(t, [2]bool{true, false}, [2]bool{o.Alike(n, 1), o.Alike(n+1, 1)})
			}
		})
	}
	wg.Wait()
}

// late trains on a device with memory of its own, with NaN in the third step, and requires that this step and later ones change nothing,
// and that the error comes when it is asked for. With captured, steps are recorded and replayed.
func late(t *testing.T, dev tensor.Device, captured bool, rule func(nn.Params) *optim.Optimizer) {
	a, b := tensor.NewParam(tensor.Constant(1), 3), tensor.NewParam(tensor.Constant(1), 3)
	for i, p := range []*tensor.Param{a, b} {
		p.SetName([]string{"a", "b"}[i])
		p.Make(dev, tensor.Float32, 0)
	}
	ps := nn.Params{a, b}
	o, tape := rule(ps), tensor.NewTape(dev)
	defer tape.Close()
	one := func(in ...tensor.Tensor) error {
		tape.Backward(tape.Use(a).Sum().Add(tape.Use(b).Mul(tape.Input(in[0])).Sum()))
		err := o.Step()
		tape.Reset()
		return err
	}
	step := one
	if captured {
		c := capture.New(dev, one)
		defer func() { assert.NoError(t, c.Close()) }()
		step = c.Run
	}
	const bad = 6
	var before [][]float64
	for i := 1; i < 10; i++ {
		x := tensor.FromSlice([]float32{1, 2, 3}, 3)
		if i == bad {
			before = valuesOf(ps, o)
			require.NoError(t, o.CheckNonfinite())
			tensor.Data[float32](x)[1] = float32(math.NaN())
		}
		require.NoError(t, step(tensor.ToDevice(dev, x)))
	}
	var e *optim.NonfiniteError
	require.ErrorAs(t, o.CheckNonfinite(), &e)
	require.Equal(t, [3]any{bad, 3, "a"}, [3]any{e.Step, e.Late, e.Param}, "the loss was NaN")
	require.Equal(t, before, valuesOf(ps, o))
	require.NoError(t, o.SetState(o.State()))
	require.NoError(t, o.CheckNonfinite(), "the state is another one")
	require.NoError(t, step(tensor.ToDevice(dev, tensor.FromSlice([]float32{1, 2, 3}, 3))))
	require.NotEqual(t, before, valuesOf(ps, o))
}

// On a device with memory of its own nobody waits for the norm: the device leaves out the step, and those after it.
func TestStopOnDevices(t *testing.T) {
	adamW := func(p nn.Params) *optim.Optimizer {
		return optim.NewAdamW(p, optim.AdamWConfig{LR: 0.1, WeightDecay: 0.1})
	}
	adafactor := func(p nn.Params) *optim.Optimizer {
		return optim.NewAdafactor(p, optim.AdafactorConfig{LR: 0.1, WeightDecay: 0.1})
	}
	late(t, tensortest.NewRemote(t, 1), false, adamW)
	emu.Start(t, emu.Config{Lazy: true})
	dev, err := cuda.NewDevice(0)
	require.NoError(t, err)
	defer func() { assert.NoError(t, dev.Close()) }()
	late(t, dev, false, adamW)
	late(t, dev, true, adamW)
	late(t, dev, false, adafactor)
}
