package tokenizer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// step is one step that a file does with a text before or after the model. Optional fields are pointers.
type step struct {
	Type string `json:"type"`

	// of a Sequence
	Normalizers   []json.RawMessage `json:"normalizers"`
	Pretokenizers []json.RawMessage `json:"pretokenizers"`
	Processors    []json.RawMessage `json:"processors"`
	Decoders      []json.RawMessage `json:"decoders"`

	// for ByteLevel
	PrefixSpace *bool `json:"add_prefix_space"`
	UseRegex    *bool `json:"use_regex"`
	TrimOffsets bool  `json:"trim_offsets"` // no effect: there are no offsets here

	// for Metaspace, Prepend, Replace, Split, Strip and WordPiece
	Replacement string   `json:"replacement"`
	Scheme      string   `json:"prepend_scheme"`
	Split       *bool    `json:"split"`
	Prepend     string   `json:"prepend"`
	Pattern     *pattern `json:"pattern"`
	Content     string   `json:"content"`
	Behavior    string   `json:"behavior"`
	Invert      bool     `json:"invert"`
	Start       int      `json:"start"`
	Stop        int      `json:"stop"`
	StripLeft   bool     `json:"strip_left"`
	StripRight  bool     `json:"strip_right"`
	OldMark     string   `json:"str_rep"` // no effect: it is replacement
	Individual  bool     `json:"individual_digits"`
	Charsmap    string   `json:"precompiled_charsmap"`
	Prefix      string   `json:"prefix"`
	Cleanup     bool     `json:"cleanup"`

	// for BertNormalizer
	CleanText    bool  `json:"clean_text"`
	Chinese      bool  `json:"handle_chinese_chars"`
	StripAccents *bool `json:"strip_accents"`
	Lowercase    bool  `json:"lowercase"`

	// for TemplateProcessing
	Single   []place             `json:"single"`
	Pair     json.RawMessage     `json:"pair"` // for two texts, which are not supported here
	Specials map[string]template `json:"special_tokens"`
}

type pattern struct{ String, Regex string }

// place is a part of a template: a special token or the text.
type place struct {
	Special *named `json:"SpecialToken"`
	Text    *named `json:"Sequence"`
}

type named struct {
	ID   string `json:"id"`
	Type int    `json:"type_id"`
}

type template struct {
	ID     string   `json:"id"`
	IDs    []int    `json:"ids"`
	Tokens []string `json:"tokens"`
}

const (
	maxSteps  = 8
	maxGrowth = 1 << 14 // of a text by normalizers
	maxAround = 1 << 10 // tokens around a text
)

// steps reads a step, a Sequence of steps, or null.
func steps(text json.RawMessage, known ...string) ([]step, error) {
	if len(text) == 0 || string(text) == "null" {
		return nil, nil
	}
	var s step
	if err := typed(text, &s, append(known, "Sequence")...); err != nil {
		return nil, err
	}
	if s.Type != "Sequence" {
		return []step{s}, nil
	}
	list := slices.Concat(s.Normalizers, s.Pretokenizers, s.Processors, s.Decoders) // only one of them is set
	if len(list) > maxSteps {
		return nil, fmt.Errorf("a Sequence of %d is not supported", len(list))
	}
	all := make([]step, len(list))
	for i, text := range list {
		if err := typed(text, &all[i], known...); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func or[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

// pipeline reads what a file does with a text before and after the model.
func (t *Tokenizer) pipeline(f *file) error {
	normal, err := steps(f.Normalizer, "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Strip", "StripAccents", "Prepend", "Replace",
		"BertNormalizer", "Precompiled")
	t.times = 1
	keeps := true // the first character stays the first
	for _, s := range normal {
		n, e := readNormalizer(s)
		t.normal, err = append(t.normal, n), cmp.Or(err, e)
		keeps = keeps && s.Type == "NFC"
		t.longer += len(s.Prepend)
		if t.times *= s.growth(); t.times > maxGrowth {
			err = cmp.Or(err, fmt.Errorf("steps that may make a text more than %d times longer are not supported", maxGrowth))
			break
		}
	}
	if err != nil {
		return fmt.Errorf("normalizer: %w", err)
	}
	words, err := steps(f.Words, "ByteLevel", "Split", "Metaspace", "WhitespaceSplit", "BertPreTokenizer", "Digits")
	if err != nil {
		return fmt.Errorf("pre_tokenizer: %w", err)
	}
	first := false
	if t.cutters, first, err = readCutters(words); err == nil && first && !keeps {
		err = errors.New("a Metaspace with prepend_scheme first is not supported behind normalizers other than NFC")
	}
	if err != nil {
		return fmt.Errorf("pre_tokenizer: %w", err)
	}
	decode, err := steps(f.Decoder, "ByteLevel", "Replace", "ByteFallback", "Fuse", "Strip", "Metaspace", "WordPiece")
	if err == nil {
		t.decoder, err = readDecoder(decode)
	}
	if err != nil {
		return fmt.Errorf("decoder: %w", err)
	}
	t.ofBytes = len(words) > 0 && words[len(words)-1].Type == "ByteLevel"
	if t.ofBytes != (decode[0].Type == "ByteLevel") {
		return errors.New("ByteLevel must be both the last pre_tokenizer and the decoder")
	}
	return nil
}

// around reads what is added before and after a text.
func (t *Tokenizer) around(text json.RawMessage) error {
	all, err := steps(text, "ByteLevel", "TemplateProcessing")
	if err != nil {
		return err
	}
	texts := 0
	for _, s := range all {
		if s.Type == "ByteLevel" { // changes only offsets
			continue
		}
		for _, p := range s.Single {
			if p.Text != nil && p.Special == nil && p.Text.ID == "A" {
				texts++
				continue
			}
			if p.Special == nil || p.Text != nil {
				return errors.New("TemplateProcessing: a place is neither a special token nor the text A")
			}
			ids := s.Specials[p.Special.ID].IDs
			for _, id := range ids {
				if _, ok := t.pieces[id]; !ok {
					return fmt.Errorf("TemplateProcessing: %q has the id %d, which no token has", p.Special.ID, id)
				}
			}
			if len(t.before)+len(t.after)+len(ids) > maxAround {
				return fmt.Errorf("TemplateProcessing: more than %d tokens", maxAround)
			}
			if len(ids) == 0 {
				return fmt.Errorf("TemplateProcessing: %q has no ids", p.Special.ID)
			}
			if texts == 0 {
				t.before = append(t.before, ids...)
			} else {
				t.after = append(t.after, ids...)
			}
		}
		if texts != 1 {
			return fmt.Errorf("TemplateProcessing: the text stands %d times in the templates", texts)
		}
	}
	return nil
}
