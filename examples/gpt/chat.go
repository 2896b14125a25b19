package main

import (
	"cmp"
	"context"
	"slices"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/data/chat"
	"github.com/ringo-ml/ringo/examples/internal/lm"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
	"github.com/ringo-ml/ringo/train"
)

// corpus is what the model learns from: a text, or conversations.
type corpus struct {
	*lm.Corpus
	chat *chat.Dataset           // Learn; nil: a text, of which all labels count
	test ops.CrossEntropyOptions // of Test: losses of its batches, divided by the mean number of labels of a row
}

// corpus reads it, in the tokens and with the chat template of -load.
func (o *options) corpus() (*corpus, error) {
	if o.chat == "" {
		text, err := o.Corpus()
		return &corpus{Corpus: text, test: ops.CrossEntropyOptions{Count: float64(o.Seq)}}, err
	}
	tok, _, err1 := o.Tokenizer()
	template, err2 := chat.Open(o.Load)
	m, err3 := o.newModel()
	if err := cmp.Or(err1, err2, err3); err != nil {
		return nil, train.Usagef("-load: %v", err)
	}
	all, err := chat.Read(o.chat, tok, template, chat.Config{Length: o.Seq, Pack: m.Pos == nil}) // learned positions begin with a row
	if err != nil {
		return nil, err
	}
	parts, err := all.Split(o.Seed, 0.9, 0.1)
	if err != nil {
		return nil, err
	}
	c := &corpus{Corpus: &lm.Corpus{Tokenizer: tok, Learn: parts[0], Test: parts[1], Ends: template.Ends(tok)}, chat: parts[0]}
	return c, c.examine(parts[1])
}

// examine sets the options of the test's loss, and has -sample answer its first question.
func (c *corpus) examine(test *chat.Dataset) error {
	all, labels := data.NewLoader(test, data.Config{Batch: 16}), 0.0
	for _, b := range all.Epoch(context.Background(), 0) {
		c.test = test.Loss(b)
		labels += c.test.Count
		first := slices.IndexFunc(tensor.Data[int64](b.Y), func(label int64) bool { return label != chat.Ignored })
		if c.Begin == nil {
			for _, id := range tensor.Data[int64](b.X)[:first+1] {
				c.Begin = append(c.Begin, int(id))
			}
		}
	}
	c.test.Count = labels / float64(test.Len())
	return all.Err()
}

// options are those of the loss of a batch of Learn.
func (c *corpus) options(b data.Batch) []ops.CrossEntropyOptions {
	if c.chat == nil {
		return nil
	}
	return []ops.CrossEntropyOptions{c.chat.Loss(b)}
}
