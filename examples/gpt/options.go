package main

import (
	"cmp"
	"flag"
	"strings"

	"github.com/ringo-ml/ringo/examples/internal/lm"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/pp"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/train"
)

type options struct {
	lm.Options
	micro    int // microbatches of a step
	schedule string
	chunks   int // stages of a rank in an interleaved schedule (Megatron: virtual pipeline); parallel.Config.Chunks is -async
	chat     string
}

// define defines the flags. Call the returned function after they are parsed.
func define(fs *flag.FlagSet) func() options {
	var o options
	parsed := o.Flags(fs)
	fs.IntVar(&o.PP, "pp", 1, "ranks that have some layers each, as stages of a pipeline; then no text is written at the end")
	fs.IntVar(&o.micro, "micro", 8, "with -pp: microbatches of a step")
	fs.StringVar(&o.schedule, "schedule", "1f1b", "with -pp: "+strings.Join(pp.Names(), ", "))
	fs.IntVar(&o.chunks, "chunks", 2, "with -schedule interleaved: stages of each rank")
	fs.StringVar(&o.chat, "chat", "", "with -load: `file` of conversations, in each line {\"messages\": [...]}, to learn the answers of")
	return func() options {
		parsed()
		return o
	}
}

// check returns an error for impossible options, and sets the default learning rate.
func (o *options) check() (tensor.DType, error) {
	dtype, err := o.Check()
	return dtype, cmp.Or(err, o.checkModel(), o.checkPipeline())
}

func (o *options) checkPipeline() error {
	for _, name := range []string{"micro", "schedule", "chunks"} {
		if o.PP <= 1 && o.Given[name] {
			return train.Usagef("-%s needs -pp", name)
		}
	}
	switch {
	case o.PP <= 1:
		return nil
	case o.micro < 1 || o.Batch%o.micro != 0:
		return train.Usagef("-micro %d: microbatches of -batch %d sequences must be at least 1, and divide them", o.micro, o.Batch)
	case o.Given["sample"] && o.Sample > 0:
		return train.Usagef("-sample %d: stages write no text", o.Sample)
	case o.schedule == "forward":
		return train.Usagef("-schedule forward trains nothing")
	}
	if _, err := pp.ByName(o.schedule, o.PP, o.chunks, o.micro); err != nil {
		return train.Usagef("-schedule: %v", err)
	}
	return nil
}

// newModel returns the model without values.
func (o *options) newModel() (*gpt.Model, error) {
	if o.Load == "" {
		return o.Llama()
	}
	m, err := gpt.Open(o.Load)
	if err != nil {
		return nil, train.Usagef("-load: %v", err)
	}
	if o.LoRA > 0 {
		cfg := nn.LoRAConfig{Rank: o.LoRA, Alpha: 2 * float64(o.LoRA), Targets: []string{"blocks.*"}, Save: o.LoRASave}
		if err := tensor.Try(func() { nn.LoRA(m, cfg) }); err != nil {
			return nil, train.Usagef("-lora-save: %v", err)
		}
	}
	return m, nil
}

// checkModel returns an error if the options do not describe a model, or if it does not fit the tokens.
func (o *options) checkModel() error {
	for _, name := range []string{"layers", "dim", "heads", "kv-heads"} {
		if o.Load != "" && o.Given[name] {
			return train.Usagef("-%s: the model is that of -load", name)
		}
	}
	m, err := o.newModel()
	if err != nil {
		return err
	}
	if m.Config.Positions < o.Seq {
		return train.Usagef("-seq %d: the model of %s has %d positions", o.Seq, o.Load, m.Config.Positions)
	}
	tok, bytes, err := o.Tokenizer()
	switch {
	case o.chat != "" && (o.Load == "" || o.Data != ""):
		return train.Usagef("-chat needs -load, whose chat template it takes, and is in place of -data")
	case err != nil:
		return train.Usagef("-load: %v", err)
	case tok.Vocab() > m.Config.Vocab:
		return train.Usagef("-load: the tokenizer of %s has %d tokens, the model %d", o.Load, tok.Vocab(), m.Config.Vocab)
	case bytes && m.Config.Vocab != 256:
		return train.Usagef("-load: %s has no tokenizer.json, so that tokens are bytes, and the model has %d tokens: transformers writes it, by "+
			"AutoTokenizer.from_pretrained(folder).save_pretrained(folder)", o.Load, m.Config.Vocab)
	}
	return nil
}
