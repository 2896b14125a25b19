package data

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/bounded"
)

const blockBytes = 32 << 10

// block is whole lines of a text. Quotes do not go on behind it.
type block struct {
	text  []byte
	rows  textRows
	plain bool // rows has all of them
}

// block reads a block. It returns false at the end. Before an error of the reader are whole lines alone.
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
	if !errors.Is(l.err, io.EOF) {
		quoted, end := false, 0
		for i, c := range b.text {
			if quoted = quoted != (c == '"'); c == '\n' && !quoted {
				end = i + 1
			}
		}
		b.text = b.text[:end]
	}
	return len(b.text) > 0
}

// plain adds the rows of lines that have no quotes, and no errors. Else it returns false, and adds none.
func (r *textRows) plain(text, comma string) bool {
	n, fields, more := r.len(), make([]string, len(r.names)), false
	ok := !strings.Contains(text, `"`) && strings.HasSuffix(text, "\n")
	if ok { // lines may be empty, but a number has a byte
		r.xs = slices.Grow(r.xs, min(strings.Count(text, "\n")*len(r.x), len(text)))
	}
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

// fieldBytes is the memory of package encoding/csv for a field of a line.
const fieldBytes = 176

// fieldCounter takes it from the budget before that package has the line.
type fieldCounter struct {
	from   bytes.Reader
	comma  []byte
	budget *bounded.Budget
	taken  int64
}

func (c *fieldCounter) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	fields := fieldBytes * int64(bytes.Count(p[:n], c.comma))
	c.taken += fields
	if tooMany := c.budget.Take(fields); tooMany != nil {
		return 0, fmt.Errorf("the fields of one line: %w", tooMany)
	}
	return n, err
}

// ended gives it back.
func (c *fieldCounter) ended() {
	c.budget.Give(c.taken)
	c.taken = 0
}
