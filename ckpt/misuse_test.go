package ckpt_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/misuse"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// The errors of ckpt's functions for wrong use.
func TestMisuse(t *testing.T) {
	dir := t.TempDir()
	ctx := t.Context()
	require.NoError(t, dist.Run(ctx, dist.Config{Threads: 1}, func(_ context.Context, r *dist.Rank) error {
		params := nn.Init(nn.NewLinear(2, 3), r.Device, tensor.Float32, 1)
		saver := ckpt.NewSaver(r.World, filepath.Join(dir, "saved"), ckpt.Config{})
		disttest.OK(saver.Save(ctx, ckpt.State{Step: 3, Params: params}))
		other := nn.Init(nn.NewLinear(2, 4), r.Device, tensor.Float32, 1)
		load := func(path string, params nn.Params) func() error {
			return func() error {
				_, err := ckpt.Load(ctx, r.World, path, &ckpt.State{Params: params}, ckpt.LoadConfig{})
				return err
			}
		}
		saved := disttest.Must(ckpt.Latest(filepath.Join(dir, "saved")))
		files := disttest.Must(wrongFiles(ctx, r, dir, params))
		cases := append(slices.Concat(files, wrongNumbers(ctx, r, dir, saved, params)), []misuse.Case{
			{Of: "Saver.Save", Want: "ckpt: saving step 3: " + dir + "/saved has step 3 already: resume from it, or choose another directory",
				Do: func() error { return saver.Save(ctx, ckpt.State{Step: 3, Params: params}) }},
			{Of: "Saver.Save", Want: "ckpt: step 4 is not saved: rank 0: weight was never made: call nn.Init or Attach first",
				Do: func() error { return saver.Save(ctx, ckpt.State{Step: 4, Params: nn.ParamsOf(nn.NewLinear(2, 3))}) }},
			{Of: "Load", Want: "ckpt: loading " + saved + ": the checkpoint does not fit: of another shape or type: model:bias is float32[3], " +
				"not float32[4], model:weight is float32[3,2], not float32[4,2]", Do: load(saved, other)},
			{Of: "Load", Want: "ckpt: loading " + dir + ": " + dir + " is not sound: there is neither ringo.json nor model.safetensors.index.json " +
				"nor model.safetensors: no complete checkpoint", Do: load(dir, params)},
			{Of: "BaseOf", Want: "ckpt: reading the base " + dir + ": " +
				dir + " is not sound: there is neither ringo.json nor model.safetensors.index.json nor model.safetensors: no complete checkpoint",
				Do: func() error { _, err := ckpt.BaseOf(ctx, r.World, dir, params, ckpt.LoadConfig{}); return err }},
			{Of: "Latest", Want: "ckpt: no checkpoint in " + dir + ": file does not exist",
				Do: func() error { _, err := ckpt.Latest(dir); return err }},
			{Of: "ParseRules", Want: `"[": syntax error in pattern`,
				Do: func() error { _, err := ckpt.ParseRules([]byte(`{"[": {"dim": 0}}`)); return err }},
		}...)
		misuse.Check(t, cases, map[string]string{
			"NewSaver": "Save says what is wrong with the directory",
			"Steps":    "a directory without checkpoints has none",
		})
		return nil
	}))
}

// wrongFiles are wrong uses of SaveFile and LoadFile.
func wrongFiles(ctx context.Context, r *dist.Rank, dir string, params nn.Params) ([]misuse.Case, error) {
	other := nn.Init(nn.NewLinear(2, 4), r.Device, tensor.Float32, 1)
	file := filepath.Join(dir, "file.safetensors")
	disttest.OK(ckpt.SaveFile(ctx, file, ckpt.State{Params: params}))
	double := nn.Init(nn.NewLinear(2, 3), r.Device, tensor.Float64, 1)
	sequence := nn.Init(nn.Sequential{nn.NewLinear(2, 3)}, r.Device, tensor.Float32, 1)
	loadFile := func(path string, params nn.Params) func() error {
		return func() error {
			_, err := ckpt.LoadFile(ctx, path, &ckpt.State{Params: params}, ckpt.LoadConfig{})
			return err
		}
	}
	return []misuse.Case{
		{Of: "SaveFile", Want: "ckpt: saving " + dir + "/a.pt: the name of the file must end in .safetensors",
			Do: func() error { return ckpt.SaveFile(ctx, dir+"/a.pt", ckpt.State{Params: params}) }},
		{Of: "SaveFile", Want: "ckpt: saving " + dir + "/no/a.safetensors: open " + dir + "/no/.lock-a.safetensors: no such file or directory",
			Do: func() error { return ckpt.SaveFile(ctx, dir+"/no/a.safetensors", ckpt.State{Params: params}) }},
		{Of: "SaveFile", Want: "ckpt: saving a.safetensors: weight was never made: call nn.Init or Attach first", Do: func() error {
			return ckpt.SaveFile(ctx, "a.safetensors", ckpt.State{Params: nn.ParamsOf(nn.NewLinear(2, 3))})
		}},
		{Of: "SaveFile", Want: "ckpt: saving a.safetensors: State.Files are for a folder: write them yourself, or use a Saver", Do: func() error {
			return ckpt.SaveFile(ctx, "a.safetensors", ckpt.State{Params: params, Files: map[string][]byte{"config.json": nil}})
		}},
		{Of: "LoadFile", Want: "ckpt: loading " + file + ": the checkpoint does not fit: of another shape or type: model:bias is float32[3], " +
			"not float32[4], model:weight is float32[3,2], not float32[4,2]", Do: loadFile(file, other)},
		{Of: "LoadFile", Want: "ckpt: loading " + file + ": the checkpoint does not fit: of another shape or type: model:bias is float32[3], " +
			"not float64[3], model:weight is float32[3,2], not float64[3,2]", Do: loadFile(file, double)},
		{Of: "LoadFile", Want: "ckpt: loading " + file + ": the checkpoint does not fit: missing: model:0.bias, model:0.weight; unexpected: " +
			"model:bias, model:weight", Do: loadFile(file, sequence)},
		{Of: "LoadFile", Want: "ckpt: loading " + file + ": the State is nil", Do: func() error {
			_, err := ckpt.LoadFile(ctx, file, nil, ckpt.LoadConfig{})
			return err
		}},
		{Of: "LoadFile", Want: "ckpt: loading " + dir + ": the name of the file must end in .safetensors", Do: loadFile(dir, params)},
	}, nil
}

// wrongNumbers are wrong uses that would be silent, if they were not errors.
func wrongNumbers(ctx context.Context, r *dist.Rank, dir, saved string, params nn.Params) []misuse.Case {
	saver, file := ckpt.NewSaver(r.World, filepath.Join(dir, "numbers"), ckpt.Config{}), filepath.Join(dir, "numbers.safetensors")
	return []misuse.Case{
		{Of: "Saver.Save", Want: "ckpt: step -1 is not saved: rank 0: State.Step is -1: it is the number of steps done",
			Do: func() error { return saver.Save(ctx, ckpt.State{Step: -1, Params: params}) }},
		{Of: "Saver.Save", Want: "ckpt: step 4 is not saved: rank 0: Config.Keep is -1: it is the number of checkpoints to keep, " +
			"and 0 keeps all", Do: func() error {
			s := ckpt.NewSaver(r.World, filepath.Join(dir, "kept"), ckpt.Config{Keep: -1})
			return errors.Join(s.Save(ctx, ckpt.State{Step: 4, Params: params}), s.Close())
		}},
		{Of: "Load", Want: "ckpt: loading " + saved + ": the State is nil",
			Do: func() error { _, err := ckpt.Load(ctx, r.World, saved, nil, ckpt.LoadConfig{}); return err }},
		{Of: "Load", Want: "ckpt: loading " + saved + ": LoadConfig.Strategy is 9: it is Sharded, Broadcast or Owned", Do: func() error {
			_, err := ckpt.Load(ctx, r.World, saved, &ckpt.State{Params: params}, ckpt.LoadConfig{Strategy: 9})
			return err
		}},
		{Of: "ParseRules", Want: `json: unknown field "dimm"`,
			Do: func() error { _, err := ckpt.ParseRules([]byte(`{"*.weight": {"dimm": 0}}`)); return err }},
		{Of: "ParseRules", Want: "there is more behind the rules", Do: func() error { _, err := ckpt.ParseRules([]byte(`{} {}`)); return err }},
		{Of: "SaveFile", Want: "ckpt: saving " + file + ": State.Step is -3: it is the number of steps done",
			Do: func() error { return ckpt.SaveFile(ctx, file, ckpt.State{Step: -3, Params: params}) }},
	}
}
