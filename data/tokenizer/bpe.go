package tokenizer

import "unicode/utf8"

// bpe holds the data of byte pair encoding.
type bpe struct {
	bytes  [256]int32       // the token of each byte
	chars  bool             // a word begins as characters, with bytes only for characters without a token; if not set, it begins as bytes
	tokens map[string]int32 // by their text in a word
	whole  bool             // a word that is a token is not split: ignore_merges
	merges map[pair]merge
}

type pair struct{ left, right int32 }

// merge replaces two tokens by one. Lower ranks are done first.
type merge struct{ rank, id int32 }

// word is merged in place. One word is reused for all words of a text.
type word struct {
	*bpe
	symbols []symbol
	queue   []uint64 // a heap of candidates
}

// symbol is a token of the word; its index is where its text begins.
type symbol struct {
	id         int32 // none: merged into the one before
	prev, next int   // indices, or none
}

const none = -1

// A candidate is a rank and a place. The first one has the lowest rank and, of those, the leftmost place. A file of maxFile has fewer than
// 1<<24 merges.
const placeBits = 40

func (b *bpe) worker() worker { return &word{bpe: b} }

func (w *word) encode(ids []int, s string) []int {
	if w.whole {
		if id, ok := w.tokens[s]; ok {
			return append(ids, int(id))
		}
	}
	w.begin(s)
	for at := range w.symbols {
		w.propose(at)
	}
	for len(w.queue) > 0 {
		w.apply(w.pop())
	}
	for at := 0; at != none; at = w.symbols[at].next {
		ids = append(ids, int(w.symbols[at].id))
	}
	return ids
}

// begin makes the symbols of a word that is not empty.
func (w *word) begin(s string) {
	w.symbols = w.symbols[:0]
	for len(s) > 0 {
		n := 1
		if w.chars {
			_, n = utf8.DecodeRuneInString(s)
			if id, ok := w.tokens[s[:n]]; ok {
				w.add(id)
				s = s[n:]
				continue
			}
		}
		for _, b := range []byte(s[:n]) {
			w.add(w.bytes[b])
		}
		s = s[n:]
	}
	w.symbols[len(w.symbols)-1].next = none
}

func (w *word) add(id int32) {
	n := len(w.symbols)
	w.symbols = append(w.symbols, symbol{id, n - 1, n + 1})
}

// rule returns the merge of a symbol and the next one.
func (w *word) rule(at int) (merge, bool) {
	next := w.symbols[at].next
	if next == none {
		return merge{}, false
	}
	m, ok := w.merges[pair{w.symbols[at].id, w.symbols[next].id}]
	return m, ok
}

func (w *word) propose(at int) {
	if m, ok := w.rule(at); ok {
		w.push(uint64(m.rank)<<placeBits | uint64(at))
	}
}

// apply does a merge, unless its symbols have changed since it was put into the queue.
func (w *word) apply(candidate uint64) {
	at := int(candidate & (1<<placeBits - 1))
	s := &w.symbols[at]
	if s.id == none {
		return
	}
	m, ok := w.rule(at)
	if !ok || uint64(m.rank) != candidate>>placeBits {
		return
	}
	merged := &w.symbols[s.next]
	s.id, s.next, merged.id = m.id, merged.next, none
	if s.next != none {
		w.symbols[s.next].prev = at
		w.propose(at)
	}
	if s.prev != none {
		w.propose(s.prev)
	}
}

// push and pop keep the heap. Package container/heap would allocate for every candidate.
func (w *word) push(c uint64) {
	i := len(w.queue)
	w.queue = append(w.queue, c)
	for i > 0 && c < w.queue[(i-1)/2] {
		w.queue[i] = w.queue[(i-1)/2]
		i = (i - 1) / 2
	}
	w.queue[i] = c
}

func (w *word) pop() uint64 {
	q := w.queue
	first, last := q[0], q[len(q)-1]
	q = q[:len(q)-1]
	w.queue = q
	i := 0
	for 2*i+1 < len(q) {
		child := 2*i + 1
		if child+1 < len(q) && q[child+1] < q[child] {
			child++
		}
		if last <= q[child] {
			break
		}
		q[i] = q[child]
		i = child
	}
	if len(q) > 0 {
		q[i] = last
	}
	return first
}
