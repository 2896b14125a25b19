package ckpt_test

import (
	"context"
	"io"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/ckpt/inspect"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// A state of the optimizer that is not finite is refused by name, of every optimizer, type and kind, also if one rank alone has it. If it
// is saved all the same, verify says it. The short form has each optimizer, sharded ones, and masters.
func TestNonfiniteState(t *testing.T) {
	adamw := func(p nn.Params, n optim.Norm) *optim.Optimizer { return optim.NewAdamW(p, optim.AdamWConfig{Norm: n}) }
	for name, c := range map[string]struct {
		ranks int // more than one: fsdp
		dtype tensor.DType
		state string // whose last element on the last rank becomes
		value float64
		opt   maker
	}{
		"AdamW, NaN":                 {1, tensor.Float32, "exp_avg", math.NaN(), adamw},
		"AdamW, infinite":            {1, tensor.Float32, "exp_avg_sq", math.Inf(1), adamw},
		"AdamW, float64":             {1, tensor.Float64, "exp_avg", math.Inf(-1), adamw},
		"AdamW, moments of bfloat16": {1, tensor.BFloat16, "exp_avg_sq", math.Inf(1), adamw},
		"AdamW, masters of bfloat16": {1, tensor.BFloat16, "master", math.NaN(), adamw},
		"AdamW, masters of float16":  {1, tensor.Float16, "master", math.Inf(1), adamw},
		"AdamW, fsdp":                {2, tensor.Float32, "exp_avg_sq", math.Inf(1), adamw},
		"AdamW, fsdp, three ranks":   {3, tensor.Float64, "exp_avg", math.NaN(), adamw},
		"SGD": {1, tensor.Float32, "momentum_buffer", math.Inf(-1), func(p nn.Params, n optim.Norm) *optim.Optimizer {
			return optim.NewSGD(p, optim.SGDConfig{LR: 0.1, Momentum: 0.9, Norm: n})
		}},
		"an average": {1, tensor.Float32, "ema", math.NaN(), func(p nn.Params, n optim.Norm) *optim.Optimizer {
			opt := adamw(p, n)
			optim.NewEMA(opt, 0.9)
			return opt
		}},
	} {
		short := !strings.HasPrefix(name, "AdamW, ") || strings.HasPrefix(name, "AdamW, fsdp") || name == "AdamW, masters of bfloat16"
		if !short && !reliability.Long(t) {
			continue
		}
		dir := t.TempDir()
		save := func(allow bool) error {
			return dist.Run(t.Context(), dist.Config{Ranks: c.ranks, Threads: 1, Log: io.Discard}, func(ctx context.Context, r *dist.Rank) error {
				params, opt, err := trained(ctx, r, c.dtype, c.opt)
				if err != nil {
					return err
				}
				for _, s := range opt.State().Tensors {
					if s.Name == "weight."+c.state && r.World.Rank() == r.World.Size()-1 {
						spoil(s.Tensor, c.value)
					}
				}
				s := ckpt.NewSaver(r.World, dir, ckpt.Config{})
				return s.Save(ctx, ckpt.State{Step: 1, Params: params, Optimizer: opt, Nonfinite: allow})
			})
		}
		require.ErrorContains(t, save(false), "weight."+c.state+" is not finite (State.Nonfinite would save it)", name)
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range left {
			require.False(t, strings.HasPrefix(e.Name(), "step-"), "%s: %s", name, e.Name())
		}
		require.NoError(t, save(true), name)
		v, err := inspect.Verify(t.Context(), dir+"/step-00000001", inspect.VerifyConfig{})
		require.NoError(t, err)
		require.Equal(t, int64(1), v.NaN+v.Inf, name)
		if math.IsNaN(c.value) {
			require.Contains(t, strings.Join(v.Errors, "\n"), `weight.`+c.state+`": 1 elements are NaN`, name)
		}
	}
}

func TestLongNonfiniteState(t *testing.T) { reliability.AsLong(t, TestNonfiniteState) }

type maker = func(nn.Params, optim.Norm) *optim.Optimizer

// trained does a step of a Linear, with fsdp if there are several ranks.
func trained(ctx context.Context, r *dist.Rank, d tensor.DType, make maker) (nn.Params, *optim.Optimizer, error) {
	model := nn.NewLinear(4, 3)
	var params nn.Params
	var norm optim.Norm
	if r.World.Size() == 1 {
		params = nn.Init(model, r.Device, d, 1)
	} else {
		s := fsdp.New(fsdp.Config{Shard: r.World, DType: d})
		s.Unit(model)
		var err error
		if params, err = s.Attach(model); err != nil {
			return nil, nil, err
		}
		norm = s
	}
	x := tensor.New(r.Device, d, 6, 4)
	set, err := data.NewTensors(x, x)
	if err != nil {
		return nil, nil, err
	}
	opt, tape, loader := make(params, norm), tensor.NewTape(r.Device), data.NewLoader(set, data.Config{Batch: 6, Sharder: r.World})
	for _, b := range loader.Epoch(ctx, 0) {
		tape.Backward(model.Forward(tape.Input(b.X)).Square().Sum())
		if err := opt.Step(); err != nil {
			return nil, nil, err
		}
	}
	return params, opt, loader.Err()
}

// spoil sets the last element.
func spoil(x tensor.Tensor, v float64) {
	if x.DType() == tensor.Float64 {
		tensor.Data[float64](x)[x.Len()-1] = v
	} else {
		tensor.Data[float32](x)[x.Len()-1] = float32(v)
	}
}
