package tokenizer

import (
	"fmt"
	"unicode/utf8"

	"github.com/ringo-ml/ringo/internal/bounded"
)

// wordPiece takes from the beginning of a word the longest token that there is, again and again (Schuster and Nakajima 2012).
type wordPiece struct {
	tokens  map[string]int
	prefix  string // of the names of tokens that do not begin a word
	unknown int    // the token of a word that cannot be cut
	most    int    // characters of a word; a longer one is unknown
	longest int    // bytes of a token
}

type wordPieceFile struct {
	Type    string         `json:"type"`
	Unknown string         `json:"unk_token"`
	Prefix  string         `json:"continuing_subword_prefix"`
	Most    int            `json:"max_input_chars_per_word"`
	Vocab   map[string]int `json:"vocab"`
}

const maxPieces = 1000 // characters of a word: encoding takes so many steps for each of them at most

func (t *Tokenizer) readWordPiece(m *wordPieceFile) error {
	unknown, ok := m.Vocab[m.Unknown]
	if !ok {
		return fmt.Errorf("WordPiece: the vocabulary has no unk_token %s", bounded.Quote(m.Unknown))
	}
	if m.Most < 0 || m.Most > maxPieces {
		return fmt.Errorf("WordPiece: max_input_chars_per_word %d is not supported: it may be up to %d", m.Most, maxPieces)
	}
	w := &wordPiece{m.Vocab, m.Prefix, unknown, m.Most, 0}
	for name, id := range m.Vocab {
		if err := t.name(name, id); err != nil {
			return err
		}
		w.longest = max(w.longest, len(name))
	}
	t.model = w
	return nil
}

// pieces is the work on a word.
type pieces struct {
	*wordPiece
	name  []byte // the prefix, and the rest of the word
	steps int    // names that were looked for, for tests
}

func (w *wordPiece) worker() worker { return &pieces{wordPiece: w} }

func (p *pieces) encode(ids []int, word string) []int {
	before := len(ids)
	if utf8.RuneCountInString(word) > p.most {
		return append(ids, p.unknown)
	}
	p.name = append(p.name[:0], word...)
	for at := 0; at < len(word); {
		id, n := p.longestAt(word[at:])
		if n == 0 {
			return append(ids[:before], p.unknown)
		}
		ids = append(ids, id)
		at += n
		p.name = append(append(p.name[:0], p.prefix...), word[at:]...)
	}
	return ids
}

// longestAt returns the longest token at the beginning of the rest of a word, and how many bytes of it that is, or 0.
func (p *pieces) longestAt(rest string) (id, n int) {
	prefix := len(p.name) - len(rest)
	n = len(rest)
	for n > 0 {
		if prefix+n <= p.longest {
			p.steps++
			if id, ok := p.tokens[string(p.name[:prefix+n])]; ok {
				return id, n
			}
		}
		_, size := utf8.DecodeLastRuneInString(rest[:n])
		n -= size
	}
	return 0, 0
}
