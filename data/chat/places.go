package chat

import (
	"errors"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/data/tokenizer"
)

// encode returns the tokens of a document, and which of them are in an answer: those that have a byte of it.
func encode(tok *tokenizer.Tokenizer, d document) (ids []int, answer []bool, err error) {
	ids = tok.Encode(d.text)
	places, ok := walk(tok, ids, d.text)
	if !ok {
		places, ok = parts(tok, ids, d)
	}
	if !ok {
		return nil, nil, errors.New("the tokenizer changes the text at the beginning or the end of an answer, so that it is not known which " +
			"tokens it has")
	}
	answer = make([]bool, len(ids))
	for i, p := range places {
		for _, a := range d.answers {
			answer[i] = answer[i] || p[0] < a[1] && p[1] > a[0]
		}
	}
	return ids, answer, nil
}

// walk finds each token in the text. Some tokenizers add a space at the beginning of a part of it.
func walk(tok *tokenizer.Tokenizer, ids []int, text string) (places [][2]int, ok bool) {
	at := 0
	for _, id := range ids {
		piece := tok.Piece(id)
		if !strings.HasPrefix(text[at:], piece) {
			if piece, ok = strings.CutPrefix(piece, " "); !ok || !strings.HasPrefix(text[at:], piece) {
				return nil, false
			}
		}
		places = append(places, [2]int{at, at + len(piece)})
		at += len(piece)
	}
	return places, at == len(text)
}

// parts encodes what is in answers, and what is not, apart: for tokenizers that change a text. It is ok if the tokens are the same.
func parts(tok *tokenizer.Tokenizer, ids []int, d document) (places [][2]int, ok bool) {
	var all []int
	add := func(from, to int) {
		n := tok.Encode(d.text[from:to])
		all = append(all, n...)
		for range n {
			places = append(places, [2]int{from, to})
		}
	}
	at := 0
	for _, a := range d.answers {
		add(at, a[0])
		add(a[0], a[1])
		at = a[1]
	}
	add(at, len(d.text))
	return places, slices.Equal(all, ids)
}
