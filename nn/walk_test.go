package nn

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

func param(dims ...int) *tensor.Param { return tensor.NewParam(tensor.Constant(1), dims...) }

func TestLowerSnake(t *testing.T) {
	for in, want := range map[string]string{
		"W": "w", "QKV": "qkv", "Out": "out", "Norm1": "norm1", "AttnNorm": "attn_norm", "QKVProj": "qkv_proj",
		"LayerNorm2D": "layer_norm2_d", "WTE": "wte", "Ünder": "ünder",
	} {
		assert.Equal(t, want, lowerSnake(in), in)
	}
}

type base struct{ Scale *tensor.Param }

type inner struct {
	Attn *Attention
	MLP  *MLP `nn:"ffn"`
}

type model struct {
	base
	Tok     *Embedding `nn:"wte"`
	Proj    *Linear    `nn:"c_proj,transposed"`
	None    *Linear
	Blocks  []*inner
	Pair    [2]Linear
	Seq     Sequential
	Any     any
	Running *tensor.Buffer
	Self    *model
	Lens    []int
	Teacher *Linear `nn:"-"`
	cache   []float64
	tied    *tensor.Param
}

func newModel() *model {
	m := &model{base: base{param(1)}, Tok: NewEmbedding(5, 4), Proj: NewLinear(4, 6)}
	m.Running = tensor.NewBuffer(tensor.Constant(0), 3)
	m.Blocks = []*inner{{NewAttention(4, 2), NewMLP(4, 8)}}
	m.Pair = [2]Linear{*NewLinear(1, 1), {W: param(1, 1)}}
	m.Seq = Sequential{NewLinear(2, 2), ReLU, NewDropout(0.5), &Linear{W: m.Tok.W}}
	m.Any, m.Self, m.Teacher = NewRMSNorm(4), m, NewLinear(1, 1)
	m.Blocks[0].Attn.Drop = NewDropout(0.1)
	m.cache, m.tied = []float64{1}, m.Tok.W
	return m
}

var modelNames = []string{"scale", "wte.weight", "c_proj.weight", "c_proj.bias",
	"blocks.0.attn.qkv.weight", "blocks.0.attn.qkv.bias", "blocks.0.attn.out.weight", "blocks.0.attn.out.bias",
	"blocks.0.ffn.up.weight", "blocks.0.ffn.up.bias", "blocks.0.ffn.down.weight", "blocks.0.ffn.down.bias",
	"pair.0.weight", "pair.0.bias", "pair.1.weight", "seq.0.weight", "seq.0.bias", "any.weight", "running"}

func TestNames(t *testing.T) {
	m := newModel()
	ps := ParamsOf(m)
	assert.Equal(t, modelNames, ps.Names())
	assert.Equal(t, "seq.2", m.Seq[2].(*Dropout).name)
	assert.Equal(t, "blocks.0.attn.drop", m.Blocks[0].Attn.Drop.name)
	assert.Same(t, m.Tok.W, ps.ByName("wte.weight"))
	assert.Nil(t, ps.ByName("weight"))
	for _, p := range ps {
		assert.Equal(t, p == m.Proj.W, p.Transposed(), p.Name())
	}
	assert.Len(t, ps.Trainable(), len(ps)-1)
	m.Tok.W.Freeze()
	assert.Len(t, ps.Trainable(), len(ps)-2)
	assert.Equal(t, 4*12+12+4*4+4, Within(m.Blocks[0].Attn).Count())
}

func TestWithinKeepsNames(t *testing.T) {
	m := newModel()
	ParamsOf(m)
	assert.Equal(t, modelNames[4:8], Within(m.Blocks[0].Attn).Names())
	assert.Equal(t, modelNames, Within(m).Names())
	assert.Equal(t, "blocks.0.attn.drop", m.Blocks[0].Attn.Drop.name)
}

func TestSequentialAndBareValues(t *testing.T) {
	assert.Equal(t, []string{"0.weight", "0.bias", "2.weight", "2.bias"},
		ParamsOf(Sequential{NewLinear(1, 1), ReLU, NewLinear(1, 1)}).Names())
	assert.Equal(t, []string{"weight", "bias"}, ParamsOf(NewLinear(1, 1)).Names())
	assert.Equal(t, []string{"weight"}, ParamsOf(*NewRMSNorm(1)).Names())
	assert.Empty(t, ParamsOf(nil))
	p := param(1)
	p.SetName("mine")
	assert.Equal(t, []string{"mine"}, ParamsOf(p).Names())
}

type hiddenParam struct {
	Out *Linear
	w   *tensor.Param
}

type hiddenLayers struct{ layers []Layer }

type hiddenMaps []map[string]*Linear

type hiddenTwice struct{ body *hiddenParam }

type byValue struct{ W tensor.Param }

type clash struct {
	A *Linear `nn:"x"`
	B *Linear `nn:"x"`
}

type badTag struct {
	A *Linear `nn:"x,flipped"`
}

func TestMisuse(t *testing.T) {
	for _, c := range []struct {
		name  string
		model any
		want  string
	}{
		{"unexported parameter", &hiddenParam{w: param(2)}, `"w", of shape [2], is in an unexported field or a map`},
		{"unexported twice", &hiddenTwice{&hiddenParam{w: param(2)}}, `"body.w", of shape [2]`},
		{"map below", struct{ parts hiddenMaps }{hiddenMaps{{"a": NewLinear(1, 2)}}}, `"parts.0.a.weight"`},
		{"unexported layers", &hiddenLayers{[]Layer{ReLU, NewLinear(1, 3)}}, `"layers.1.weight", of shape [3 1]`},
		{"unexported dropout", &hiddenLayers{[]Layer{NewDropout(0.1)}}, `dropout "layers.0"`},
		{"map", struct{ Experts map[string]*Linear }{map[string]*Linear{"a": NewLinear(1, 2)}}, `"experts.a.weight"`},
		{"by value", &byValue{}, `"w" is a tensor.Param by value; hold a pointer`},
		{"same name", &clash{NewLinear(1, 1), NewLinear(1, 1)}, `two parameters have the name "x.weight"`},
		{"unknown option", &badTag{}, "the options are transposed and, without a name, inline"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := tensor.Try(func() { ParamsOf(c.model) })
			require.Error(t, err)
			assert.ErrorContains(t, err, c.want)
			var f *tensor.Failure
			assert.ErrorAs(t, err, &f)
		})
	}
}

func TestHiddenButKnown(t *testing.T) {
	m := &hiddenParam{Out: NewLinear(1, 1)}
	m.w = m.Out.W // reached by an exported way too: it trains
	assert.Len(t, ParamsOf(m), 2)
	dev, other := cpu.New(1), NewLinear(1, 1)
	defer dev.Close()
	tape := tensor.NewTape(dev)
	Init(other, dev, tensor.Float32, 1)
	other.Forward(tape.Input(tensor.New(dev, tensor.Float32, 1, 1)))
	type user struct {
		Out  *Linear
		tape *tensor.Tape // knows the other model's parameters
	}
	assert.Len(t, ParamsOf(&user{NewLinear(1, 1), tape}), 2)
	type teacher struct {
		Out   *Linear
		other *Linear `nn:"-"`
	}
	assert.Len(t, ParamsOf(&teacher{NewLinear(1, 1), NewLinear(1, 1)}), 2)
}
