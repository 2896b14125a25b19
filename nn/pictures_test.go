package nn_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// picture is one result of PyTorch in testdata/pictures.json.
type picture struct {
	Dims    []int                `json:"dims"`
	Y       []float64            `json:"y"`
	Grads   map[string][]float64 `json:"grads"`
	Buffers map[string][]float64 `json:"buffers"`
}

// pictureLayers are what pictures.py computes under the same name.
func pictureLayers() map[string]nn.Layer {
	conv := func(in, out, size int, o ops.Conv2dOptions) nn.Layer { return nn.NewConv2d(in, out, size, o) }
	noBias := nn.NewConv2d(3, 4, 2, ops.Conv2dOptions{})
	noBias.B = nil
	plain := nn.NewBatchNorm2d(2)
	plain.W, plain.B = nil, nil
	bare := nn.NewConv1d(1, 2, 1, ops.Conv1dOptions{})
	bare.B = nil
	plainTransposed := nn.NewConvTranspose2d(2, 1, 2, ops.ConvTranspose2dOptions{})
	plainTransposed.B = nil
	overlap := ops.Pool2dOptions{Kernel: [2]int{3, 2}, Stride: [2]int{1, 2}, Padding: [2]int{1, 1}}
	return map[string]nn.Layer{
		"conv2d":          conv(3, 4, 3, ops.Conv2dOptions{}),
		"conv2d_nobias":   noBias,
		"conv2d_padding":  conv(2, 3, 3, ops.Conv2dOptions{Padding: [2]int{1, 1}}),
		"conv2d_one":      conv(5, 2, 1, ops.Conv2dOptions{}),
		"conv2d_stride":   conv(3, 2, 3, ops.Conv2dOptions{Stride: [2]int{2, 3}, Padding: [2]int{0, 2}}),
		"conv2d_dilation": conv(2, 3, 3, ops.Conv2dOptions{Padding: [2]int{3, 1}, Dilation: [2]int{2, 1}}),
		"conv2d_groups":   conv(4, 6, 3, ops.Conv2dOptions{Padding: [2]int{1, 1}, Groups: 2}),
		"conv2d_depthwise": conv(3, 3, 3, ops.Conv2dOptions{Stride: [2]int{2, 2}, Padding: [2]int{1, 2}, Dilation: [2]int{1, 2},
			Groups: 3}),
		"conv1d":                  nn.NewConv1d(3, 4, 3, ops.Conv1dOptions{}),
		"conv1d_options":          nn.NewConv1d(4, 6, 3, ops.Conv1dOptions{Stride: 2, Padding: 3, Dilation: 2, Groups: 2}),
		"conv1d_nobias":           bare,
		"conv_transpose2d":        nn.NewConvTranspose2d(3, 4, 3, ops.ConvTranspose2dOptions{}),
		"conv_transpose2d_nobias": plainTransposed,
		"conv_transpose2d_stride": nn.NewConvTranspose2d(2, 3, 4, ops.ConvTranspose2dOptions{
			Conv2dOptions: ops.Conv2dOptions{Stride: [2]int{2, 3}, Padding: [2]int{1, 0}}, OutputPadding: [2]int{1, 2}}),
		"conv_transpose2d_groups": nn.NewConvTranspose2d(4, 6, 3, ops.ConvTranspose2dOptions{Conv2dOptions: ops.Conv2dOptions{
			Stride: [2]int{2, 2}, Padding: [2]int{2, 1}, Dilation: [2]int{2, 1}, Groups: 2}}),
		"upsample":           nn.NewUpsample(2, ops.Nearest),
		"upsample_bilinear":  nn.NewUpsample(3, ops.Bilinear),
		"max_pool2d":         nn.NewMaxPool2d(2),
		"max_pool2d_overlap": &nn.MaxPool2d{Options: overlap},
		"avg_pool2d":         nn.NewAvgPool2d(2),
		"avg_pool2d_overlap": &nn.AvgPool2d{Options: overlap},
		"batch_norm":         nn.NewBatchNorm2d(4),
		"batch_norm_plain":   plain,
		"batch_norm_eval":    nn.NewBatchNorm2d(4),
		"group_norm":         nn.NewGroupNorm(3, 6),
		"group_norm_one":     nn.NewGroupNorm(1, 3),
		"network": nn.Sequential{conv(1, 4, 3, ops.Conv2dOptions{Padding: [2]int{1, 1}}), nn.NewBatchNorm2d(4), nn.ReLU, nn.NewMaxPool2d(2),
			conv(4, 6, 3, ops.Conv2dOptions{}), nn.NewGroupNorm(2, 6), nn.SiLU, nn.NewAvgPool2d(2), nn.Flatten{}, nn.NewLinear(6, 3)},
	}
}

func TestPicturesMatchTorch(t *testing.T) {
	b, err := os.ReadFile("testdata/pictures.json")
	require.NoError(t, err)
	var cases map[string]picture
	require.NoError(t, json.Unmarshal(b, &cases))
	require.Len(t, pictureLayers(), len(cases), "a case of PyTorch's is not tested")
	for _, d := range dtypes {
		tol := d.tol
		if d.dtype == tensor.BFloat16 {
			tol = 0.12 // sums of many rounded products
		}
		for name, layer := range pictureLayers() {
			t.Run(name+"/"+d.dtype.String(), func(t *testing.T) {
				want := cases[name]
				x := input(d.dtype, 1, 2, want.Dims...)
				buffers, params := nn.Params{}, nn.Params{}
				for _, p := range nn.Init(layer, host, d.dtype, 1) {
					if p.IsBuffer() {
						buffers = append(buffers, p)
					} else {
						params = append(params, p)
					}
				}
				fill(params)
				for i, p := range buffers {
					value(p.Value, 200+i, 0.5)
					tensor.Copy(p.Value, tensor.NewTape(host).Input(p.Value).Affine(1, 1))
				}
				tape := tensor.NewTape(host)
				if name == "batch_norm_eval" {
					tape = tensor.NewTape(host, tensor.Eval())
				}
				y := tape.Keep(layer.Forward(tape.Use(x)))
				backward(tape, y)
				near(t, want.Y, y, tol, "y")
				checkGrads(t, want.Grads, append(params, x), tol)
				require.Len(t, want.Buffers, len(buffers))
				for _, p := range buffers {
					near(t, want.Buffers[p.Name()], p.Value, tol, p.Name())
				}
			})
		}
	}
}

// A Dropout2d drops whole channels, as often as it should, and nothing in evaluation.
func TestDropout2d(t *testing.T) {
	d := nn.NewDropout2d(0.25)
	nn.Init(nn.Sequential{d}, host, tensor.Float32, 1)
	x := tensor.New(host, tensor.Float32, 40, 50, 2, 3)
	tensor.Constant(3).Fill(x, 0, 0)
	tape := tensor.NewTape(host)
	y, dropped := tensor.Floats(d.Forward(tape.Input(x))), 0
	for c := 0; c < len(y); c += 6 {
		if y[c] == 0 {
			dropped++
		} else {
			require.InDelta(t, 4, y[c], 1e-6)
		}
		for _, v := range y[c : c+6] {
			require.Equal(t, y[c], v)
		}
	}
	assert.InDelta(t, 500, dropped, 60, "of 2000 channels")
	assert.Equal(t, 36000., ops.DropoutChannels(tensor.NewTape(host, tensor.Eval()).Input(x), 0.25, 1).Sum().Item())
	unnamed := nn.NewDropout2d(0.5)
	assert.ErrorContains(t, tensor.Try(func() { unnamed.Forward(tape.Input(x)) }), "has no name")
}

// Running statistics move once a step, also where a Checkpoint computes the layer twice.
func TestBatchNormCheckpoint(t *testing.T) {
	run := func(forward func(tape *tensor.Tape, n *nn.BatchNorm2d, x tensor.Tensor) tensor.Tensor) [][]float64 {
		n := nn.NewBatchNorm2d(3)
		ps := nn.Init(n, host, tensor.Float64, 1)
		tape, x := tensor.NewTape(host), input(tensor.Float64, 1, 2, 2, 3, 4, 4)
		var out [][]float64
		for range 2 {
			backward(tape, forward(tape, n, tape.Use(x)))
			tape.Reset()
			for _, p := range ps {
				out = append(out, tensor.Floats(p.Value))
			}
			out = append(out, tensor.Floats(x.Grad), tensor.Floats(n.W.Grad))
			for _, p := range append(ps.Trainable(), x) {
				p.Consume()
			}
		}
		return out
	}
	plain := run(func(_ *tensor.Tape, n *nn.BatchNorm2d, x tensor.Tensor) tensor.Tensor { return n.Forward(x) })
	require.Equal(t, plain, run(func(tape *tensor.Tape, n *nn.BatchNorm2d, x tensor.Tensor) tensor.Tensor {
		return tape.Checkpoint(func(in ...tensor.Tensor) tensor.Tensor { return n.Forward(in[0]) }, x)
	}))
}

// After the first step, a network for pictures allocates nothing on the Go heap.
func TestPicturesAllocateNothing(t *testing.T) {
	model := pictureLayers()["network"].(nn.Sequential)
	ps := nn.Init(model, host, tensor.Float32, 1)
	x, g := tensor.New(host, tensor.Float32, 5, 1, 9, 9), tensor.New(host, tensor.Float32, 5, 3)
	tape := tensor.NewTape(host)
	outs, grads := make([]tensor.Tensor, 1), []tensor.Tensor{g}
	step := func() {
		outs[0] = model.Forward(tape.Input(x))
		tape.BackwardFrom(outs, grads)
		tape.Reset()
		for _, p := range ps {
			p.Consume()
		}
	}
	step()
	assert.Zero(t, testing.AllocsPerRun(10, step))
}
