package nn_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

func adapted(cfg nn.LoRAConfig, d tensor.DType) (nn.Sequential, nn.Params) {
	m := nn.Sequential{nn.NewLinear(5, 4), nn.SiLU, nn.NewLinear(4, 3)}
	ps := nn.LoRA(m, cfg)
	nn.Init(m, host, d, 1)
	return m, ps
}

func output(m nn.Layer, x tensor.Tensor) []float64 {
	t := tensor.NewTape(host, tensor.NoGrad())
	return tensor.Floats(m.Forward(t.Input(x)))
}

var both = nn.LoRAConfig{Rank: 2, Alpha: 6, Targets: []string{"0", "2"}}

func TestLoRANames(t *testing.T) {
	m, ps := adapted(both, tensor.Float64)
	assert.Equal(t, []string{"0.lora_A.weight", "0.lora_B.weight", "2.lora_A.weight", "2.lora_B.weight"}, ps.Names())
	assert.Equal(t, ps.Names(), nn.ParamsOf(m).Trainable().Names())
	assert.Equal(t, []int{2, 5}, ps[0].Dims())
	assert.Equal(t, []int{4, 2}, ps[1].Dims())
	assert.NotZero(t, tensor.Floats(ps[0].Value)[0])
	assert.Equal(t, make([]float64, 8), tensor.Floats(ps[1].Value))
}

// The oracle is the model whose weights are W + 3·B·A: outputs, and gradients dA = 3·Bᵀ·dW and dB = 3·dW·Aᵀ.
func TestLoRAIsALowRankWeight(t *testing.T) {
	m, ps := adapted(both, tensor.Float64)
	fill(ps)
	plain := nn.Sequential{nn.NewLinear(5, 4), nn.SiLU, nn.NewLinear(4, 3)}
	nn.Init(plain, host, tensor.Float64, 1)
	for i := 0; i < 3; i += 2 {
		w, from := plain[i].(*nn.Linear), m[i].(*nn.Linear)
		tensor.Copy(w.B.Value, from.B.Value)
		a, b := tensor.Data[float64](from.Adapter.Down.Value), tensor.Data[float64](from.Adapter.Up.Value)
		in := w.W.Dims()[1]
		for j := range w.W.Len() {
			r, c := j/in, j%in
			tensor.Data[float64](w.W.Value)[j] = tensor.Data[float64](from.W.Value)[j] + 3*(b[2*r]*a[c]+b[2*r+1]*a[in+c])
		}
	}
	x := tensor.New(host, tensor.Float64, 7, 5)
	value(x, 1, 1)
	near(t, output(plain, x), toTensor(output(m, x)), 1e-12, "y")
	for _, l := range []nn.Layer{m, plain} {
		tape := tensor.NewTape(host)
		backward(tape, l.Forward(tape.Input(x)))
	}
	for i := 0; i < 3; i += 2 {
		l, g := m[i].(*nn.Linear), plain[i].(*nn.Linear).W.Grad
		tape := tensor.NewTape(host, tensor.NoGrad())
		gw, a, b := tape.Input(g), tape.Use(l.Adapter.Down), tape.Use(l.Adapter.Up)
		near(t, tensor.Floats(tensor.MatMul(b, gw, true, false).Scale(3)), l.Adapter.Down.Grad, 1e-12, "dA")
		near(t, tensor.Floats(tensor.MatMul(gw, a, false, true).Scale(3)), l.Adapter.Up.Grad, 1e-12, "dB")
	}

	r := tensor.New(host, tensor.Float64, 7, 4)
	value(r, 3, 1)
	tape := tensor.NewTape(host, tensor.NoGrad())
	l, in, rest := m[0].(*nn.Linear), tape.Input(x), tape.Input(r)
	near(t, tensor.Floats(l.Forward(in).Add(rest)), l.ForwardAdd(in, rest), 1e-12, "ForwardAdd")
}

// A rank-stabilized adapter is scaled by alpha/√r: that of rank 4 and alpha 6 by 3, as one of alpha 12.
func TestRSLoRA(t *testing.T) {
	x := tensor.New(host, tensor.Float64, 7, 5)
	value(x, 1, 1)
	var ys [2][]float64
	for i, c := range []nn.LoRAConfig{{Rank: 4, Alpha: 6, RSLoRA: true}, {Rank: 4, Alpha: 12}} {
		c.Targets = both.Targets
		m, ps := adapted(c, tensor.Float64)
		fill(ps)
		ys[i] = output(m, x)
		nn.Merge(m)
		near(t, ys[i], toTensor(output(m, x)), 1e-12, "merged")
	}
	assert.Equal(t, ys[1], ys[0])
}

func toTensor(v []float64) tensor.Tensor { return tensor.FromSlice(v, len(v)) }

func TestLoRAMerges(t *testing.T) {
	m, ps := adapted(both, tensor.Float64)
	fill(ps)
	x := tensor.New(host, tensor.Float64, 7, 5)
	value(x, 1, 1)
	w := m[0].(*nn.Linear).W
	before, y := append([]float64{}, tensor.Floats(w.Value)...), output(m, x)
	nn.Merge(m)
	near(t, y, toTensor(output(m, x)), 1e-12, "merged")
	assert.NotEqual(t, before, tensor.Floats(w.Value))
	assert.Equal(t, []string{"0.weight", "0.bias", "2.weight", "2.bias"}, nn.ParamsOf(m).Names())
	assert.Panics(t, func() { nn.Merge(m) })
	assert.Panics(t, func() { m.Forward(tensor.NewTape(host).Input(x)) }, "merged on a training tape")
	nn.Unmerge(m)
	assert.Equal(t, before, tensor.Floats(w.Value), "unmerged weight")
	assert.Equal(t, y, output(m, x), "unmerged")
	assert.Len(t, nn.ParamsOf(m), 4+len(ps))
	assert.Panics(t, func() { nn.Unmerge(m) })
}

// loose holds a Linear by value, and its matrix as [in, out] in files.
type loose struct {
	Proj nn.Linear `nn:"proj,transposed"`
}

// A Linear is found where it is held by value, and files have adapters as PEFT does, whatever the matrix.
func TestLoRAInAStruct(t *testing.T) {
	m := &loose{*nn.NewLinear(5, 4)}
	ps := nn.LoRA(m, nn.LoRAConfig{Rank: 2, Alpha: 1, Targets: []string{"*"}})
	assert.Equal(t, []string{"proj.lora_A.weight", "proj.lora_B.weight"}, ps.Names())
	assert.False(t, ps[0].Transposed())
	all := nn.ParamsOf(m)
	assert.True(t, all[0].Transposed())
	assert.Equal(t, []string{"proj.weight", "proj.bias"}, all.Frozen().Names())
	assert.Contains(t, nn.Summary(m), "42 elements, 18 trained")
}

func TestLoRAOfTiedWeights(t *testing.T) {
	e := nn.NewEmbedding(5, 4)
	m := nn.Sequential{e, &nn.Linear{W: e.W}}
	nn.LoRA(m, nn.LoRAConfig{Rank: 2, Alpha: 1, Targets: []string{"1"}})
	assert.PanicsWithError(t, "nn.Merge: 1 has no values yet, or they are divided over ranks", func() { nn.Merge(m) })
	nn.Init(m, host, tensor.Float32, 1)
	assert.PanicsWithError(t, "nn.Merge: the weight of 1 is also another layer's, which would change", func() { nn.Merge(m) })
	assert.PanicsWithError(t, "nn.Unmerge: the adapter of 1 is merged: false", func() { nn.Unmerge(m) })
	assert.PanicsWithError(t, "nn.Merge: no Linear of the model has an adapter", func() { nn.Merge(e) })
}

func TestLoRATrainsAdaptersAlone(t *testing.T) {
	x := tensor.New(host, tensor.Float32, 7, 5)
	value(x, 1, 1)
	m := nn.Sequential{nn.NewLinear(5, 4), nn.SiLU, nn.NewLinear(4, 3)}
	nn.LoRA(m, both)
	r := newTrainer(m, x, labels(1, 3, 7), optim.AdamWConfig{LR: 1e-2, WeightDecay: 0.1})
	w := m[0].(*nn.Linear).W
	before := append([]float64{}, tensor.Floats(w.Value)...)
	first, last := r.step(), 0.0
	assert.Zero(t, testing.AllocsPerRun(30, func() { last = r.step() }))
	assert.Less(t, last, first)
	assert.Equal(t, before, tensor.Floats(w.Value))
}

func TestLoRAMisuse(t *testing.T) {
	for text, f := range map[string]func(){
		"must be positive":         func() { adapted(nn.LoRAConfig{Alpha: 1, Targets: []string{"0"}}, tensor.Float64) },
		"alpha 0 must be positive": func() { adapted(nn.LoRAConfig{Rank: 1, Targets: []string{"0"}}, tensor.Float64) },
		"no targets":               func() { adapted(nn.LoRAConfig{Rank: 1, Alpha: 1}, tensor.Float64) },
		`"7" matches no Linear`:    func() { adapted(nn.LoRAConfig{Rank: 1, Alpha: 1, Targets: []string{"0", "7"}}, tensor.Float64) },
		"is not a valid pattern":   func() { adapted(nn.LoRAConfig{Rank: 1, Alpha: 1, Targets: []string{"["}}, tensor.Float64) },
		"has an adapter": func() {
			m := nn.Sequential{nn.NewLinear(2, 2)}
			c := both
			c.Targets = c.Targets[:1]
			nn.LoRA(m, c)
			nn.LoRA(m, c)
		},
		"has values": func() {
			m, _ := adapted(nn.LoRAConfig{Rank: 1, Alpha: 1, Targets: []string{"0"}}, tensor.Float64)
			nn.LoRA(m, nn.LoRAConfig{Rank: 1, Alpha: 1, Targets: []string{"2"}})
		},
		"Pre or Post": func() {
			l := nn.NewLinear(2, 2)
			l.Post = times{1, 1}
			nn.LoRA(nn.Sequential{l}, nn.LoRAConfig{Rank: 1, Alpha: 1, Targets: []string{"0"}})
		},
	} {
		func() {
			defer func() {
				f, ok := recover().(*tensor.Failure)
				require.True(t, ok, text)
				assert.Contains(t, f.Error(), text)
			}()
			f()
		}()
	}
}

// sharing has a head whose weight is the table's, and a norm in each of its parts.
type sharing struct {
	Table *nn.Embedding
	Parts []*normed
	Norm  *nn.RMSNorm
	Head  *nn.Linear
	Out   *nn.Linear
}

type normed struct {
	InNorm *nn.RMSNorm
	Up     *nn.Linear
}

func newSharing() *sharing {
	m := &sharing{Table: nn.NewEmbedding(5, 4), Norm: nn.NewRMSNorm(4), Out: nn.NewLinear(4, 3)}
	m.Head = &nn.Linear{W: m.Table.W}
	for range 2 {
		m.Parts = append(m.Parts, &normed{nn.NewRMSNorm(4), nn.NewLinear(4, 4)})
	}
	return m
}

// Modules to save are those whose names end so, as in PEFT, with all that is in them. Their Linears have no adapters.
func TestLoRASaves(t *testing.T) {
	adapters := []string{"parts.0.up.lora_A.weight", "parts.0.up.lora_B.weight", "parts.1.up.lora_A.weight", "parts.1.up.lora_B.weight"}
	for end, want := range map[string][]string{
		"norm":       append(adapters, "parts.0.in_norm.weight", "parts.1.in_norm.weight", "norm.weight"),
		"0.in_norm":  append(adapters, "parts.0.in_norm.weight"),
		"parts.0.up": append(adapters[2:], "parts.0.up.weight", "parts.0.up.bias"),
		"s.1":        append(adapters[:2:2], "parts.1.in_norm.weight", "parts.1.up.weight", "parts.1.up.bias"),
		"out":        append(adapters, "out.weight", "out.bias"),
	} {
		m := newSharing()
		cfg := nn.LoRAConfig{Rank: 1, Alpha: 1, Targets: []string{"parts.*", "out"}, Save: []string{end}}
		if end != "out" {
			cfg.Targets = cfg.Targets[:1]
		}
		made := nn.LoRA(m, cfg)
		assert.Equal(t, want, made.Names(), end)
		all := nn.ParamsOf(m)
		assert.ElementsMatch(t, want, all.Trainable().Names(), end)
		assert.Equal(t, nn.ParamsOf(newSharing()).Names(), all.Base().Names())
	}
	for end, want := range map[string]string{
		"table": "the module table cannot be saved: its weight is tied, as that of table.weight and of head.weight, which would change both",
		"head":  "the module head cannot be saved: its weight is tied",
		"tail":  `"tail" ends the name of no module of the model in files`,
		"":      `"" ends the name of no module`,
	} {
		m := newSharing()
		assert.ErrorContains(t, tensor.Try(func() {
			nn.LoRA(m, nn.LoRAConfig{Rank: 1, Alpha: 1, Targets: []string{"out"}, Save: []string{end}})
		}), want)
		assert.Len(t, nn.ParamsOf(m).Trainable(), 10, "it is as it was")
		assert.Nil(t, m.Out.Adapter)
	}
}
