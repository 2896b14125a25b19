package nn_test

import (
	"fmt"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// A network of two layers learns exclusive or by plain gradient descent, on one tape.
func Example() {
	dev := cpu.New(1)
	defer dev.Close()
	model := nn.Sequential{nn.NewLinear(2, 8), nn.Tanh, nn.NewLinear(8, 2)}
	params := nn.Init(model, dev, tensor.Float64, 1)

	x := tensor.FromSlice([]float64{0, 0, 0, 1, 1, 0, 1, 1}, 4, 2)
	y := tensor.FromSlice([]int64{0, 1, 1, 0}, 4)
	tape := tensor.NewTape(dev)
	for range 500 {
		loss := nn.CrossEntropy(model.Forward(tape.Input(x)), y)
		tape.Backward(loss)
		for _, p := range params { // what optim.SGD does
			v, g := tensor.Data[float64](p.Local), tensor.Data[float64](p.Grad)
			for i := range v {
				v[i] -= 0.5 * g[i]
			}
			p.Consume()
		}
		tape.Reset()
	}
	fmt.Println(params.Names(), params.Count())
	fmt.Println("right:", nn.Hits(model.Forward(tape.Input(x)), y))
	// Output:
	// [0.weight 0.bias 2.weight 2.bias] 42
	// right: 4
}

// Block shows a model of one's own: fields are layers, and names come from them.
type Block struct {
	Norm *nn.LayerNorm
	Attn *nn.Attention `nn:"self_attn"`
}

// Forward may have any signature.
func (b *Block) Forward(x nn.T) nn.T { return x.Add(b.Attn.Forward(b.Norm.Forward(x))) }

func ExampleParamsOf() {
	model := struct{ Blocks []*Block }{[]*Block{{nn.NewLayerNorm(8), nn.NewAttention(8, 2)}}}
	for _, p := range nn.ParamsOf(model) {
		fmt.Println(p)
	}
	// Output:
	// blocks.0.norm.weight[8]
	// blocks.0.norm.bias[8]
	// blocks.0.self_attn.qkv.weight[24 8]
	// blocks.0.self_attn.qkv.bias[24]
	// blocks.0.self_attn.out.weight[8 8]
	// blocks.0.self_attn.out.bias[8]
}

// llamaAttention has keys and values as one parameter; files keep them as two tensors.
type llamaAttention struct{ Q, KV *nn.Linear }

func (*llamaAttention) Stored(name string, dims []int) ([]tensor.Stored, bool) {
	if name != "kv.weight" {
		return nil, false
	}
	n := dims[0] / 2
	return []tensor.Stored{
		{Name: "k_proj.weight", Rows: n, First: 0, Total: n},
		{Name: "v_proj.weight", Rows: n, First: 0, Total: n},
	}, false
}

func ExampleStorer() {
	model := struct{ Layers []*llamaAttention }{[]*llamaAttention{{nn.NewLinear(8, 8), nn.NewLinear(8, 4)}}}
	for _, p := range nn.ParamsOf(model) {
		fmt.Println(p, p.Stored())
	}
	// Output:
	// layers.0.q.weight[8 8] []
	// layers.0.q.bias[8] []
	// layers.0.kv.weight[4 8] [layers.0.k_proj.weight[0:2 of 2] layers.0.v_proj.weight[0:2 of 2]]
	// layers.0.kv.bias[4] []
}

// The state behind a part of a text goes on with the next part. Files have PyTorch's names.
func ExampleLSTM() {
	dev := cpu.New(1)
	defer dev.Close()
	l := nn.NewLSTM(3, 4, nn.RecurrentOptions{})
	for _, p := range nn.Init(l, dev, tensor.Float32, 1) {
		fmt.Println(p.Stored()[0].Name, p.Dims())
	}
	tape := tensor.NewTape(dev, tensor.NoGrad())
	x := tape.Input(tensor.New(dev, tensor.Float32, 2, 7, 3)) // 2 texts of 7 positions
	_, h, c := l.ForwardFrom(x, nn.T{}, nn.T{})
	y, _, _ := l.ForwardFrom(x, h, c)
	fmt.Println(y.Shape(), h.Shape())
	// Output:
	// weight_ih_l0 [16 3]
	// weight_hh_l0 [16 4]
	// bias_ih_l0 [16]
	// bias_hh_l0 [16]
	// float32[2,7,4] float32[1,2,4]
}

// A decoder of pictures: each layer doubles their height and width.
func ExampleConvTranspose2d() {
	dev := cpu.New(1)
	defer dev.Close()
	twice := ops.ConvTranspose2dOptions{Conv2dOptions: ops.Conv2dOptions{Stride: [2]int{2, 2}, Padding: [2]int{1, 1}}}
	model := nn.Sequential{nn.NewConvTranspose2d(8, 4, 4, twice), nn.ReLU, nn.NewUpsample(2, ops.Bilinear),
		nn.NewConv2d(4, 3, 3, ops.Conv2dOptions{Padding: [2]int{1, 1}})}
	nn.Init(model, dev, tensor.Float32, 1)
	x := tensor.NewTape(dev, tensor.NoGrad()).Input(tensor.New(dev, tensor.Float32, 1, 8, 7, 5))
	fmt.Println(model.Forward(x).Shape())
	// Output: float32[1,3,28,20]
}
