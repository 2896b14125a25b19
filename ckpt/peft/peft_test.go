package peft_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt/peft"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// plain is a model that stores tensors under its own names.
type plain struct{ Up, Down *nn.Linear }

func newPlain() *plain { return &plain{nn.NewLinear(5, 4), nn.NewLinear(4, 5)} }

func folder(t testing.TB, text string) (dir string) {
	dir = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "adapter_config.json"), []byte(text), 0o666))
	return dir
}

func TestApply(t *testing.T) {
	m := newPlain()
	adapters, err := peft.Apply(m,
		folder(t, `{"peft_type": "LORA", "r": 2, "lora_alpha": 49, "target_modules": ["base.up"], "use_dora": false, "rank_pattern": {}}`))
	require.NoError(t, err)
	require.Equal(t, []string{"up.lora_A.weight", "up.lora_B.weight"}, adapters.Names())
	require.Equal(t, []int{2, 5}, adapters[0].Dims())
	require.Equal(t, 49.0, m.Up.Adapter.Alpha)
	require.Nil(t, m.Down.Adapter)
	require.ErrorContains(t, peft.Export(m, "none", t.TempDir()), "the files have no module of its own for up")
}

// tied has a head whose weight is an embedding's.
type tied struct {
	Table *nn.Embedding
	Up    *nn.Linear
	Head  *nn.Linear
}

// A pattern is of whole names, and all-linear leaves out the head.
func TestTargets(t *testing.T) {
	for targets, want := range map[string][]string{`"all-linear"`: {"up", "down"}, `"u."`: {"up"}, `".*"`: {"up", "down"},
		`"down|x"`: {"down"}, `["up"]`: {"up"}} {
		m := newPlain()
		adapters, err := peft.Apply(m,
			folder(t, `{"peft_type": "LORA", "r": 4, "lora_alpha": 6, "use_rslora": true, "target_modules": `+targets+`}`))
		require.NoError(t, err)
		var names []string
		for _, module := range want {
			names = append(names, module+".lora_A.weight", module+".lora_B.weight")
		}
		require.Equal(t, names, adapters.Names(), targets)
		for _, l := range nn.Linears(m) {
			require.True(t, l.Adapter == nil || l.Adapter.RS)
		}
	}
	e := nn.NewEmbedding(5, 4)
	m := &tied{e, nn.NewLinear(4, 4), &nn.Linear{W: e.W}}
	adapters, err := peft.Apply(m, folder(t, `{"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": "all-linear"}`))
	require.NoError(t, err)
	require.Equal(t, []string{"up.lora_A.weight", "up.lora_B.weight"}, adapters.Names())
}

func TestWrongConfigs(t *testing.T) {
	const fine = `"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["up"]`
	for text, want := range map[string]string{
		``:                                 "unexpected end of JSON input",
		`{`:                                "unexpected end of JSON input",
		`[]`:                               "cannot unmarshal array",
		`{}`:                               `peft_type is "", and only LORA is computed here`,
		`{"peft_type": "IA3"}`:             `peft_type is "IA3"`,
		`{` + fine + `, "bias": "all"}`:    `bias is "all", and only none is trained here`,
		`{` + fine + `, "use_dora": true}`: "use_dora is true, which is not computed here",
		`{` + fine + `, "rank_pattern": {"up": 3}}`:    `rank_pattern is {"up": 3}`,
		`{` + fine + `, "modules_to_save": ["head"]}`:  `"head" ends the name of no module of the model in files`,
		`{` + fine + `, "init_lora_weights": "pissa"}`: `init_lora_weights is "pissa", which changes the base's weights too`,
		`{` + fine + `, "something_new": 1}`:           "something_new is 1",
		`{` + fine + `, "layers_to_transform": 0}`:     "layers_to_transform is 0, which is not computed here",

		`{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": "u(?!x)p"}`: `target_modules is the pattern "u(?!x)p", which Go cannot read`,
		`{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": "u"}`:       `the target "u" matches no Linear of the model`,
		`{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": 7}`:         "cannot unmarshal number",

		`{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["up", "middle"]}`: `the target "middle" matches no Linear of the model`,
		`{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["p"]}`:            `the target "p" matches no Linear of the model`,
		`{"peft_type": "LORA", "r": 2, "lora_alpha": 4}`:                                     "nn.LoRA: there are no targets",
		`{"peft_type": "LORA", "r": 0, "lora_alpha": 4, "target_modules": ["up"]}`:           "rank 0 and alpha 4 must be positive",
		`{"peft_type": "LORA", "r": "2", "lora_alpha": 4, "target_modules": ["up"]}`:         "cannot unmarshal string",
	} {
		m := newPlain()
		dir := folder(t, text)
		_, err := peft.Apply(m, dir)
		require.ErrorContains(t, err, want, text)
		require.ErrorContains(t, err, filepath.Join(dir, "adapter_config.json"))
		require.Nil(t, m.Up.Adapter)
		require.False(t, m.Up.W.Frozen())
	}
	_, err := peft.Apply(newPlain(), t.TempDir())
	require.ErrorIs(t, err, os.ErrNotExist)
}

// A rank in a config does not make adapters of gigabytes, without the file that has them.
func TestConfigBomb(t *testing.T) {
	text := `{"peft_type": "LORA", "r": 65536, "lora_alpha": 4, "target_modules": ["up", "down"]}`
	wide := func() *plain { return &plain{nn.NewLinear(300, 5), nn.NewLinear(5, 300)} }
	dir, m := folder(t, text), wide()
	reliability.Bounded(t, len(text), func() {
		_, err := peft.Apply(m, dir)
		require.ErrorContains(t, err, "adapters of the rank 65536: it would take more than")
		require.ErrorContains(t, err, "to train new ones, call nn.LoRA")
		require.Nil(t, m.Up.Adapter)
	})
	require.NoError(t, os.WriteFile(filepath.Join(dir, peft.File), make([]byte, 10<<20), 0o666))
	_, err := peft.Apply(wide(), dir)
	require.NoError(t, err, "the file may hold them")
}

// FuzzApply: no text makes Apply panic, or take more memory than the text justifies.
func FuzzApply(f *testing.F) {
	f.Add(`{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["up", "down"], "bias": "none", "lora_dropout": 0.1}`)
	f.Add(`{"peft_type": "LORA", "r": 1000000000000, "lora_alpha": 1e300, "target_modules": ["["]}`)
	f.Fuzz(func(t *testing.T, text string) {
		dir := folder(t, text)
		reliability.Bounded(t, len(text), func() { _, _ = peft.Apply(newPlain(), dir) })
	})
}

func ExampleApply() {
	dir, err := os.MkdirTemp("", "peft")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	config := `{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["up", "down"]}`
	if err := os.WriteFile(filepath.Join(dir, "adapter_config.json"), []byte(config), 0o666); err != nil {
		panic(err)
	}
	m := newPlain()
	adapters, err := peft.Apply(m, dir)
	if err != nil {
		panic(err)
	}
	nn.Init(m, cpu.New(1), tensor.Float32, 1)
	fmt.Println(adapters.Names())
	// Output: [up.lora_A.weight up.lora_B.weight down.lora_A.weight down.lora_B.weight]
}
