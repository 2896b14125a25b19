package tokenizer

import (
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

	// for Metaspace, Prepend, Replace, Split and Strip
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

// patterns are those of Split.
var patterns = map[pattern]func(string) int{{Regex: llama3Pattern}: splitLlama3, {Regex: qwen2Pattern}: splitQwen2}

const maxSteps = 8

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

func types(s []step) string {
	all := ""
	for _, s := range s {
		all += " " + s.Type
	}
	return all
}

func or[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

// form finds the form of the file: what it does with a text before and after the model.
func (t *Tokenizer) form(f *file, m *model) error {
	t.chars = m.ByteFallback
	normal, err := steps(f.Normalizer, "NFC", "Prepend", "Replace")
	if err != nil {
		return fmt.Errorf("normalizer: %w", err)
	}
	words, err := steps(f.Words, "ByteLevel", "Split", "Metaspace")
	if err != nil {
		return fmt.Errorf("pre_tokenizer: %w", err)
	}
	decode, err := steps(f.Decoder, "ByteLevel", "Replace", "ByteFallback", "Fuse", "Strip")
	if err != nil {
		return fmt.Errorf("decoder: %w", err)
	}
	if t.chars {
		return t.characters(normal, words, decode)
	}
	return t.byteLevel(normal, words, decode)
}

// byteLevel is the form of GPT-2's and Llama 3's files.
func (t *Tokenizer) byteLevel(normal, words, decode []step) error {
	switch types(normal) {
	case "":
	case " NFC":
		t.nfc = true
	default:
		return fmt.Errorf("normalizer:%s is not supported for bytes: there is NFC", types(normal))
	}
	if types(decode) != " ByteLevel" {
		return fmt.Errorf("decoder:%s is not supported for bytes: there is ByteLevel", types(decode))
	}
	switch types(words) {
	case " ByteLevel":
		if !or(words[0].UseRegex, true) {
			return errors.New("pre_tokenizer: ByteLevel without use_regex and without Split is not supported")
		}
		t.split = splitGPT2
	case " Split ByteLevel":
		s := words[0]
		split, ok := patterns[or(s.Pattern, pattern{})]
		if !ok || s.Behavior != "Isolated" || s.Invert {
			return fmt.Errorf("pre_tokenizer: Split with behavior %q, invert %v and pattern %+v is not supported: there are Llama 3's, %q, "+
				"and Qwen2's, %q, isolated", s.Behavior, s.Invert, or(s.Pattern, pattern{}), llama3Pattern, qwen2Pattern)
		}
		t.split = split
		if or(words[1].UseRegex, true) || or(words[1].PrefixSpace, true) {
			return errors.New("pre_tokenizer: ByteLevel with use_regex or add_prefix_space behind Split is not supported")
		}
	default:
		return fmt.Errorf("pre_tokenizer:%s is not supported for bytes: there are ByteLevel, and Split with ByteLevel", types(words))
	}
	if or(words[0].PrefixSpace, words[0].Type == "ByteLevel") {
		t.spaces = spaceBefore
	}
	return nil
}

// characters is the form of Llama 2's files.
func (t *Tokenizer) characters(normal, words, decode []step) error {
	switch types(normal) + " |" + types(words) {
	case " Prepend Replace |":
		if normal[0].Prepend != underscore || !replaces(normal[1], " ", underscore) {
			return fmt.Errorf("normalizer: only ▁ is supported: to prepend it, and in place of a space")
		}
		t.spaces = underscores
	case " | Metaspace":
		s := words[0]
		scheme, ok := map[string]spaces{"always": metaAlways, "first": metaFirst, "never": metaNever}[s.Scheme]
		if !ok || s.Replacement != underscore || or(s.Split, true) || s.PrefixSpace != nil {
			return fmt.Errorf("pre_tokenizer: Metaspace with replacement %q, prepend_scheme %q and split %v is not supported",
				s.Replacement, s.Scheme, or(s.Split, true))
		}
		t.spaces = scheme
	default:
		return fmt.Errorf("normalizer:%s and pre_tokenizer:%s are not supported with byte_fallback: there are Prepend with Replace, or Metaspace",
			types(normal), types(words))
	}
	switch types(decode) {
	case " Replace ByteFallback Fuse":
	case " Replace ByteFallback Fuse Strip":
		if s := decode[3]; s.Content != " " || s.Start != 1 || s.Stop != 0 {
			return fmt.Errorf("decoder: Strip of %d %q and %d is not supported: there is that of one space at the beginning",
				s.Start, s.Content, s.Stop)
		}
		t.strip = true
	default:
		return fmt.Errorf("decoder:%s is not supported with byte_fallback: there are Replace, ByteFallback, Fuse, and Strip", types(decode))
	}
	if !replaces(decode[0], underscore, " ") {
		return errors.New("decoder: Replace is only supported of ▁ by a space")
	}
	return nil
}

func replaces(s step, old, by string) bool {
	return s.Pattern != nil && *s.Pattern == pattern{String: old} && s.Content == by
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
