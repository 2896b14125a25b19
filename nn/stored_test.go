package nn

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor"
)

// fused keeps Q and KV in one tensor, as GPT-2's files do.
type fused struct {
	Q, KV *Linear
	Out   *Linear `nn:"out,transposed"`
}

func (*fused) Stored(name string, dims []int) ([]tensor.Stored, bool) {
	const d = 4
	first := map[string]int{"q.weight": 0, "q.bias": 0, "kv.weight": d, "kv.bias": d}
	stored := map[string]string{"q.weight": "c.weight", "kv.weight": "c.weight", "q.bias": "c.bias", "kv.bias": "c.bias"}[name]
	if stored == "" {
		return nil, false
	}
	rows := dims[0]
	dims[0] = -1 // a copy
	return []tensor.Stored{{Name: stored, Rows: rows, First: first[name], Total: 3 * d}}, true
}

func newFused() *fused { return &fused{NewLinear(4, 4), NewLinear(4, 8), NewLinear(4, 4)} }

// by is a model whose names in files a function gives.
type by struct {
	H    []*fused
	Head *Linear
	f    func(name string, dims []int) ([]tensor.Stored, bool)
}

func (m *by) Stored(name string, dims []int) ([]tensor.Stored, bool) { return m.f(name, dims) }

func TestStorer(t *testing.T) {
	m := &by{H: []*fused{newFused(), newFused()}, Head: NewLinear(4, 2)}
	var asked []string
	m.f = func(name string, dims []int) ([]tensor.Stored, bool) {
		asked = append(asked, name)
		switch name {
		case "head.weight":
			return []tensor.Stored{{Name: "lm_head", Rows: 2, Total: 2}}, false
		case "h.1.q.bias": // outer before inner
			return []tensor.Stored{{Name: "mine", Rows: 4, Total: 4}}, false
		}
		return nil, true // says nothing
	}
	model := struct{ Base *by }{m}
	ps := ParamsOf(&model)
	require.Equal(t, len(ps), len(asked))
	assert.Contains(t, asked, "h.0.kv.weight", "names below the Storer")
	for name, want := range map[string][]tensor.Stored{
		"base.head.weight":    {{Name: "base.lm_head", Rows: 2, Total: 2}},
		"base.head.bias":      nil,
		"base.h.0.q.weight":   {{Name: "base.h.0.c.weight", Rows: 4, Total: 12}},
		"base.h.0.kv.weight":  {{Name: "base.h.0.c.weight", Rows: 8, First: 4, Total: 12}},
		"base.h.1.kv.bias":    {{Name: "base.h.1.c.bias", Rows: 8, First: 4, Total: 12}},
		"base.h.1.q.bias":     {{Name: "base.mine", Rows: 4, Total: 4}},
		"base.h.1.out.weight": nil,
	} {
		assert.Equal(t, want, ps.ByName(name).Stored(), name)
	}
	for name, want := range map[string]bool{
		"base.h.0.q.weight": true, "base.h.0.q.bias": false, "base.h.0.out.weight": true, "base.head.weight": false,
	} {
		assert.Equal(t, want, ps.ByName(name).Transposed(), name)
	}
	m.f = func(string, []int) ([]tensor.Stored, bool) { return nil, false }
	assert.Nil(t, ParamsOf(&model).ByName("base.head.weight").Stored(), "asked anew")
}

func TestStorerMisuse(t *testing.T) {
	all := func(name string, rows, first, total int) []tensor.Stored {
		return []tensor.Stored{{Name: name, Rows: rows, First: first, Total: total}}
	}
	for name, c := range map[string]struct {
		f    func(name string, dims []int) ([]tensor.Stored, bool)
		want string
	}{
		"twice": {func(_ string, dims []int) ([]tensor.Stored, bool) { return all("x", dims[0], 0, dims[0]), false },
			`head.weight[2 4] and head.bias[2] cannot both be stored in "x"`},
		"own name": {func(n string, _ []int) ([]tensor.Stored, bool) {
			return map[string][]tensor.Stored{"head.weight": all("head.bias", 2, 0, 2)}[n], false
		}, "overlap"},
		"other rows": {func(n string, dims []int) ([]tensor.Stored, bool) { return all("x", 2, 2*(2-len(dims)), 4), false },
			"rows of another shape or transposed"},
		"other total": {func(n string, dims []int) ([]tensor.Stored, bool) {
			return all("x", 2, 2*(2-len(dims)), 6-len(dims)), false
		}, "disagree"},
		"too few": {func(n string, dims []int) ([]tensor.Stored, bool) { return all("x", 1, 0, 1), false },
			"SetStored head.weight: shape [2 4]: the segments [x[0:1 of 1]] have 1 of 2 rows"},
		"no name": {func(n string, dims []int) ([]tensor.Stored, bool) { return all("", 2, 0, 2), false }, "names no tensor"},
	} {
		t.Run(name, func(t *testing.T) {
			err := tensor.Try(func() { ParamsOf(&by{Head: NewLinear(4, 2), f: c.f}) })
			require.ErrorContains(t, err, c.want)
		})
	}
}
