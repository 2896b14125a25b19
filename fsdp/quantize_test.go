package fsdp_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/tensor"
)

// looked is a layer of n parameters that keeps the values that it was last used with.
type looked struct {
	W    *tensor.Param
	seen []float64
}

func newLooked(n int) *looked { return &looked{W: tensor.NewParam(tensor.NormalInit(0, 1), n)} }

func (l *looked) Forward(x tensor.Tensor) tensor.Tensor {
	l.seen = tensor.Floats(x.Tape().Use(l.W))
	return x
}

// rounded is the simplest quantization: each block of 256 in steps of its largest magnitude divided by top.
func rounded(x []float64, top float64) []float64 {
	y := make([]float64, len(x))
	for i := range x {
		block := x[i/256*256 : min(i/256*256+256, len(x))]
		most := 0.0
		for _, v := range block {
			most = math.Max(most, math.Abs(v))
		}
		if step := float64(float32(most / top)); step > 0 {
			y[i] = math.RoundToEven(x[i]/step) * step
		}
	}
	return y
}

// All ranks use the same values: of each rank's part those of the naive quantization. The exact ones stay with the optimizer. The short
// form has one size in all types, and some in float64.
func TestGatheredCodes(t *testing.T) {
	for _, n := range []int{1, 3, 255, 256, 257, 1500} { // some ranks have no part; blocks are odd
		for _, c := range []fsdp.Config{{DType: tensor.Float64}, {}, {Stage: 1}, {Compute: tensor.BFloat16}, {OncePerStep: true}} {
			if (n != 1500 && (n%256 > 3 || c.DType == 0)) != reliability.Long(t) {
				continue
			}
			t.Run(fmt.Sprintf("%d %v %v %d %v", n, c.DType, c.Compute, c.Stage, c.OncePerStep), func(t *testing.T) {
				require.NoError(t, disttest.OnRanks(4, func(r *dist.Rank) error {
					return checkCodes(t, r, c, newLooked(n))
				}))
			})
		}
	}
}

func TestLongGatheredCodes(t *testing.T) { reliability.AsLong(t, TestGatheredCodes) }

func checkCodes(t *testing.T, r *dist.Rank, c fsdp.Config, l *looked) error {
	c.Shard, c.Seed, c.Weights = r.World, 3, fsdp.Int8
	s := fsdp.New(c)
	s.Unit(l)
	disttest.Must(s.Attach(l))
	for range 2 {
		tape := tensor.NewTape(r.Device, tensor.NoGrad())
		l.Forward(tape.Input(tensor.FromSlice([]float32{1}, 1)))
		exact := tensor.Floats(disttest.Must(s.Full(l.W)))
		if c.Compute == tensor.BFloat16 {
			exact = narrowed(tape, exact)
		}
		var want []float64
		for rank := range 4 {
			lo, hi := layout.Share(len(exact), rank, 4)
			want = append(want, rounded(exact[lo:hi], 127)...)
		}
		if c.Compute == tensor.BFloat16 {
			want = narrowed(tape, want)
		} else if c.DType != tensor.Float64 {
			want = tensor.Floats(tensor.FromSlice(want, len(want)).Cast(tensor.Float32))
		}
		require.Equal(t, want, l.seen)
		tape.Reset()
		tensor.NormalInit(1, 2).Fill(l.W.Local, uint64(r.World.Rank()), 0) // also after a change
		l.W.Changed()
	}
	return nil
}

func narrowed(tape *tensor.Tape, x []float64) []float64 {
	return tensor.Floats(tape.Input(tensor.FromSlice(x, len(x))).Cast(tensor.BFloat16))
}

// Ranks train with rounded values nearly as with exact ones, in all stages, with all kinds of units, frozen parts, microbatches and odd
// sizes; several runs are equal to the bit. The short form has three of these, and repeats two.
func TestTrainingWithCodes(t *testing.T) {
	for name, j := range map[string]job{
		"stage 1":  {cfg: fsdp.Config{Stage: 1}},
		"stage 2":  {cfg: fsdp.Config{Stage: 2}},
		"stage 3":  {cfg: fsdp.Config{}},
		"once":     {cfg: fsdp.Config{OncePerStep: true}},
		"offload":  {offload: true},
		"bfloat16": {cfg: fsdp.Config{Compute: tensor.BFloat16}},
		"copies":   {training: training{Mesh: "dp=2,fsdp=2"}},
		"frozen":   {model: newFrozen},
		"host":     {training: training{Mesh: "dp=2,host=2,gpu=2"}, near: true},
	} {
		if !reliability.Long(t) && name != "stage 3" && name != "bfloat16" && name != "host" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			if j.Mesh == "" {
				j.Ranks = 4
			}
			if reliability.Long(t) {
				j.Steps = 60
			}
			want := j.run(t)
			j.cfg.Weights = fsdp.Int8
			got := j.run(t)
			requireNear(t, want.Losses, got.Losses, 0.03)
			require.NotEqual(t, want.Losses, got.Losses)
			if reliability.Long(t) || name != "bfloat16" {
				require.Equal(t, got, j.run(t))
			}
			for i := 9; i < len(want.Losses); i += 10 {
				t.Logf("step %d: %.4f, exact %.4f", i, got.Losses[i], want.Losses[i])
			}
		})
	}
}

func TestLongTrainingWithCodes(t *testing.T) { reliability.AsLong(t, TestTrainingWithCodes) }

// What is finite stays so, and what is not makes its block NaN.
func TestCodesOfLargeValues(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		dtype    tensor.DType
		in, want []float64
	}{
		{tensor.Float32, []float64{math.MaxFloat32, -math.MaxFloat32, 0}, []float64{math.MaxFloat32, -math.MaxFloat32, 0}},
		{tensor.Float64, []float64{4e40, -1e39, 0}, []float64{4e40, -1e39, 0}},
		{tensor.Float64, []float64{1e42, 1, 0}, []float64{nan, nan, nan}},
		{tensor.Float32, []float64{math.Inf(-1), 1, 0}, []float64{nan, nan, nan}},
		{tensor.Float32, []float64{1, nan, 2}, []float64{nan, nan, nan}},
		{tensor.Float32, []float64{1e-37, -1e-45, 0}, []float64{0, 0, 0}},
	} {
		require.NoError(t, disttest.OnRanks(1, func(r *dist.Rank) error {
			l := newLooked(len(c.in))
			s := fsdp.New(fsdp.Config{Shard: r.World, DType: c.dtype, Weights: fsdp.Int8})
			s.Unit(l)
			disttest.Must(s.Attach(l))
			tensor.Copy(l.W.Local, tensor.FromSlice(c.in, len(c.in)).Cast(c.dtype))
			l.W.Changed()
			l.Forward(tensor.NewTape(r.Device, tensor.NoGrad()).Input(tensor.FromSlice([]float32{1}, 1)))
			for i, want := range c.want {
				if got := l.seen[i]; math.Abs(got-want) > math.Abs(c.in[0])/200 || math.IsNaN(got) != math.IsNaN(want) {
					t.Errorf("%v of %v: %g, want %g", c.dtype, c.in, got, want)
				}
			}
			return nil
		}))
	}
}

// GPUs train with rounded values and gradients as host memory does. TestCodesOfKernels has their kernels. The short form has two ranks.
func TestCodesOnDevices(t *testing.T) {
	j := job{training: training{Mesh: "dp=1,host=2,gpu=2", Steps: 10}, near: true, model: forDevices(t),
		cfg: fsdp.Config{DType: tensor.Float64, Weights: fsdp.Int8, Grads: fsdp.Int4}}
	if !reliability.Long(t) {
		j.Steps = 4
	}
	if !unabridged(t) {
		j.Mesh = "dp=1,host=2,gpu=1"
	}
	want := j.run(t)
	disttest.OnEach(t, turn(t, disttest.GPUs(), "one GPU"), 4, func(t *testing.T, launch disttest.Launcher) {
		j.On = launch
		disttest.RequireEqual(t, want, j.run(t), 1e-10)
	})
}

func TestLongCodesOnDevices(t *testing.T) { reliability.AsLong(t, TestCodesOnDevices) }
