package inspect_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/ckpt/inspect"
	"github.com/ringo-ml/ringo/internal/misuse"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// The errors of inspect's functions for wrong use.
func TestMisuse(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	unsound := dir +
		" is not sound: there is neither ringo.json nor model.safetensors.index.json nor model.safetensors: no complete checkpoint"
	from := t.TempDir()
	params := nn.Init(nn.NewLinear(2, 3), cpu.New(1), tensor.Float32, 1)
	require.NoError(t, ckpt.SaveFile(ctx, filepath.Join(from, "model.safetensors"), ckpt.State{Params: params}))
	large, half := t.TempDir(), tensor.Float16
	tensor.Data[float32](params[0].Value)[4] = 1e5
	require.NoError(t, ckpt.SaveFile(ctx, filepath.Join(large, "model.safetensors"), ckpt.State{Params: params}))
	misuse.Check(t, []misuse.Case{
		{Of: "List", Want: "ckpt: " + unsound, Do: func() error { _, _, err := inspect.List(dir); return err }},
		{Of: "Diff", Want: "ckpt: " + unsound, Do: func() error { _, err := inspect.Diff(ctx, dir, dir, nil); return err }},
		{Of: "Convert", Want: "ckpt: converting " + dir + ": " + unsound, Do: func() error {
			return inspect.Convert(ctx, dir, filepath.Join(dir, "to"), inspect.ConvertConfig{})
		}},
		{Of: "Convert", Want: "ckpt: converting " + from + ": " +
			from + "/a/to is inside of it, and would be a foreign file there: choose another folder", Do: func() error {
			return inspect.Convert(ctx, from, filepath.Join(from, "a", "to"), inspect.ConvertConfig{})
		}},
		{Of: "Convert", Want: "ckpt: converting " + large +
			": model.safetensors: tensor \"weight\": 1 values of float32 are too large for float16: take a wider type", Do: func() error {
			return inspect.Convert(ctx, large, filepath.Join(t.TempDir(), "to"), inspect.ConvertConfig{DType: &half})
		}},
		{Of: "Verify", Want: `ckpt: layout "sp=2": the axes are cp, dp, ep, fsdp, pp, ring and tp, not "sp"`, Do: func() error {
			_, err := inspect.Verify(ctx, dir, inspect.VerifyConfig{Layout: "sp=2"})
			return err
		}},
	}, nil)
}
