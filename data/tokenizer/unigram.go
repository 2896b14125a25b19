package tokenizer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"unicode/utf8"

	"github.com/ringo-ml/ringo/internal/bounded"
)

// unigram cuts a word so that the sum of its tokens' scores, which are logarithms of probabilities, is the largest (Kudo 2018).
type unigram struct {
	tokens       []scored   // sorted by text, each text once
	first        [257]int32 // where the tokens begin that begin with a byte
	unknown      int32
	unknownScore float64 // of a character without a token of its own
	bytes        []int32 // the token of each byte; nil: characters without a token are unknown
}

// scored is a token: ["▁the", -3.2] in a file.
type scored struct {
	text  string
	score float64
	id    int32
}

func (s *scored) UnmarshalJSON(text []byte) error {
	var both []json.RawMessage
	if err := json.Unmarshal(text, &both); err != nil {
		return err
	}
	if len(both) != 2 {
		return fmt.Errorf("a token of %d values, not of a text and a score", len(both))
	}
	return cmp.Or(json.Unmarshal(both[0], &s.text), json.Unmarshal(both[1], &s.score))
}

type unigramFile struct {
	Type         string   `json:"type"`
	Unknown      *int     `json:"unk_id"`
	ByteFallback bool     `json:"byte_fallback"`
	Vocab        []scored `json:"vocab"`
}

const (
	unknownPenalty = 10
	maxUnigram     = 1 << 10 // bytes of a token: encoding takes so many steps for each byte at most
)

func (t *Tokenizer) readUnigram(m *unigramFile) error {
	if m.Unknown == nil || *m.Unknown < 0 || *m.Unknown >= len(m.Vocab) {
		return errors.New("a Unigram without the unk_id of a token is not supported")
	}
	u := &unigram{tokens: m.Vocab, unknown: int32(*m.Unknown), unknownScore: math.Inf(1)}
	t.model = u
	for id := range u.tokens {
		s := &u.tokens[id]
		s.id = int32(id)
		u.unknownScore = min(u.unknownScore, s.score-unknownPenalty)
		if len(s.text) > maxUnigram {
			return fmt.Errorf("the token %s is longer than %d bytes", bounded.Quote(s.text), maxUnigram)
		}
		if err := t.name(s.text, id); err != nil {
			return err
		}
	}
	slices.SortFunc(u.tokens, func(a, b scored) int { return cmp.Or(cmp.Compare(a.text, b.text), cmp.Compare(b.id, a.id)) })
	u.tokens = slices.CompactFunc(u.tokens, func(a, b scored) bool { return a.text == b.text }) // the last of a file counts
	u.tokens = slices.DeleteFunc(u.tokens, func(s scored) bool { return s.text == "" })
	for b := range u.first {
		u.first[b] = int32(sort.Search(len(u.tokens), func(i int) bool { return int(u.tokens[i].text[0]) >= b }))
	}
	if m.ByteFallback {
		u.bytes = make([]int32, 256)
		for b := range u.bytes {
			id, ok := u.find(fmt.Sprintf("<0x%02X>", b))
			if !ok {
				return fmt.Errorf("byte_fallback: the vocabulary has no token <0x%02X>", b)
			}
			u.bytes[b] = id
		}
	}
	return nil
}

func (u *unigram) find(text string) (int32, bool) {
	at, ok := slices.BinarySearchFunc(u.tokens, text, func(s scored, text string) int { return cmp.Compare(s.text, text) })
	if !ok {
		return 0, false
	}
	return u.tokens[at].id, true
}

// lattice is the work on a word. One is reused for all words of a text.
type lattice struct {
	*unigram
	ends  []best   // the best way to each byte of the word
	parts []string // of the word, from its end
	steps int      // tokens that were looked at, for tests
}

// best is the last token of the best way to a place.
type best struct {
	score float64 // of the whole way
	from  int     // where the token begins, or none
	id    int32
}

func (u *unigram) worker() worker { return &lattice{unigram: u} }

func (l *lattice) encode(ids []int, s string) []int {
	l.ends = l.ends[:0]
	for range len(s) + 1 {
		l.ends = append(l.ends, best{from: none})
	}
	l.ends[0].score = 0
	for at := 0; at < len(s); {
		_, n := utf8.DecodeRuneInString(s[at:])
		if !l.prefixes(s, at, n) {
			l.reach(at, at+n, l.unknownScore, l.unknown)
		}
		at += n
	}
	l.parts = l.parts[:0]
	fused := 0 // bytes of unknown characters, one behind another
	for at := len(s); at > 0; at = l.ends[at].from {
		b := l.ends[at]
		if b.id == l.unknown {
			fused += at - b.from
			continue
		}
		if fused > 0 {
			l.parts = append(l.parts, s[at:at+fused])
		}
		l.parts = append(l.parts, s[b.from:at])
		fused = 0
	}
	if fused > 0 {
		l.parts = append(l.parts, s[:fused])
	}
	for _, part := range slices.Backward(l.parts) {
		ids = l.append(ids, part)
	}
	return ids
}

func (l *lattice) append(ids []int, part string) []int {
	if id, ok := l.find(part); ok {
		return append(ids, int(id))
	}
	if l.bytes == nil {
		return append(ids, int(l.unknown))
	}
	for _, b := range []byte(part) {
		ids = append(ids, int(l.bytes[b]))
	}
	return ids
}

// prefixes reaches the ends of all tokens that the text has at a place, and tells whether one is its first character, of n bytes.
func (l *lattice) prefixes(s string, at, n int) (one bool) {
	lo, hi := int(l.first[s[at]]), int(l.first[int(s[at])+1])
	for d := 1; lo < hi; d++ {
		l.steps++
		if t := &l.tokens[lo]; len(t.text) == d {
			l.reach(at, at+d, t.score, t.id)
			one = one || d == n
			lo++
		}
		if at+d == len(s) {
			break
		}
		c := s[at+d]
		lo += sort.Search(hi-lo, func(i int) bool { return l.tokens[lo+i].text[d] >= c })
		hi = lo + sort.Search(hi-lo, func(i int) bool { return l.tokens[lo+i].text[d] > c })
	}
	return one
}

// reach keeps a token if the way over it is better than what was there.
func (l *lattice) reach(from, to int, score float64, id int32) {
	score += l.ends[from].score
	if b := &l.ends[to]; b.from == none || score > b.score {
		*b = best{score, from, id}
	}
}
