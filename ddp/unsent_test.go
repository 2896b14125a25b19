package ddp_test

import (
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// pair is a model, and another one of the same shapes that nobody attached.
type pair struct {
	r       *dist.Rank
	model   nn.Sequential
	unwired nn.Sequential
	params  nn.Params
	tape    *tensor.Tape
	opt     *optim.Optimizer
}

func newLayers() nn.Sequential { return nn.Sequential{nn.NewLinear(3, 4), nn.Tanh, nn.NewLinear(4, 2)} }

// loss is that of this rank's rows. Without rows, types do not see that ranks have different data.
func (p *pair) loss(model nn.Sequential, rows bool) tensor.Tensor {
	me := p.r.World.Rank()
	x := tensor.FromSlice([]float32{1, float32(me), -2}, 1, 3)
	if rows {
		x = x.WithRows(p.r.World.Rows(me, p.r.World.Size()))
	}
	return tensor.GlobalMean(model.Forward(p.tape.Input(x)).Square())
}

func sgdOf(ps nn.Params) *optim.Optimizer { return optim.NewSGD(ps, optim.SGDConfig{LR: 0.1}) }

func (p *pair) attach() (err error) {
	if p.params, err = ddp.Attach(p.r.World, p.model, ddp.Config{Seed: 1, BucketBytes: 20}); err == nil {
		p.opt = sgdOf(p.params)
	}
	return err
}

// unsent are programs of two steps, and what is wrong with them.
var unsent = map[string]struct {
	step  func(p *pair, step int) error
	after bool // the model is attached by step
	want  string
}{
	"right": {step: func(p *pair, _ int) error {
		p.tape.Backward(p.loss(p.model, true))
		return p.opt.Step()
	}},
	"two Backwards": {step: func(p *pair, _ int) error {
		p.tape.Backward(p.loss(p.model, true), tensor.More())
		p.tape.Backward(p.loss(p.model, true))
		return p.opt.Step()
	}},
	"attached after the forward pass": {after: true, want: "its gradient is not summed over the ranks yet: ddp did not get the end",
		step: func(p *pair, step int) error {
			if step == 0 {
				nn.Init(p.model, p.r.Device, tensor.Float32, 1)
			}
			loss := p.loss(p.model, false)
			if step == 0 {
				if err := p.attach(); err != nil {
					return err
				}
			}
			p.tape.Backward(loss)
			return p.opt.Step()
		}},
	"the loss of a model that was not attached": {want: "optim.Step 0.weight float32[4,3]: neither it nor another parameter",
		step: func(p *pair, _ int) error {
			p.tape.Backward(p.loss(p.unwired, false))
			return p.opt.Step()
		}},
	"the same, with rows": {want: "attach the parameter with ddp or fsdp", step: func(p *pair, _ int) error {
		p.tape.Backward(p.loss(p.unwired, true))
		return p.opt.Step()
	}},
	"the optimizer of another model": {want: "was not consumed: between two Backwards, call Step of an optimizer that has it",
		step: func(p *pair, step int) error {
			if step == 0 {
				p.opt = sgdOf(nn.ParamsOf(p.unwired))
				for _, q := range nn.ParamsOf(p.unwired) { // or Step would find no gradient at all
					q.Grad = tensor.New(p.r.Device, tensor.Float32, q.Dims()...)
					q.FillGrad()
				}
			}
			p.tape.Backward(p.loss(p.model, true))
			return p.opt.Step()
		}},
	"an optimizer of half of the parameters": {want: "was not consumed", step: func(p *pair, step int) error {
		if step == 0 {
			p.opt = sgdOf(p.params[2:])
		}
		p.tape.Backward(p.loss(p.model, true))
		return p.opt.Step()
	}},
	"a Backward that failed": {want: "is not summed over the ranks yet", step: func(p *pair, _ int) error {
		x := p.tape.Input(tensor.FromSlice([]float32{1, 2, 3}, 1, 3).WithRows(p.r.World.Rows(p.r.World.Rank(), p.r.World.Size())))
		y := p.tape.Apply(fails{}, p.model[:1].Forward(x))
		if err := tensor.Try(func() { p.tape.Backward(tensor.GlobalMean(p.model[1:].Forward(y))) }); err == nil {
			return io.ErrUnexpectedEOF
		}
		return p.opt.Step()
	}},
	"weight gradients that are still put off": {want: "neither it nor another parameter of this optimizer has a gradient",
		step: func(p *pair, _ int) error {
			p.tape.Backward(p.loss(p.model, true), tensor.DeferWeights())
			return p.opt.Step()
		}},
	"a Value that was replaced": {want: "optim.Step 0.weight float32[4,3]: its Value, which Forward uses, is other memory",
		step: func(p *pair, _ int) error {
			w := p.params[0]
			w.Value = tensor.New(p.r.Device, tensor.Float32, w.Dims()...)
			p.tape.Backward(p.loss(p.model, true))
			return p.opt.Step()
		}},
}

// A trained gradient that was never summed does not reach an optimizer: the step is refused, and names the parameter and what is wrong.
func TestGradientsThatWereNotSent(t *testing.T) {
	for name, c := range unsent {
		err := disttest.OnRanks(2, func(r *dist.Rank) error {
			p := &pair{r: r, model: newLayers(), unwired: newLayers(), tape: tensor.NewTape(r.Device)}
			nn.Init(p.unwired, r.Device, tensor.Float32, 1)
			if !c.after {
				disttest.OK(p.attach())
			}
			for step := range 2 {
				disttest.OK(c.step(p, step))
				p.tape.Reset()
			}
			return nil
		})
		if c.want == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, c.want, name)
			require.ErrorContains(t, err, "rank ", name)
		}
	}
}

// A step on gradients that nobody summed yet, because the last Backward said More, is refused: replicas would drift. A parameter
// that only an earlier microbatch used is summed like the others.
func TestStepBeforeTheLastMicrobatchIsRefused(t *testing.T) {
	for name, attach := range map[string]attacher{"Attach": ddp.Attach, "Naive": ddp.Naive} {
		require.NoError(t, disttest.OnRanks(2, func(r *dist.Rank) error {
			model := nn.Sequential{nn.NewLinear(2, 3), nn.NewLinear(3, 1)}
			params := disttest.Must(attach(r.World, model, ddp.Config{DType: tensor.Float64, Seed: 1}))
			opt, tape := optim.NewSGD(params, optim.SGDConfig{LR: 0.1}), tensor.NewTape(r.Device)
			x := tensor.FromSlice([]float64{1, float64(r.World.Rank())}, 1, 2)
			first := func() tensor.Tensor { return model[0].Forward(tape.Input(x.WithRows(r.World.Rows(r.World.Rank(), 2)))) }
			tape.Backward(model[1].Forward(first()).Sum(), tensor.More())
			err := tensor.Try(func() { _ = opt.Step() })
			assert.ErrorContains(t, err, "not summed over the ranks yet", name)
			assert.ErrorContains(t, err, "tensor.More", name)
			tape.Reset()
			tape.Backward(first().Sum())
			return opt.Step()
		}), name)
	}
}

// What was frozen at Attach is in no bucket: its gradient, once it is unfrozen, would stay this rank's own.
func TestUnfrozenAfterAttachIsRefused(t *testing.T) {
	require.NoError(t, disttest.OnRanks(2, func(r *dist.Rank) error {
		model := nn.Sequential{nn.NewLinear(2, 3), nn.NewLinear(3, 1)}
		late := model[0].(*nn.Linear).W
		late.Freeze()
		disttest.Must(ddp.Attach(r.World, model, ddp.Config{DType: tensor.Float64, Seed: 1}))
		late.Unfreeze()
		tape := tensor.NewTape(r.Device)
		x := tensor.FromSlice([]float64{1, float64(r.World.Rank())}, 1, 2).WithRows(r.World.Rows(r.World.Rank(), 2))
		err := tensor.Try(func() { tape.Backward(model.Forward(tape.Input(x)).Sum()) })
		assert.ErrorContains(t, err, "0.weight was frozen at Attach, and unfrozen since")
		return nil
	}))
}
