package data

import (
	"bytes"
	"slices"
	"strings"
)

const blockBytes = 32 << 10

// block is whole lines of a text. Quotes do not go on behind it.
type block struct {
	text  []byte
	rows  textRows
	plain bool // rows has all of them
}

// block reads a block. It returns false at the end.
func (l *lineEnds) block(b *block) bool {
	b.text, b.plain, l.rest = append(b.text[:0], l.rest...), false, l.rest[:0]
	for l.err == nil {
		from, n := len(b.text), 0
		b.text = slices.Grow(b.text, max(blockBytes-from, blockBytes/2))
		n, l.err = l.Read(b.text[from:max(blockBytes, from+blockBytes/2)])
		b.text = b.text[:from+n]
		end := from + bytes.LastIndexByte(b.text[from:], '\n') + 1
		if end > from && l.quoted == (bytes.Count(b.text[end:], []byte{'"'})%2 == 1) {
			b.text, l.rest = b.text[:end], append(l.rest, b.text[end:]...)
			return true
		}
	}
	return len(b.text) > 0
}

// plain adds the rows of lines that have no quotes, and no errors. Else it returns false, and adds none.
func (r *textRows) plain(text, comma string) bool {
	n, fields, more := r.len(), make([]string, len(r.names)), false
	r.xs = slices.Grow(r.xs, strings.Count(text, "\n")*len(r.x))
	ok := !strings.Contains(text, `"`) && strings.HasSuffix(text, "\n")
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if line == "" || !ok {
			continue
		}
		for i := range fields {
			fields[i], line, more = strings.Cut(line, comma)
			ok = ok && more == (i < len(fields)-1)
		}
		if ok {
			_, err := r.add(fields)
			ok = err == nil
		}
	}
	if !ok {
		r.cut(n)
	}
	return ok
}
