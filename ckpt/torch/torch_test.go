package torch

import (
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// want is a tensor as PyTorch had it (testdata/write.py).
type want struct {
	DType string
	Shape []int
	Hex   string
}

func expected(t *testing.T) (all map[string]map[string]want) {
	t.Helper()
	text, err := os.ReadFile("testdata/expect.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &all))
	return all
}

// leaves lists the tensors of a tree, by the keys that lead to them.
func leaves(v any, path []string, out map[string]*Tensor) {
	switch v := v.(type) {
	case *Tensor:
		out[strings.Join(path, "/")] = v
	case *Dict:
		for i, k := range v.Keys {
			leaves(v.Values[i], append(slices.Clone(path), keyText(k)), out)
		}
	}
}

// content reads a tensor, some elements at a time.
func content(t *testing.T, x *Tensor, elements int) string {
	t.Helper()
	size := x.DType.Bits() / 8
	var out []byte
	for off := int64(0); off < x.Bytes(); off += int64(elements * size) {
		b := make([]byte, min(int64(elements*size), x.Bytes()-off))
		_, err := x.ReadAt(b, off)
		require.NoError(t, err)
		out = append(out, b...)
	}
	return hex.EncodeToString(out)
}

// TestFixtures: every tensor has the same bits as in PyTorch, however it is read.
func TestFixtures(t *testing.T) {
	all := expected(t)
	require.Len(t, all, 10)
	for name, tensors := range all {
		c, err := Open(filepath.Join("testdata", name))
		require.NoError(t, err)
		got := map[string]*Tensor{}
		leaves(c.Root, nil, got)
		require.Len(t, got, len(tensors), name)
		for path, w := range tensors {
			x := got[path]
			require.NotNil(t, x, "%s: %s", name, path)
			require.Equal(t, w.DType, string(x.DType), "%s: %s", name, path)
			require.Equal(t, w.Shape, x.Shape, "%s: %s", name, path)
			for _, elements := range []int{1, 2, 5, 1000} {
				require.Equal(t, w.Hex, content(t, x, elements), "%s: %s, %d at a time", name, path, elements)
			}
			_, err := x.ReadAt(make([]byte, x.DType.Bits()/8), x.Bytes())
			require.Equal(t, io.EOF, err)
			for _, chunk := range x.chunks {
				require.Nil(t, chunk.span, "memory is left after the last element")
			}
		}
		require.NoError(t, c.Close())
	}
}

// TestStateHasEveryLayout checks that the fixture also has tensors that are not contiguous.
func TestStateHasEveryLayout(t *testing.T) {
	c, err := Open("testdata/state.pt")
	require.NoError(t, err)
	defer c.Close()
	root := c.Root.(*Dict)
	for name, stride := range map[string][]int{
		"transposed": {1, 6}, "every.other": {2}, "window": {6, 1}, "permuted": {1, 12, 4}, "scalar": {},
	} {
		require.Equal(t, stride, root.Get(name).(*Tensor).chunks[0].stride, name)
	}
	require.Equal(t, root.Get("transposed").(*Tensor).chunks[0].store.r.(*io.SectionReader).Size(), int64(96), "the whole of a shared storage")
}

// TestChunks: a tensor that two processes wrote has two chunks.
func TestChunks(t *testing.T) {
	c, err := Open("testdata/tree2")
	require.NoError(t, err)
	defer c.Close()
	model := c.Root.(*Dict).Get("model").(*Dict)
	for name, offset := range map[string][]int{"rows": {4, 0}, "cols": {0, 3}} {
		x := model.Get(name).(*Tensor)
		require.Len(t, x.chunks, 2)
		require.Equal(t, offset, x.chunks[1].offset)
	}
	require.Len(t, c.files, 3)
	require.Equal(t, int64(3), c.Root.(*Dict).Get("epoch"))
	require.Equal(t, "as it is", c.Root.(*Dict).Get("note"))
}

// TestParts finds the model and the optimizer under every supported key.
func TestParts(t *testing.T) {
	all := expected(t)
	for _, k := range []struct {
		file, model, state string
		numbers            bool
		steps              int
		lr                 float64
		moments            []string
		leftOut            []string
	}{
		{"module.pt", "", "", false, 0, 0, nil, nil},
		{"adamw.pt", "model/", "optimizer/state/", true, 2, 0.01, []string{"exp_avg", "exp_avg_sq"}, []string{"bytes: bytes"}},
		{"sgd.pt", "state_dict/", "optimizer/state/", true, 1, 0.1, []string{"momentum_buffer"}, []string{"ema: 1 tensors"}},
		{"fsdp1", "model/", "optim/state/", false, 2, 0.01, []string{"exp_avg", "exp_avg_sq"}, nil},
		{"fsdp2", "model/", "optim/state/", false, 2, 0.01, []string{"exp_avg", "exp_avg_sq"}, nil},
		{"flat1", "model/", "optim/state.", false, 2, 0.01, []string{"exp_avg", "exp_avg_sq"}, nil},
		{"tree2", "model/", "", false, 0, 0, nil, nil},
	} {
		c, err := Open(filepath.Join("testdata", k.file))
		require.NoError(t, err)
		p, err := c.Parts(false)
		require.NoError(t, err, k.file)
		require.Equal(t, k.leftOut, p.LeftOut)
		tensors := 0
		for i, x := range p.Model {
			require.Equal(t, all[k.file][k.model+x.Name].Hex, content(t, x.Tensor, 3), "%s: %s", k.file, x.Name)
			for _, m := range k.moments {
				key := k.state + x.Name + "/" + m
				switch {
				case k.numbers:
					key = k.state + keyText(int64(i)) + "/" + m
				case strings.HasSuffix(k.state, "."):
					key = k.state + x.Name + "." + m
				}
				at := slices.IndexFunc(p.Optimizer.Tensors, func(y Named) bool { return y.Name == x.Name+"."+m })
				require.GreaterOrEqual(t, at, 0, "%s: %s", k.file, x.Name)
				require.Equal(t, all[k.file][key].Hex, content(t, p.Optimizer.Tensors[at].Tensor, 3), "%s: %s", k.file, key)
				tensors++
			}
		}
		if k.moments == nil {
			require.Nil(t, p.Optimizer)
		} else {
			require.Len(t, p.Optimizer.Tensors, tensors)
			require.Equal(t, k.steps, p.Optimizer.Steps)
			require.Equal(t, k.lr, p.Optimizer.LR)
			require.Len(t, p.Optimizer.Counts, len(p.Model))
			require.Equal(t, k.lr, p.Extra["param_groups"].([]any)[0].(map[string]any)["lr"])
			for _, n := range p.Optimizer.Counts {
				require.Equal(t, k.steps, n)
			}
		}
		require.NoError(t, c.Close())
	}
}

// TestAmbiguous: with two groups, the numbers of parameters do not say which parameters they are.
func TestAmbiguous(t *testing.T) {
	c, err := Open("testdata/groups.pt")
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Parts(false)
	require.EqualError(t, err, "torch: optimizer: it numbers 2 parameters in 2 groups, and the model has 4 tensors: "+
		"which is which is not said; make it with named_parameters(), save it by get_optimizer_state_dict, or take the model alone")
	p, err := c.Parts(true)
	require.NoError(t, err)
	require.Len(t, p.Model, 4)
	require.Equal(t, []string{"optimizer"}, p.LeftOut)
}

// TestLightning: of Lightning's files, the model, the numbers, and the state of one optimizer are taken, or named as left out.
func TestLightning(t *testing.T) {
	c, err := Open("testdata/adamw.pt")
	require.NoError(t, err)
	defer c.Close()
	model, optimizer := c.Root.(*Dict).Get("model").(*Dict), c.Root.(*Dict).Get("optimizer")
	larger := &Dict{}
	for i, k := range model.Keys {
		require.NoError(t, larger.set(k, model.Values[i]))
	}
	require.NoError(t, larger.set("running_mean", model.Values[0]))
	parts := func(model *Dict, modelOnly bool, states ...any) *Parts {
		root := &Dict{}
		for _, pair := range [][2]any{{"epoch", int64(3)}, {"global_step", int64(40)}, {"pytorch-lightning_version", "2.5.0"},
			{"state_dict", model}, {"optimizer_states", &List{Items: states}}, {"lr_schedulers", &List{}}} {
			require.NoError(t, root.set(pair[0], pair[1]))
		}
		c.Root = root
		p, err := c.Parts(modelOnly)
		require.NoError(t, err)
		require.Len(t, p.Model, len(model.Keys))
		require.Equal(t, int64(40), p.Extra["global_step"])
		return p
	}
	p := parts(model, false, optimizer)
	require.Empty(t, p.LeftOut)
	require.Equal(t, 2, p.Optimizer.Steps)
	require.Len(t, p.Optimizer.Tensors, 2*len(model.Keys))

	for want, p := range map[string]*Parts{
		"optimizer_states: 24 tensors": parts(model, false, optimizer, optimizer),
		"optimizer_states: 12 tensors": parts(model, true, optimizer),
		"optimizer_states: it numbers 4 parameters in 1 groups, and the model has 5 tensors: which is which is not said": parts(larger, false,
			optimizer),
		`optimizer_states: the key "a" is not of an optimizer`: parts(model, false, &Dict{Keys: []any{"a"}, Values: []any{nil}}),
	} {
		require.Nil(t, p.Optimizer)
		require.Len(t, p.LeftOut, 1)
		require.Contains(t, p.LeftOut[0], want)
	}
}
