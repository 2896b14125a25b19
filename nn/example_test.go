package nn_test

import (
	"fmt"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// A network of two layers learns exclusive or by plain gradient descent, on one tape.
func Example() {
	dev := tensor.NewCPU(1)
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
