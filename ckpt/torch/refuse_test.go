package torch

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/bounded"
)

// dict makes a dict of keys and values in turn.
func dict(t *testing.T, kv ...any) *Dict {
	t.Helper()
	d := &Dict{}
	for i := 0; i < len(kv); i += 2 {
		require.NoError(t, d.set(kv[i], kv[i+1]))
	}
	return d
}

// TestPartsRefuses has trees whose meaning is not clear, with the expected errors.
func TestPartsRefuses(t *testing.T) {
	x, err := newTensor(&storage{r: strings.NewReader("12345678"), bytes: 8}, "F32", 0, []int{2}, []int{1})
	require.NoError(t, err)
	one := func(state *Dict, groups ...any) *Dict {
		return dict(t, "model", dict(t, "w", x, "v", x), "optimizer", dict(t, "state", state, "param_groups", &List{groups}))
	}
	group := func(lr float64, params ...any) *Dict { return dict(t, "lr", lr, "params", &List{params}) }
	for _, c := range []struct {
		name string
		root any
		says string
	}{
		{"a tensor", x, "torch: it holds Tensor, no dict with the tensors of a model"},
		{"no model", dict(t, "net", dict(t, "w", x)),
			"torch: no model: the keys are net, and none of them is one of model, model_state_dict, state_dict, module"},
		{"two models", dict(t, "model", dict(t, "w", x), "state_dict", dict(t, "w", x)), "torch: model and state_dict may both be the model"},
		{"two optimizers", dict(t, "model", dict(t, "w", x), "optim", &Dict{}, "optimizer", &Dict{}),
			"torch: optimizer and optim may both be the optimizer"},
		{"an empty model", dict(t, "model", &Dict{}), "torch: the model has no tensors"},
		{"one name twice", dict(t, "model", dict(t, "a.b", x, "a", dict(t, "b", x))), `torch: two tensors have the name "a.b"`},
		{"no optimizer", dict(t, "model", dict(t, "w", x), "optimizer", dict(t, "lr", 0.1)),
			`torch: optimizer: the key "lr" is not of an optimizer`},
		{"not in the model", one(&Dict{}, group(1, "u")), `torch: optimizer: its parameter "u" is not in the model`},
		{"not in a group", one(dict(t, "v", &Dict{}), group(1, "w")),
			`torch: optimizer: the state of v is dict, or it is in none of the param_groups`},
		{"a parameter twice", one(&Dict{}, group(1, "w", "w")), `torch: optimizer: its parameter w is there twice`},
		{"fewer numbers than tensors", one(&Dict{},
			group(1, int64(0))), `torch: optimizer: it numbers 1 parameters in 1 groups, and the model has 2 tensors: which is which is not said; ` +
			`make it with named_parameters(), save it by get_optimizer_state_dict, or take the model alone`},
		{"numbers in another order", one(&Dict{}, group(1, int64(1),
			int64(0))), `torch: optimizer: it numbers 2 parameters in 1 groups, and the model has 2 tensors: which is which is not said; ` +
			`make it with named_parameters(), save it by get_optimizer_state_dict, or take the model alone`},
		{"two learning rates", one(&Dict{}, group(1, "w"), group(2, "v")),
			`torch: optimizer: its groups have 2 learning rates, such as [1 2], and a checkpoint has one; take the model alone`},
		{"amsgrad", one(dict(t, "w", dict(t, "max_exp_avg_sq", x)), group(1, "w")),
			`torch: optimizer: w has max_exp_avg_sq, which no optimizer here has; take the model alone`},
		{"half a step", one(dict(t, "w", dict(t, "step", 0.5)), group(1, "w")), `torch: optimizer: the step of w: 0.5 is no number of steps`},
		{"a moment of another shape", one(dict(t, "w", dict(t, "exp_avg", &Tensor{DType: "F32", Shape: []int{3}})), group(1, "w")),
			`torch: optimizer: exp_avg of w is F32[3], not a tensor of the shape [2]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := (&Checkpoint{Root: c.root, budget: bounded.New(0)}).Parts(false)
			require.EqualError(t, err, c.says)
		})
	}
}

// TestEncode: bytes that protocol 2 wrote as a string.
func TestEncode(t *testing.T) {
	text := "X\x64\x00\x00\x00" + strings.Repeat("x", 100) + "q\x000X\x06\x00\x00\x00latin1q\x010c_codecs\nencode\nq\x020"
	once := "h\x02h\x00h\x01\x86R"
	v, err := unpickle("p", []byte(proto+text+once+"."), bounded.New(0), nil)
	require.NoError(t, err)
	require.Len(t, v, 100)
}

// TestViewRefused: a conjugated tensor is refused, because its values differ from those in its storage.
func TestViewRefused(t *testing.T) {
	x := &storage{r: strings.NewReader("12345678"), dtype: "C64", bytes: 8}
	args := Tuple{x, int64(0), Tuple{int64(1)}, Tuple{int64(1)}, false, &Dict{}, dict(t, "conj", true)}
	m := &machine{budget: bounded.New(0)}
	_, err := rebuild(m, args)
	require.EqualError(t, err, "a view that is conjugated or negated is not read")
	args[6] = &Dict{}
	_, err = rebuild(m, args)
	require.NoError(t, err)
}

// TestPlaceRefused: data that a transform (such as compression) changed is refused.
func TestPlaceRefused(t *testing.T) {
	index := &Object{Class: Name{metadata, "MetadataIndex"}, State: dict(t, "fqn", "w", "offset", Tuple{int64(0)})}
	info := dict(t, "relative_path", "f", "offset", int64(0), "length", int64(1))
	d := &folder{Checkpoint: &Checkpoint{budget: bounded.New(0)}, places: map[string]place{}}
	v := &Object{Class: Name{"torch.distributed.checkpoint.filesystem", "_StorageInfo"}, State: info}
	require.NoError(t, d.addPlace(index, v))
	require.EqualError(t, d.addPlace(index, v), `"w": the chunk at [0] is there twice`)
	require.NoError(t, info.set("transform_descriptors", &List{[]any{"zstd"}}))
	require.EqualError(t, d.addPlace(index, v), `"w": it was stored with 1 transforms, such as "zstd", which are not read`)
}

// TestGap: two chunks at the same place leave another place without elements.
func TestGap(t *testing.T) {
	store := &storage{r: strings.NewReader("1234567812345678"), bytes: 16}
	x, err := newTensor(store, "F32", 0, []int{2}, []int{1})
	require.NoError(t, err)
	whole := &Tensor{DType: "F32", Shape: []int{4}, n: 4, chunks: []*chunk{x.chunks[0], x.chunks[0]}}
	n, err := whole.ReadAt(make([]byte, 16), 0)
	require.EqualError(t, err, "element [2] is in no chunk")
	require.Equal(t, 8, n)
	_, err = whole.ReadAt(make([]byte, 3), 0)
	require.EqualError(t, err, "3 bytes at 0 are no whole elements of F32")
}
