package plan

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

var gpt2 = Transformer{Layers: 12, Dim: 768, Heads: 12, Vocab: 50304, Batch: 64, Seq: 1024}

func planOf(t *testing.T, m Transformer, c Config) *Plan {
	model, err := m.Model(c)
	require.NoError(t, err)
	p, err := New(model, c)
	require.NoError(t, err)
	return p
}

// Bytes per parameter are those of the ZeRO paper. In stage 3 with 16 bits they are fewer, because one copy is not kept.
func TestZeRO(t *testing.T) {
	for _, c := range []struct {
		params, reduce tensor.DType
		b, g, opt      float64
	}{
		{tensor.Float32, 0, 4, 4, 8}, {tensor.BFloat16, 0, 2, 4, 12}, {tensor.BFloat16, tensor.BFloat16, 2, 2, 12}, {tensor.Float64, 0, 8, 8, 16},
	} {
		for _, n := range []int{1, 8, 64} {
			for stage, want := range []float64{1: c.b + c.g + c.opt/float64(n), c.b + (c.g+c.opt)/float64(n), (c.b + c.g + c.opt) / float64(n)} {
				if stage == 0 {
					continue
				}
				p := planOf(t, gpt2, Config{Layout: Layout{FSDP: n}, Stage: stage, Params: c.params, Reduce: c.reduce})
				assert.Equal(t, want, p.ZeRO)
				if stage == 3 && c.params.IsHalf() {
					want = (c.g + c.opt) / float64(n)
				}
				if c.reduce.IsHalf() { // one gradient is widened: this rank's part of the table
					want += 4 * min(50304*768, (50304+1024+2)*768/float64(n)) / float64(p.Parameters)
				}
				require.InEpsilon(t, want, p.PerParam, 0.003, "%v", p)
			}
		}
	}
	require.InEpsilon(t, 16.0, planOf(t, gpt2, Config{Layout: Layout{DP: 4}}).PerParam, 0.001)
}

// One more block adds, on each rank, activations of tokens·features·(6 + 12/tp) and statistics. It adds 8A(tp−1) to what the tp ranks
// send to each other, with A the bytes of an activation: 4A(tp−1)/tp of each rank forward, and as many backward.
func TestABlockMore(t *testing.T) {
	for _, tp := range []int{1, 2, 4} {
		c := Config{Layout: Layout{DP: 2, FSDP: 4, TP: tp}, Params: tensor.BFloat16}
		m := gpt2
		a := planOf(t, m, c)
		m.Layers++
		b := planOf(t, m, c)
		tokens := 64 / 8 * 1024
		elems := tokens * 768
		between := 6 // norms, outputs of the last layers, residual sums
		if tp > 1 {
			between = 10 // also sums over ranks, and the biases after them
		}
		assert.Equal(t, 2*elems*between+2*elems*12/tp+4*tokens*(4+12/tp), b.Of(memory.Activations)-a.Of(memory.Activations))
		assert.Equal(t, 8*(2*elems)*(tp-1)*8, b.SentBy("allreduce", "tp")-a.SentBy("allreduce", "tp"))
		assert.Equal(t, (12*768*768+7*768)/tp+6*768, b.Parameters-a.Parameters, "matrices are cut, and biases of columns")
	}
}

// With tokens that are divided between layers, all of a block is divided, and an all-reduce becomes an all-gather and a reduce-scatter.
func TestASequenceParallelBlockMore(t *testing.T) {
	c := Config{Layout: Layout{DP: 8, TP: 4}, Sequence: true}
	m := gpt2
	a := planOf(t, m, c)
	m.Layers++
	b := planOf(t, m, c)
	tokens := 64 / 8 * 1024
	elems := tokens * 768
	assert.Equal(t, 4*elems*(8+12)/4+4*tokens*(4+12)/4, b.Of(memory.Activations)-a.Of(memory.Activations))
	assert.Equal(t, 8*(4*elems)*3*6, b.SentBy("allgather", "tp")-a.SentBy("allgather", "tp"))
	assert.Equal(t, 8*(4*elems)*3*4, b.SentBy("reducescatter", "tp")-a.SentBy("reducescatter", "tp"))
	assert.Equal(t, 8*2*3*4*6*768, b.SentBy("allreduce", "tp")-a.SentBy("allreduce", "tp"), "gradients of norms and late biases")
}

func TestTensorParallelParameters(t *testing.T) {
	one := planOf(t, gpt2, Config{})
	two := planOf(t, gpt2, Config{Layout: Layout{TP: 2}})
	whole := 1024*768 + 2*768 + 12*6*768 // positions, norms, biases that are added after a sum
	assert.Equal(t, (one.Parameters-whole)/2+whole, two.Parameters)
	assert.Equal(t, 4*two.Parameters, two.Of(memory.Gradients))
}

func TestParseLayout(t *testing.T) {
	l, err := ParseLayout("dp=8, fsdp=4,tp=2")
	require.NoError(t, err)
	assert.Equal(t, Layout{DP: 8, FSDP: 4, TP: 2}, l)
	assert.Equal(t, 64, l.Ranks())
	assert.Equal(t, "dp=8,fsdp=4,tp=2", l.String())
	assert.Equal(t, "dp=1", Layout{}.String())
	for text, want := range map[string]string{
		"":                    `the axes are pp, dp, fsdp, ep, ring, cp and tp, not ""`,
		"sp=2":                `the axes are pp, dp, fsdp, ep, ring, cp and tp, not "sp"`,
		"dp":                  `"dp" should be an axis with a size, such as tp=2`,
		"dp=0":                `"dp=0" should be an axis`,
		"dp=-3":               `"dp=-3" should be an axis`,
		"dp=2.5":              `"dp=2.5" should be an axis`,
		"dp=2,":               `not ""`,
		"dp=2,tp=2,dp=2":      "dp is there twice",
		"dp=300,fsdp=300":     "is not one of 1 to 65536 ranks",
		"dp=9999999999999999": "is not one of 1 to 65536 ranks",
	} {
		_, err := ParseLayout(text)
		assert.ErrorContains(t, err, want, text)
	}
}

func TestWrong(t *testing.T) {
	for want, change := range map[string]func(m *Transformer, c *Config){
		"768 features do not divide into 7 heads":                     func(m *Transformer, _ *Config) { m.Heads = 7 },
		"12 heads do not divide over tp=8 ranks":                      func(_ *Transformer, c *Config) { c.Layout.TP = 8 },
		"a vocabulary of 50257 does not divide over tp=2 ranks: make": func(m *Transformer, c *Config) { m.Vocab, c.Layout.TP = 50257, 2 },
		"64 sequences are too few for the 128 ranks":                  func(_ *Transformer, c *Config) { c.Layout = Layout{DP: 2, FSDP: 64} },
		"12 heads of a rank do not divide over cp=5 ranks: ring=5":    func(_ *Transformer, c *Config) { c.Layout.CP = 5 },
		"sequences of 1024 tokens do not divide over 2048 ranks":      func(_ *Transformer, c *Config) { c.Layout.Ring = 2048 },
		"0 layers: at least 1":                                        func(m *Transformer, _ *Config) { m.Layers = 0 },
		"-1 tokens: at least 1":                                       func(m *Transformer, _ *Config) { m.Seq = -1 },
		"the sizes of the model or batch are too large":               func(m *Transformer, _ *Config) { m.Seq, m.Batch = 1<<40, 1<<40 },
		"too large to compute":                                        func(m *Transformer, _ *Config) { m.Dim = 1 << 50 * 12 },
		"stage 4 is not 1, 2 or 3":                                    func(_ *Transformer, c *Config) { c.Stage, c.Layout.FSDP = 4, 2 },
		"stage 1 needs an fsdp axis in the layout, such as fsdp=4":    func(_ *Transformer, c *Config) { c.Stage, c.Layout.DP = 1, 4 },
		"hosts and codes of 8 or 4 bits need an fsdp axis in the layout, such as fsdp=4": func(_ *Transformer, c *Config) {
			c.Int8, c.Layout.DP = true, 4
		},
		"the 4 ranks that share a copy do not divide into hosts of 3": func(_ *Transformer, c *Config) { c.Host, c.Layout.FSDP = 3, 4 },
		"hosts have copies in stage 3 alone, not in stage 1": func(_ *Transformer, c *Config) {
			c.Host, c.Layout.FSDP, c.Stage = 2, 2, 1
		},
		"say how many ranks a host has (-host, Config.Host)": func(_ *Transformer, c *Config) { c.Int4, c.Layout.FSDP = true, 4 },
		"gradients in int4 are added up in float32, not in bfloat16": func(_ *Transformer, c *Config) {
			c.Int4, c.Host, c.Layout.FSDP, c.Params, c.Reduce = true, 2, 4, tensor.BFloat16, tensor.BFloat16
		},
		"ep=2 with hosts, or codes of 8 or 4 bits": func(m *Transformer, c *Config) {
			m.Experts, m.Top, c.Layout, c.Int8 = 2, 1, Layout{FSDP: 2, EP: 2}, true
		},
		"parameters and gradients are floats, not int32": func(_ *Transformer, c *Config) { c.Params = tensor.Int32 },
		"gradients of float64 parameters cannot be reduced in bfloat16": func(_ *Transformer, c *Config) {
			c.Params, c.Reduce = tensor.Float64, tensor.BFloat16
		},
		"gradients of bfloat16 parameters cannot be reduced in float16": func(_ *Transformer, c *Config) {
			c.Params, c.Reduce = tensor.BFloat16, tensor.Float16
		},
		`optimizer "lion" is not adamw or sgd`: func(_ *Transformer, c *Config) { c.Optimizer = "lion" },
		"is not one of 1 to 65536 ranks":       func(_ *Transformer, c *Config) { c.Layout = Layout{DP: -1} },
	} {
		m, c := gpt2, Config{}
		change(&m, &c)
		_, err := m.Model(c)
		assert.ErrorContains(t, err, want)
	}
	_, err := New(Model{Units: []Unit{{}, {Params: []int{0}}}}, Config{})
	assert.ErrorContains(t, err, "no parameters")
	_, err = New(Model{}, Config{Stage: 9})
	assert.ErrorContains(t, err, "stage 9")
}

// Nothing overflows with the largest allowed sizes.
func TestLargest(t *testing.T) {
	m := Transformer{Layers: 1000, Dim: 8192, Heads: 64, Vocab: 1 << 18, Batch: 1 << 16, Seq: 64}
	p := planOf(t, m, Config{Layout: Layout{DP: 1 << 10, FSDP: 32, TP: 2}})
	for _, it := range p.Memory {
		assert.Greater(t, it.Bytes, 0, it.Name)
	}
	for _, tr := range p.Traffic {
		assert.Greater(t, tr.Bytes, 0, tr.Axis)
	}
	assert.Len(t, p.Traffic, 4)
}

func TestText(t *testing.T) {
	m := Transformer{Layers: 2, Dim: 8, Heads: 2, Vocab: 16, Batch: 4, Seq: 8}
	p := planOf(t, m, Config{Layout: Layout{DP: 2, FSDP: 2}, Params: tensor.BFloat16})
	assert.Equal(t, `dp=2,fsdp=2, fsdp stage 3, 4 ranks, parameters in bfloat16, gradients sent in float32
P = 1952 parameters
K = 208 in units of Keep
U = 872 in the largest one of the others
T = 8 tokens of a rank

memory of a rank  bytes            formula
  parameters      3904   3.81 KiB  4·P/2
  gradients       3904   3.81 KiB  4·P/2
  optimizer       8008   7.82 KiB  8·P/2 + sums for the norm
  gathered        3904   3.81 KiB  2·K + 2·2·U
  communication   7952   7.77 KiB  4·K + 2·4·U + votes
  activations     7680   7.50 KiB  2·T·8·(2+2·18) + 4·T·2·(4+2) + an MLP's 2.12 KiB
  total           35352  34.52 KiB

sent in a step by all ranks  bytes  a rank    formula
  allgather over fsdp        11296  2.76 KiB  2·(2·P−K−U)·1·2
  reducescatter over fsdp    15616  3.81 KiB  4·P·1·2
  allreduce over dp          15616  3.81 KiB  2·4·P·1
  total                      42528  10.38 KiB

parameters, gradients and optimizer: 8.10 bytes a parameter (ZeRO's formula: 9.00)`, p.String())
	assert.Contains(t, planOf(t, m, Config{Layout: Layout{FSDP: 4}, Host: 2, Int8: true, Int4: true}).String(),
		"fsdp=4, fsdp stage 3 on hosts of 2, values sent in int8, gradients in int4, 4 ranks, ")
	one := planOf(t, m, Config{}).String()
	assert.Contains(t, one, "dp=1, ddp, 1 rank, parameters in float32")
	assert.Contains(t, one, "\n\nnothing is sent\n\n")
	assert.NotContains(t, one, "sent in a step")
	text, err := json.Marshal(p)
	require.NoError(t, err)
	var back struct {
		Layout, Params string
		Ranks, Stage   int
		Memory         []struct {
			Kind, Formula string
			Bytes         int
		}
		Traffic []struct {
			Op, Axis string
			Bytes    int
		}
		Total, Sent int
	}
	require.NoError(t, json.Unmarshal(text, &back))
	assert.Equal(t, fmt.Sprint("dp=2,fsdp=2", 4, 3, "parameters", 3904, "allgather", "fsdp", 11296, p.Total, p.Sent),
		fmt.Sprint(back.Layout, back.Ranks, back.Stage, back.Memory[0].Kind, back.Memory[0].Bytes, back.Traffic[0].Op, back.Traffic[0].Axis,
			back.Traffic[0].Bytes, back.Total, back.Sent))
}
