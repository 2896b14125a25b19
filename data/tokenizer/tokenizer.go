package tokenizer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Tokenizer turns text into tokens and back. It is safe for use by several goroutines.
type Tokenizer struct {
	pieces map[int]string // text of each token, unless it is the first
	names  map[int]string // as the decoder reads them; nil: the texts
	ids    map[string]int // by the tokens' names in the file
	vocab  int

	plain, normalized *matcher // added tokens to find before and after the normalizers
	normal            []normalizer
	longer, times     int // how many bytes they prepend, and how many times longer they can make a text
	cutters           []cutter
	ofBytes           bool // the cutters, model and decoder are for bytes: ByteLevel
	model             model
	decoder           decoder
	before, after     []int // tokens that the file adds around a text
}

// model knows the tokens of a word.
type model interface {
	worker() worker // for one goroutine
}

type worker interface {
	encode(ids []int, word string) []int // appends the tokens of a word that is not empty
}

// Bytes returns the tokenizer whose tokens 0 to 255 are the bytes of the text.
func Bytes() *Tokenizer {
	t, b := &Tokenizer{pieces: map[int]string{}, ids: map[string]int{}, vocab: 256}, &bpe{}
	for i := range 256 {
		s := string([]byte{byte(i)})
		b.bytes[i], t.pieces[i], t.ids[s] = int32(i), s, i
	}
	t.model = b
	t.cutters = []cutter{by(func(s string) int { return min(len(s), 4096) })}
	return t
}

// Vocab returns the largest id plus one, added tokens included: the smallest Vocab for the model's Config.
func (t *Tokenizer) Vocab() int { return t.vocab }

// ID returns the id of a token by its name in the file, such as "<|endoftext|>", and whether there is one.
func (t *Tokenizer) ID(name string) (int, bool) {
	id, ok := t.ids[name]
	return id, ok
}

// IsAdded reports whether a token is an added one, such as "<|im_end|>", which Encode looks for before it cuts a text into words.
func (t *Tokenizer) IsAdded(id int) bool {
	for _, m := range []*matcher{t.plain, t.normalized} {
		if m != nil && slices.ContainsFunc(slices.Collect(maps.Values(m.tokens)), func(a addedToken) bool { return a.ID == id }) {
			return true
		}
	}
	return false
}

// Encode returns the tokens of a text. It adds no tokens before or after it, like encode with add_special_tokens=False in Hugging Face's
// tokenizers. The time grows with n log n of the text's length. For Llama 2's tokenizer the whole text is one word, which needs about 50
// bytes of memory for each byte: encode the documents of a long text one by one.
func (t *Tokenizer) Encode(text string) []int {
	var ids []int
	w := t.model.worker()
	t.plain.each(text, func(at int, part string, id int) {
		if id >= 0 {
			ids = append(ids, id)
			return
		}
		t.normalized.each(t.normalize(part), func(within int, part string, id int) {
			if id >= 0 {
				ids = append(ids, id)
				return
			}
			t.cut(0, part, at+within == 0, func(word string) { ids = w.encode(ids, word) })
		})
	})
	return ids
}

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
		if i == 0 && t.names != nil {
			piece = t.decoder.piece(t.names[id], true)
		}
		text.WriteString(piece)
	}
	all := text.String()
	for _, f := range t.decoder.whole {
		all = f(all)
	}
	return all, nil
}

// Piece returns the text of a token behind others, with its space if it has one. It may be a part of a character. It is "" for an id
// without a token: models may have more logits than there are tokens.
func (t *Tokenizer) Piece(id int) string { return t.pieces[id] }
