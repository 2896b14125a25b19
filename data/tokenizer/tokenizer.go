package tokenizer

import (
	"fmt"
	"slices"
	"strings"
)

// A Tokenizer turns text into tokens and back. It is safe for use by several goroutines.
type Tokenizer struct {
	pieces map[int]string // text of each token
	ids    map[string]int // by the tokens' names in the file
	vocab  int

	bpe
	plain, normalized *matcher // added tokens to find before and after the normalizer
	before, after     []int    // tokens that the file adds around a text

	nfc    bool // the text is normalized, except in plain
	spaces spaces
	split  func(string) int // the length of the first word of a text that is not empty; nil: the text is one word
	strip  bool             // Decode drops a space at the beginning
}

// spaces says how spaces are replaced before a text is cut into words.
type spaces int

const (
	spacesStay  spaces = iota
	spaceBefore        // a space is added before each part of a text
	underscores        // ▁ for each, and one more before each part of a text: a normalizer
	metaAlways         // the same, unless there is one already: a pre-tokenizer
	metaFirst          // the same, but only at the beginning of the text
	metaNever          // ▁ for each
)

const underscore = "▁" // SentencePiece's space, U+2581

// Bytes returns the tokenizer whose tokens 0 to 255 are the bytes of the text.
func Bytes() *Tokenizer {
	t := &Tokenizer{pieces: map[int]string{}, ids: map[string]int{}, vocab: 256}
	for b := range 256 {
		s := string([]byte{byte(b)})
		t.bytes[b], t.pieces[b], t.ids[s] = int32(b), s, b
	}
	t.split = func(s string) int { return min(len(s), 4096) }
	return t
}

// Vocab returns the largest id plus one, added tokens included: the smallest Vocab for the model's Config.
func (t *Tokenizer) Vocab() int { return t.vocab }

// ID returns the id of a token by its name in the file, such as "<|endoftext|>", and whether there is one.
func (t *Tokenizer) ID(name string) (int, bool) {
	id, ok := t.ids[name]
	return id, ok
}

// Encode returns the tokens of a text. It adds no tokens before or after it, like encode with add_special_tokens=False in Hugging Face's
// tokenizers. The time grows with n log n of the text's length. For Llama 2's tokenizer the whole text is one word, which needs about 50
// bytes of memory for each byte: encode the documents of a long text one by one.
func (t *Tokenizer) Encode(text string) []int {
	w := word{bpe: &t.bpe}
	t.plain.each(text, func(at int, part string, id int) {
		if id >= 0 {
			w.ids = append(w.ids, id)
			return
		}
		if t.spaces == underscores {
			part = underscored(underscore + part)
		}
		if t.nfc {
			part = nfc(part)
		}
		t.normalized.each(part, func(within int, part string, id int) {
			if id >= 0 {
				w.ids = append(w.ids, id)
			} else {
				t.words(&w, part, at+within == 0)
			}
		})
	})
	return w.ids
}

// words encodes a part of a text without added tokens; first says whether it is the first part.
func (t *Tokenizer) words(w *word, s string, first bool) {
	before := ""
	switch t.spaces {
	case spaceBefore:
		before = " "
	case metaAlways, metaFirst, metaNever:
		s = underscored(s)
		if t.spaces == metaAlways || t.spaces == metaFirst && first {
			before = underscore
		}
	}
	if !strings.HasPrefix(s, before) {
		s = before + s
	}
	for s != "" {
		n := len(s)
		if t.split != nil {
			n = t.split(s)
		}
		w.encode(s[:n])
		s = s[n:]
	}
}

func underscored(s string) string { return strings.ReplaceAll(s, " ", underscore) }

// Prompt returns the tokens of a text, and those that the file adds before and after it, such as Llama's <|begin_of_text|>: the result of
// transformers' tokenizer(text).
func (t *Tokenizer) Prompt(text string) []int {
	return slices.Concat(t.before, t.Encode(text), t.after)
}

// Decode returns the text of tokens, including that of special tokens. It may begin or end inside a character. As in Hugging Face's
// tokenizers, the space that Llama 2's tokenizer adds at the beginning is dropped. An id without a token is an error.
func (t *Tokenizer) Decode(ids []int) (string, error) {
	var text strings.Builder
	for i, id := range ids {
		piece, ok := t.pieces[id]
		if !ok {
			return "", fmt.Errorf("tokenizer: id %d, at %d, is not the id of a token: there are %d tokens, with ids below %d",
				id, i, len(t.pieces), t.vocab)
		}
		text.WriteString(piece)
	}
	if t.strip {
		return strings.TrimPrefix(text.String(), " "), nil
	}
	return text.String(), nil
}

// Piece returns the text of a token, with its space if it has one. It may be a part of a character. It is "" for an id without a token:
// models may have more logits than there are tokens.
func (t *Tokenizer) Piece(id int) string { return t.pieces[id] }
