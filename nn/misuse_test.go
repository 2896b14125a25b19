package nn_test

import (
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/internal/misuse"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// What each function of nn says when it is used wrong.
func TestMisuse(t *testing.T) {
	misuse.Check(t, slices.Concat(misuseOfLayers(), misuseOfAttention(), misuseOfLosses(), misuseOfPictures(),
		misuseOfSequences(), misuseOfModels()), map[string]string{
		"Activation.Forward": "takes any floats",
		"Params.ByName":      "a name that there is not gives nil",
		"Recurrent.Stored":   "what is no cell's has no other name",
		"Matrices":           "TestMatrices",
		"Linears":            "a model without a Linear has none",
		"Together":           "layers that differ are no product",
		"SettingsOf":         "a model without layers has none",
		"Summary":            "a model without parameters has an empty table",
		"Within":             "a part without parameters has none",
	})
}

// do is the wrong use f of a function.
func do(of, want string, f func()) misuse.Case {
	return misuse.Case{Of: of, Want: want, Do: func() error { f(); return nil }}
}

// misuseOfLayers uses layers wrong.
func misuseOfLayers() []misuse.Case {
	tape := tensor.NewTape(host, tensor.NoGrad())
	x := func(dims ...int) nn.T { return tape.Input(tensor.New(host, tensor.Float32, dims...)) }
	ids := func(dims ...int) nn.T { return tensor.New(host, tensor.Int64, dims...) }
	seq := nn.Sequential{nn.NewLinear(4, 8), nn.NewDropout(0), nn.NewMLP(6, 3)}
	nn.Init(seq, host, tensor.Float32, 1)
	made := func(model any) { nn.Init(model, host, tensor.Float32, 1) }
	linear, embedding, layer, rms := nn.NewLinear(4, 8), nn.NewEmbedding(10, 4), nn.NewLayerNorm(4), nn.NewRMSNorm(4)
	mlp, gated := nn.NewMLP(4, 8), nn.NewGatedMLP(4, 8)
	for _, m := range []any{linear, embedding, layer, rms, mlp, gated} {
		made(m)
	}
	return []misuse.Case{
		do("NewLinear", "NewParam: dimension 1 of [8 -4] is negative", func() { nn.NewLinear(-4, 8) }),
		do("Linear.Forward", "linear float32[2,3], weight float32[8,4], bias float32[8]: dimension 1 of the input is 3, "+
			"dimension 1 of weight is 4", func() { linear.Forward(x(2, 3)) }),
		do("Linear.Forward", "Use: a parameter of shape [8] was never made: call nn.Init or Attach first",
			func() { nn.NewLinear(4, 8).Forward(x(2, 4)) }),
		do("Linear.Forward", "nn.Forward: the input float32[2,4] is on no tape; put it there with Tape.Input",
			func() { linear.Forward(tensor.New(host, tensor.Float32, 2, 4)) }),
		do("Linear.Forward", "linear float64[2,4], weight float32[8,4], bias float32[8]: element types differ (see Cast)",
			func() { linear.Forward(tape.Input(tensor.New(host, tensor.Float64, 2, 4))) }),
		do("Linear.Forward", "use: the zero Tensor", func() { linear.Forward(nn.T{}) }),
		do("Linear.ForwardAdd", "linear_add float32[2,4], weight float32[8,4], float32[2,4]: dimension 1 of what is added to is 4, "+
			"dimension 1 of the product is 8", func() { linear.ForwardAdd(x(2, 4), x(2, 4)) }),
		do("QKV", "nn.Forward: the input float32[2,4] is on no tape; put it there with Tape.Input",
			func() { nn.QKV(tensor.New(host, tensor.Float32, 2, 4), linear, linear, linear) }),
		do("Inner.Product", "nn.Forward: the input float32[2,4] is on no tape; put it there with Tape.Input",
			func() { (&nn.Inner{Linear: *linear}).Product(tensor.New(host, tensor.Float32, 2, 4)) }),
		do("Sequential.Forward", "linear float32[2,8], 2.up.weight float32[3,6], 2.up.bias float32[3]: dimension 1 of the input is 8, "+
			"dimension 1 of 2.up.weight is 6", func() { seq.Forward(x(2, 4)) }),
		do("NewEmbedding", "NewParam: dimension 1 of [10 -1] is negative", func() { nn.NewEmbedding(10, -1) }),
		do("Embedding.Forward", "nn.Forward: the input int64[6] is on no tape; put it there with Tape.Input",
			func() { embedding.Forward(ids(2, 3).Reshape(6)) }),
		do("Embedding.Forward", "embedding weight float32[10,4], int64[2]: index 1 is 10, not in [0,10)",
			func() { embedding.Forward(tape.Input(tensor.FromSlice([]int64{3, 10}, 2))) }),
		do("Embedding.Forward", "embedding weight float32[10,4], float32[2]: indices must be int64 or int32", func() { embedding.Forward(x(2)) }),
		do("NewLayerNorm", "NewParam: dimension 0 of [-1] is negative", func() { nn.NewLayerNorm(-1) }),
		do("LayerNorm.Forward", "layer_norm float32[2,3], weight float32[4]: dimension 1 of the input is 3, weight has 4 elements",
			func() { layer.Forward(x(2, 3)) }),
		do("NewRMSNorm", "NewParam: dimension 0 of [-1] is negative", func() { nn.NewRMSNorm(-1) }),
		do("RMSNorm.Forward", "rms_norm float32[2,3], weight float32[4]: dimension 1 of the input is 3, weight has 4 elements",
			func() { rms.Forward(x(2, 3)) }),
		do("NewMLP", "NewParam: dimension 0 of [-8 4] is negative", func() { nn.NewMLP(4, -8) }),
		do("MLP.Forward", "linear float32[2,3], up.weight float32[8,4], up.bias float32[8]: dimension 1 of the input is 3, "+
			"dimension 1 of up.weight is 4", func() { mlp.Forward(x(2, 3)) }),
		do("MLP.ForwardAdd", "linear_add float32[2,8], down.weight float32[4,8], float32[2,3]: dimension 1 of what is added to is 3, "+
			"dimension 1 of the product is 4", func() { mlp.ForwardAdd(x(2, 4), x(2, 3)) }),
		do("NewGatedMLP", "NewParam: dimension 0 of [-8 4] is negative", func() { nn.NewGatedMLP(4, -8) }),
		do("GatedMLP.Forward", "linear float32[2,3], gate_proj.weight float32[8,4]: dimension 1 of the input is 3, "+
			"dimension 1 of gate_proj.weight is 4", func() { gated.Forward(x(2, 3)) }),
		do("GatedMLP.ForwardAdd", "linear_add float32[2,8], down_proj.weight float32[4,8], float32[2,3]: dimension 1 of what is added to is 3, "+
			"dimension 1 of the product is 4", func() { gated.ForwardAdd(x(2, 4), x(2, 3)) }),
		do("NewDropout", "nn.NewDropout: probability 1.5 is not in [0,1)", func() { nn.NewDropout(1.5) }),
		do("Dropout.Forward", "nn.Dropout: has no name, and so no random numbers: call nn.Init or ParamsOf on the model first",
			func() { nn.NewDropout(0.5).Forward(tensor.NewTape(host).Input(tensor.New(host, tensor.Float32, 2, 4))) }),
	}
}

// misuseOfAttention uses attention and positions wrong.
func misuseOfAttention() []misuse.Case {
	tape := tensor.NewTape(host, tensor.NoGrad())
	x := func(dims ...int) nn.T { return tape.Input(tensor.New(host, tensor.Float32, dims...)) }
	attention, positions := nn.NewAttention(4, 2), nn.NewPositions(5, 4)
	nn.Init(attention, host, tensor.Float32, 1)
	nn.Init(positions, host, tensor.Float32, 1)
	return []misuse.Case{
		do("NewAttention", "nn.NewAttention: 5 features do not divide into 2 heads", func() { nn.NewAttention(5, 2) }),
		do("NewAttention", "nn.NewAttention: 4 features do not divide into 0 heads", func() { nn.NewAttention(4, 0) }),
		do("Attention.Forward", "nn.Attention: QKV gives float32[2,12], not [batch, time, 3·heads·2], for an input of float32[2,4]",
			func() { attention.Forward(x(2, 4)) }),
		do("Attention.ForwardAdd", "linear_add float32[2,3,4], out.weight float32[4,4], float32[2,4,4]: dimension 1 of what is added to is 4, "+
			"dimension 1 of the product is 3", func() { attention.ForwardAdd(x(2, 3, 4), x(2, 4, 4)) }),
		do("NewPositions", "NewParam: dimension 0 of [-1 4] is negative", func() { nn.NewPositions(-1, 4) }),
		do("Core.Attend", "cross_attention float32[2,3,8], float32[2,4,8], float32[2,5,8]: dimension 1 of the keys is 4, dimension 1 of the "+
			"values is 5", func() { new(nn.Core).Attend(x(2, 3, 8), x(2, 4, 8), x(2, 5, 8), 4, nil, nil, nn.T{}) }),
		do("Positions.Forward", "nn.Positions: float32[2,6,4]: positions 0 to 5 of 5", func() { positions.Forward(x(2, 6, 4), 0) }),
		do("Positions.Forward", "nn.Positions: float32[2,4] is not [batch, time, 4]", func() { positions.Forward(x(2, 4), 0) }),
		do("NewRotary", "nn.Rotary: heads of 3 features, 8 positions, base 10000: needs an even number of features, "+
			"and positions and a base above 0", func() { nn.NewRotary(3, 8) }),
		do("Rotary.Forward", "rotary float32[2,3,10], float32[8,4]: the input's 10 features are not heads of the table's 4, which must be even",
			func() { nn.NewRotary(4, 8).Forward(x(2, 3, 10), 0) }),
		do("Rotary.Forward", "rotary float32[2,3,8]: positions 6 to 8 of 8", func() { nn.NewRotary(4, 8).Forward(x(2, 3, 8), 6) }),
	}
}

// misuseOfLosses uses losses wrong.
func misuseOfLosses() []misuse.Case {
	tape := tensor.NewTape(host, tensor.NoGrad())
	x := func(dims ...int) nn.T { return tape.Input(tensor.New(host, tensor.Float32, dims...)) }
	ids := func(dims ...int) nn.T { return tensor.New(host, tensor.Int64, dims...) }
	head := &nn.Linear{W: tensor.NewParam(tensor.Constant(1), 5, 4)}
	nn.Init(head, host, tensor.Float32, 1)
	return []misuse.Case{
		do("CrossEntropy", "cross_entropy float32[3,5], int64[2]: dimension 0 of the logits is 3, dimension 0 of the labels is 2",
			func() { nn.CrossEntropy(x(3, 5), ids(2)) }),
		do("CrossEntropy", "cross_entropy float32[3,5], int64[3]: label 1 is 5, of 5 classes",
			func() { nn.CrossEntropy(x(3, 5), tensor.FromSlice([]int64{0, 5, 1}, 3)) }),
		do("CrossEntropy", "cross_entropy float32[3,5], uint8[3]: labels must be int64 or int32, or probabilities of the logits' shape",
			func() { nn.CrossEntropy(x(3, 5), tensor.New(host, tensor.Uint8, 3)) }),
		do("LinearCrossEntropy", "cross_entropy float32[3,4], weight float32[5,4], int64[3]: label 1 is 5, of 5 classes",
			func() { nn.LinearCrossEntropy(head, x(3, 4), tensor.FromSlice([]int64{0, 5, 1}, 3)) }),
		do("LinearCrossEntropy", "nn.CrossEntropy: 2 options, at most one", func() {
			nn.LinearCrossEntropy(head, x(3, 4), ids(3), ops.CrossEntropyOptions{}, ops.CrossEntropyOptions{})
		}),
		do("InfoNCE", "nn.InfoNCE: float32[3,5] and float32[2,5] are not both [rows, d]", func() { nn.InfoNCE(x(3, 5), x(2, 5), 20, nil) }),
		do("InfoNCE", "nn.InfoNCE: float32[3,5] and float32[3,4] are not both [rows, d]", func() { nn.InfoNCE(x(3, 5), x(3, 4), 20, nil) }),
		do("InfoNCE", "nn.InfoNCE: float32[3] and float32[3] are not both [rows, d]", func() { nn.InfoNCE(x(3), x(3), 20, nil) }),
		do("InfoNCE", "nn.Forward: the input float32[3,5] is on no tape; put it there with Tape.Input",
			func() { nn.InfoNCE(tensor.New(host, tensor.Float32, 3, 5), x(3, 5), 20, nil) }),
		do("Normalize", "rms_norm int64[2], int64[1], int64[2], float32[0]: cpu has no kernel for int64",
			func() { nn.Normalize(tape.Input(ids(2))) }),
		do("Linear.Operands", "nn.Forward: the input float32[2,4] is on no tape; put it there with Tape.Input",
			func() { head.Operands(tensor.New(host, tensor.Float32, 2, 4)) }),
		do("MSE", "mse float32[3,1], float32[3]: the input: 2 dimensions, the target: 1 dimension", func() { nn.MSE(x(3, 1), x(3)) }),
		do("BCEWithLogits", "bce_with_logits float32[3], float32[4]: dimension 0 of the input is 3, dimension 0 of the target is 4",
			func() { nn.BCEWithLogits(x(3), x(4)) }),
		do("L1", "nn.L1: the input is float32[3,1], the target is float32[3]", func() { nn.L1(x(3, 1), x(3)) }),
		do("Huber", "nn.Huber: delta is 0, and must be above 0", func() { nn.Huber(x(3), x(3), 0) }),
		do("Huber", "nn.Huber: the input is float32[3], the target is float32[4]", func() { nn.Huber(x(3), x(4), 1) }),
		do("SmoothL1", "nn.SmoothL1: beta is -1, and must be above 0", func() { nn.SmoothL1(x(3), x(3), -1) }),
		do("KLDiv", "nn.KLDiv: the input is float32[3,5], the target is float32[5,3]", func() { nn.KLDiv(x(3, 5), x(5, 3)) }),
		do("Normalize", "use: the zero Tensor", func() { nn.Normalize(nn.T{}) }),
		do("GlobalMean", "GlobalMean: no operand is on a tape; put it there with Tape.Input", func() { nn.GlobalMean(nn.T{}) }),
		do("Hits", "nn.Hits: logits float32[3,5] do not fit labels int64[2]", func() { nn.Hits(x(3, 5), ids(2)) }),
		do("Hits", "nn.Hits: labels float32[3] must be int64 or int32", func() { nn.Hits(x(3, 5), x(3)) }),
	}
}

type hidden struct{ w *tensor.Param }

type twice struct {
	A *nn.Linear `nn:"x"`
	B *nn.Linear `nn:"x"`
}

// misuseOfModels uses what walks through a model wrong.
func misuseOfModels() []misuse.Case {
	lora := func(rank int, targets ...string) func() {
		return func() {
			nn.LoRA(nn.Sequential{nn.NewLinear(4, 4)}, nn.LoRAConfig{Rank: rank, Alpha: 1, Targets: targets})
		}
	}
	float8 := func(s ops.Float8, targets ...string) func() {
		return func() { nn.Float8(nn.Sequential{nn.NewLinear(4, 16)}, s, targets...) }
	}
	return []misuse.Case{
		do("ParamsOf",
			`nn.ParamsOf: "w", of shape [3], is in an unexported field or a map and would not train; export the field (a slice for the map), or tag it nn:"-" if it is not a part of the model`,
			func() { nn.ParamsOf(&hidden{tensor.NewParam(tensor.Constant(1), 3)}) }),
		do("ParamsOf", `nn.ParamsOf: two parameters have the name "x.weight"`,
			func() { nn.ParamsOf(&twice{nn.NewLinear(1, 2), nn.NewLinear(1, 2)}) }),
		do("Init", "Make: weight[4 4]: a parameter is of floats, not of int64", func() { nn.Init(nn.NewLinear(4, 4), host, tensor.Int64, 1) }),
		do("Init", "alloc float32[4,4]: the device is nil", func() { nn.Init(nn.NewLinear(4, 4), nil, tensor.Float32, 1) }),
		do("LoRA", "nn.LoRA: rank 0 and alpha 1 must be positive", lora(0, "*")),
		do("LoRA", "nn.LoRA: there are no targets", lora(2)),
		do("LoRA", `nn.LoRA: the target "attention.*" matches no Linear of the model`, lora(2, "attention.*")),
		do("Float8", "nn.Float8: 0 has 4 inputs and 16 outputs, which must be multiples of 16", float8(ops.PerRow, "*")),
		do("Float8", "nn.Float8: there are no targets", float8(ops.PerRow)),
		do("Float8", `nn.Float8: the target "head" matches no Linear of the model`, float8(ops.PerTensor, "head")),
		do("Float8", "nn.Float8: there is no scaling 3", float8(3, "*")),
		do("Merge", "nn.Merge: no Linear of the model has an adapter", func() { nn.Merge(nn.NewLinear(4, 4)) }),
		do("Unmerge", "nn.Unmerge: no Linear of the model has an adapter", func() { nn.Unmerge(nn.NewLinear(4, 4)) }),
	}
}

// misuseOfPictures uses layers for pictures wrong.
func misuseOfPictures() []misuse.Case {
	tape, train := tensor.NewTape(host, tensor.NoGrad()), tensor.NewTape(host)
	x := func(dims ...int) nn.T { return tape.Input(tensor.New(host, tensor.Float32, dims...)) }
	pixels := func(dims ...int) nn.T { return train.Input(tensor.New(host, tensor.Float32, dims...)) }
	conv, norm, group := nn.NewConv2d(4, 6, 3, ops.Conv2dOptions{}), nn.NewBatchNorm2d(4), nn.NewGroupNorm(2, 4)
	line, transposed := nn.NewConv1d(4, 6, 3, ops.Conv1dOptions{}), nn.NewConvTranspose2d(4, 6, 3, ops.ConvTranspose2dOptions{})
	nn.Init(nn.Sequential{conv, norm, group, line, transposed}, host, tensor.Float32, 1)
	return []misuse.Case{
		do("NewConv2d", "nn.NewConv2d: 5 channels in and 6 out do not divide into 2 groups",
			func() { nn.NewConv2d(5, 6, 3, ops.Conv2dOptions{Groups: 2}) }),
		do("NewConv2d", "NewParam: dimension 0 of [-6 4 3 3] is negative", func() { nn.NewConv2d(4, -6, 3, ops.Conv2dOptions{}) }),
		do("Conv2d.Forward", "conv2d float32[2,3,5,5], 0.weight float32[6,4,3,3]: dimension 1 of the input is 3 in 1 groups, "+
			"dimension 1 of 0.weight is 4", func() { conv.Forward(x(2, 3, 5, 5)) }),
		do("Conv2d.Forward", "conv2d float32[2,4,2,5], 0.weight float32[6,4,3,3]: a kernel of 3x3 does not fit into 2x5, "+
			"with {Stride:[0 0] Padding:[0 0] Dilation:[0 0] Groups:0}", func() { conv.Forward(x(2, 4, 2, 5)) }),
		do("NewConv1d", "nn.NewConv1d: 5 channels in and 6 out do not divide into 2 groups",
			func() { nn.NewConv1d(5, 6, 3, ops.Conv1dOptions{Groups: 2}) }),
		do("Conv1d.Forward", "conv2d float32[2,4,5,5], 3.weight float32[6,4,3], 3.bias float32[6]: Conv1d wants an input [batch, in, "+
			"length], a weight [out, in/groups, taps] and a bias [out]", func() { line.Forward(x(2, 4, 5, 5)) }),
		do("Conv1d.Forward", "conv2d float32[2,3,1,5], 3.weight float32[6,4,1,3]: dimension 1 of the input is 3 in 1 groups, dimension 1 of "+
			"3.weight is 4", func() { line.Forward(x(2, 3, 5)) }),
		do("NewConvTranspose2d", "nn.NewConvTranspose2d: 4 channels in and 5 out do not divide into 2 groups", func() {
			nn.NewConvTranspose2d(4, 5, 3, ops.ConvTranspose2dOptions{Conv2dOptions: ops.Conv2dOptions{Groups: 2}})
		}),
		do("ConvTranspose2d.Forward", "conv_transpose2d float32[2,3,5,5], 4.weight float32[4,6,3,3]: dimension 1 of the input is 3, "+
			"dimension 0 of 4.weight is 4", func() { transposed.Forward(x(2, 3, 5, 5)) }),
		do("ConvTranspose2d.Forward", "conv_transpose2d float32[2,4,5], 4.weight float32[4,6,3,3], 4.bias float32[6]: wants an input "+
			"[batch, in, h, w], a weight [in, out/groups, kh, kw] and a bias [out]", func() { transposed.Forward(x(2, 4, 5)) }),
		do("ConvTranspose2d.Forward", "conv_transpose2d float32[2,4,5,5], 4.weight float32[4,6,3,3]: OutputPadding is not less than Stride: "+
			"{Conv2dOptions:{Stride:[0 0] Padding:[0 0] Dilation:[0 0] Groups:0} OutputPadding:[0 1]}", func() {
			transposed := *transposed
			transposed.Options.OutputPadding[1] = 1
			transposed.Forward(x(2, 4, 5, 5))
		}),
		do("ConvTranspose2d.Forward", "conv_transpose2d float32[2,4,1,1], 4.weight float32[4,6,3,3]: nothing is left of the output, -1x3, with "+
			"{Conv2dOptions:{Stride:[0 0] Padding:[2 0] Dilation:[0 0] Groups:0} OutputPadding:[0 0]}", func() {
			transposed := *transposed
			transposed.Options.Padding[0] = 2
			transposed.Forward(x(2, 4, 1, 1))
		}),
		do("NewUpsample", "upsample2d float32[2,4,5,5]: wants [.., h, w], and pixels of both sizes: 0x0",
			func() { nn.NewUpsample(0, ops.Nearest).Forward(x(2, 4, 5, 5)) }),
		do("Upsample.Forward", "upsample2d float32[4,5]: wants [.., h, w], and pixels of both sizes: 8x10",
			func() { nn.NewUpsample(2, ops.Bilinear).Forward(x(4, 5)) }),
		do("NewMaxPool2d", "max_pool2d float32[2,4,5,5]: wants [.., h, w] that the window fits into, and padding of at most half of it: "+
			"{Kernel:[0 0] Stride:[0 0] Padding:[0 0]}", func() { nn.NewMaxPool2d(0).Forward(x(2, 4, 5, 5)) }),
		do("MaxPool2d.Forward", "max_pool2d float32[2,4,2,5]: wants [.., h, w] that the window fits into, and padding of at most half of it: "+
			"{Kernel:[3 3] Stride:[3 3] Padding:[0 0]}", func() { nn.NewMaxPool2d(3).Forward(x(2, 4, 2, 5)) }),
		do("NewAvgPool2d", "avg_pool2d float32[2,4,5,5]: wants [.., h, w] that the window fits into, and padding of at most half of it: "+
			"{Kernel:[-1 -1] Stride:[-1 -1] Padding:[0 0]}", func() { nn.NewAvgPool2d(-1).Forward(x(2, 4, 5, 5)) }),
		do("AvgPool2d.Forward", "avg_pool2d float32[4,5]: wants [.., h, w] that the window fits into, and padding of at most half of it: "+
			"{Kernel:[3 3] Stride:[3 3] Padding:[0 0]}", func() { nn.NewAvgPool2d(3).Forward(x(4, 5)) }),
		do("Flatten.Forward", "Dim float32[]: no dimension 0", func() { nn.Flatten{}.Forward(x()) }),
		do("NewDropout2d", "nn.NewDropout: probability 1 is not in [0,1)", func() { nn.NewDropout2d(1) }),
		do("Dropout2d.Forward", "nn.Dropout: has no name, and so no random numbers: call nn.Init or ParamsOf on the model first",
			func() { nn.NewDropout2d(0.5).Forward(pixels(2, 4, 3, 3)) }),
		do("NewGroupNorm", "nn.NewGroupNorm: 3 groups of 4 channels", func() { nn.NewGroupNorm(3, 4) }),
		do("GroupNorm.Forward", "nn.GroupNorm: x is float32[2,6,3,3], not [batch, 4, ..]", func() { group.Forward(x(2, 6, 3, 3)) }),
		do("NewBatchNorm2d", "NewParam: dimension 0 of [-4] is negative", func() { nn.NewBatchNorm2d(-4) }),
		do("BatchNorm2d.Forward", "nn.BatchNorm2d: x is float32[2,6,3,3], not [batch, 4, ..]", func() { norm.Forward(x(2, 6, 3, 3)) }),
		do("BatchNorm2d.Forward", "batch_norm float32[2,6,3,3], 1.weight float32[4]: wants a weight and a bias [channels]",
			func() { norm.Forward(pixels(2, 6, 3, 3)) }),
		do("SyncBatchNorm", "nn.SyncBatchNorm: sum is nil, or none of the model's layers is a BatchNorm2d",
			func() { nn.SyncBatchNorm(norm, nil) }),
	}
}

// misuseOfSequences uses recurrent layers wrong.
func misuseOfSequences() []misuse.Case {
	tape := tensor.NewTape(host, tensor.NoGrad())
	x := func(dims ...int) nn.T { return tape.Input(tensor.New(host, tensor.Float32, dims...)) }
	lstm, gru := nn.NewLSTM(4, 3, nn.RecurrentOptions{Layers: 2}), nn.NewGRU(4, 3, nn.RecurrentOptions{})
	nn.Init(nn.Sequential{lstm, gru}, host, tensor.Float32, 1)
	return []misuse.Case{
		do("NewLSTM", "nn.NewLSTM: 4 features in, 0 hidden, 0 layers", func() { nn.NewLSTM(4, 0, nn.RecurrentOptions{}) }),
		do("NewGRU", "nn.NewGRU: 4 features in, 3 hidden, -1 layers", func() { nn.NewGRU(4, 3, nn.RecurrentOptions{Layers: -1}) }),
		do("LSTM.Forward", "nn.LSTM: x is float32[2,5,3], not [batch, time, 4]", func() { lstm.Forward(x(2, 5, 3)) }),
		do("GRU.Forward", "nn.GRU: x is float32[2,0,4], not [batch, time, 4]", func() { gru.Forward(x(2, 0, 4)) }),
		do("LSTM.ForwardFrom", "nn.LSTM: the state is float32[1,2,3], not [2, 2, 3]: cells, batch, hidden",
			func() { lstm.ForwardFrom(x(2, 5, 4), x(2, 2, 3), x(1, 2, 3)) }),
		do("GRU.ForwardFrom", "nn.GRU: the state is float32[2,3], not [1, 2, 3]: cells, batch, hidden",
			func() { gru.ForwardFrom(x(2, 5, 4), x(2, 3)) }),
	}
}
