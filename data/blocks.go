package data

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/ringo-ml/ringo/internal/bounded"
)

const blockBytes = 32 << 10

// block is whole lines of a text. Quotes do not go on behind it.
type block struct {
	text    []byte
	rows    textRows
	plain   bool           // rows has all of them
	parsing sync.WaitGroup // the rows
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
	n := r.len()
	ok := strings.IndexByte(text, '"') < 0 && strings.HasSuffix(text, "\n") && !strings.Contains("-.0123456789", comma)
	if ok { // lines may be empty, but a number has a byte
		r.xs = slices.Grow(r.xs, min(strings.Count(text, "\n")*len(r.x), len(text)))
	}
	for ok && text != "" {
		end := strings.IndexByte(text, '\n')
		line := strings.TrimSuffix(text[:end], "\r")
		text, ok = text[end+1:], line == "" || r.line(line, comma)
	}
	if !ok {
		r.cut(n)
	}
	return ok
}

// line adds the row of a line, and reports whether that was possible.
func (r *textRows) line(line, comma string) bool {
	at := len(r.xs)
	r.xs = append(r.xs, r.zeros...)
	for i, to := range r.to {
		last := i == len(r.to)-1
		if to >= 0 { // most fields are numbers that need no second look
			v, n := decimal(line)
			rest, more := strings.CutPrefix(line[n:], comma)
			if n > 0 && more != last && (more || rest == "") {
				line = rest
				r.put(at, to, v)
				continue
			}
		}
		field, rest, more := strings.Cut(line, comma)
		if line = rest; more == last || r.read(at, i, field) != nil {
			return false
		}
	}
	if r.none {
		r.ys = append(r.ys, 0)
	}
	return true
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
