package lm

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/ckpt/peft"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/train"
)

// model returns the model without values.
func (o *Options) model() (*gpt.Model, error) {
	if o.load == "" {
		m, err := gpt.New(gpt.Config{Kind: gpt.Llama, Vocab: 256, Positions: o.seq, Width: o.dim, Layers: o.layers, Heads: o.heads,
			KVHeads: o.kvHeads})
		if err == nil {
			o.mix(m)
		}
		return m, err
	}
	m, err := gpt.Open(o.load)
	if err != nil || o.lora == 0 {
		return m, err
	}
	targets := []string{"blocks.*"}
	if m.Config.Kind == gpt.GPT2 { // in its files, queries, keys and values are one matrix, and PEFT has no names for adapters of its parts
		targets = []string{"blocks.*.attn.out", "blocks.*.mlp.*"}
	}
	nn.LoRA(m, nn.LoRAConfig{Rank: o.lora, Alpha: 2 * float64(o.lora), Targets: targets})
	return m, nil
}

// checkModel returns an error if the options do not describe a model, or if it does not fit the tokens.
func (o *Options) checkModel() error {
	switch {
	case o.lora < 0:
		return train.Usagef("-lora %d: a rank is at least 1", o.lora)
	case o.lora > 0 && o.load == "":
		return train.Usagef("-lora needs -load: adapters stand on a trained model")
	}
	for _, name := range []string{"layers", "dim", "heads", "kv-heads"} {
		if o.load != "" && o.given[name] {
			return train.Usagef("-%s: the model is that of -load", name)
		}
	}
	m, err := o.model()
	switch {
	case err != nil && o.load != "":
		return train.Usagef("-load: %v", err)
	case err != nil:
		return train.Usagef("-layers, -dim, -heads, -kv-heads, -seq: %v", err)
	case m.Config.Positions < o.seq:
		return train.Usagef("-seq %d: the model of %s has %d positions", o.seq, o.load, m.Config.Positions)
	}
	tok, bytes, err := o.tokenizer()
	switch {
	case err != nil:
		return train.Usagef("-load: %v", err)
	case tok.Vocab() > m.Config.Vocab:
		return train.Usagef("-load: the tokenizer of %s has %d tokens, the model %d", o.load, tok.Vocab(), m.Config.Vocab)
	case bytes && m.Config.Vocab != 256:
		return train.Usagef("-load: %s has no %s, so that tokens are bytes, and the model has %d tokens: transformers writes it, by "+
			"AutoTokenizer.from_pretrained(folder).save_pretrained(folder)", o.load, tokenizerFile, m.Config.Vocab)
	}
	return nil
}

// shape describes what must be the same when a training resumes. Parameters of another model may have the same sizes, and would load.
func (o *Options) shape(c gpt.Config) string {
	s := fmt.Sprintf("-layers %d -dim %d -heads %d -kv-heads %d -seq %d", c.Layers, c.Width, c.Heads, c.KVHeads, o.seq)
	if o.lora > 0 {
		s += fmt.Sprintf(" -lora %d", o.lora)
	}
	return s
}

// base loads the model's values before an optimizer copies them. It returns the parameters to save: all, or only adapters, with the base
// that they need.
func (t *trainer) base(ctx context.Context) (saved nn.Params, base *ckpt.Base, err error) {
	if t.o.load == "" {
		return t.Params, nil, nil
	}
	loaded, saved := t.Params, t.Params
	if t.o.lora > 0 {
		loaded, saved = t.Params.Frozen(), t.Params.Trainable()
	}
	c := t.model.LoadConfig()
	switch {
	case t.stages != nil:
		c.Strategy = ckpt.Owned
	case t.Shards == nil && t.o.tp == 1:
		c.Strategy = ckpt.Broadcast
	}
	if _, err := ckpt.Load(ctx, t.r.World, t.o.load, &ckpt.State{Params: loaded}, c); err != nil {
		return nil, nil, err
	}
	if t.o.lora > 0 && t.o.Save != "" {
		base, err = ckpt.BaseOf(ctx, t.r.World, t.o.load, loaded, c)
	}
	return saved, base, err
}

// files returns the other files that readers of a checkpoint need.
func (t *trainer) files() (map[string][]byte, error) {
	if t.o.lora > 0 || t.o.mixture.experts > 0 { // config.json describes a plain model
		return nil, nil
	}
	return t.model.Files()
}

// close ends the training. It also writes adapters in PEFT's format.
func (t *trainer) close() error {
	going := t.loop.Going()
	if err := t.loop.Close(); err != nil || !going || t.o.lora == 0 || t.o.Save == "" || t.r.World.Rank() != 0 {
		return err
	}
	last, err := ckpt.Latest(t.o.Save)
	if err != nil {
		return err
	}
	return peft.Export(t.model, last, filepath.Join(t.o.Save, "adapters"))
}
