package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/ckpt/peft"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

type ckptMergeCmd struct {
	Base     string `arg:"" help:"The model: a folder of Hugging Face's form that models/gpt reads."`
	Adapters string `arg:"" help:"The adapters: a folder of PEFT's form."`
	To       string `arg:"" help:"The folder to make."`
	DType    string `name:"dtype" default:"float32" placeholder:"TYPE" help:"Type of the result's floats, such as bfloat16."`

	dtype tensor.DType
}

// Help is the text below the flags of `ringo ckpt merge -h`.
func (*ckptMergeCmd) Help() string {
	return `The result is a model without adapters that computes what the base does with them. Sums are in float32, and rounded once to -dtype:

  ringo ckpt merge -dtype bfloat16 base adapters merged`
}

// Run merges.
func (c *ckptMergeCmd) Run() (err error) {
	if c.dtype, err = tensor.ParseDType(c.DType); err != nil || !c.dtype.IsFloat() {
		return usageOf("ckpt merge", "-dtype %q is no type of floats", c.DType)
	}
	if err := os.Mkdir(c.To, 0o777); err != nil {
		return err
	}
	err = withProgress("merging", func(ctx context.Context, _ func(done, total int64)) error {
		return dist.Run(ctx, dist.Config{Ranks: 1}, c.merge)
	})
	if err != nil {
		os.RemoveAll(c.To)
		return err
	}
	fmt.Println(c.To)
	return nil
}

func (c *ckptMergeCmd) merge(ctx context.Context, r *dist.Rank) error {
	m, err := gpt.Open(c.Base)
	if err != nil {
		return err
	}
	adapters, err := peft.Apply(m, c.Adapters)
	if err != nil {
		return err
	}
	params := nn.Init(m, r.Device, tensor.Float32, 0)
	if _, err := ckpt.Load(ctx, r.World, c.Base, &ckpt.State{Params: params.Base()}, m.LoadConfig()); err != nil {
		return err
	}
	values := filepath.Join(c.Adapters, peft.File)
	if _, err := ckpt.Load(ctx, r.World, values, &ckpt.State{Params: adapters}, peft.LoadConfig(m)); err != nil {
		return err
	}
	nn.Merge(m)
	if c.dtype != tensor.Float32 {
		if m, err = c.cast(m, r.Device); err != nil {
			return err
		}
	}
	files, err := m.Files()
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(c.To, name), text, 0o666); err != nil {
			return err
		}
	}
	return ckpt.SaveFile(ctx, filepath.Join(c.To, "model.safetensors"), ckpt.State{Params: nn.ParamsOf(m)})
}

// cast returns a model with values of the result's type.
func (c *ckptMergeCmd) cast(m *gpt.Model, dev tensor.Device) (*gpt.Model, error) {
	to, err := gpt.Open(c.Base)
	if err != nil {
		return nil, err
	}
	params, tape := nn.Init(to, dev, c.dtype, 0), tensor.NewTape(dev, tensor.NoGrad())
	defer tape.Close()
	for i, p := range nn.ParamsOf(m) {
		tensor.Copy(params[i].Value, tape.Use(p).Cast(c.dtype))
		tape.Reset()
	}
	return to, nil
}
