package data

import (
	"bytes"
	"runtime"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ringo-ml/ringo/internal/columns"
)

// blockBytes is about the length of a block.
const blockBytes = 64 << 10

// block is whole lines of a text. None of its lines ends in quotes.
type block struct {
	text   []byte
	xs, ys []float32
	names  []string      // of the columns that have some, row by row
	parsed chan struct{} // closed when all of the rows are in the lists, or it is known that some are not plain
	plain  bool
}

// blocks reads a text. It parses blocks of plain lines in parallel, and some ahead; others it gives to package encoding/csv. Plain are
// numbers and names without quotes, as many as there are columns. A block with any other line is read again, so that what is an error,
// and which one, is for one reader to say.
type blocks struct {
	from  *lineEnds
	err   error  // of from
	rest  []byte // behind the last block
	ahead []*block
	free  []*block

	now   []byte // what package encoding/csv has not read yet
	given int64  // bytes of the blocks that it has
	plain int64  // bytes of the others
	lines int    // of the others
}

// next returns a block, or nil at the end.
func (b *blocks) next() *block {
	if b.err != nil && len(b.rest) == 0 {
		return nil
	}
	if len(b.free) == 0 {
		b.free = append(b.free, &block{text: make([]byte, 0, blockBytes)})
	}
	last := len(b.free) - 1
	next := b.free[last]
	b.free = b.free[:last]
	next.text, next.plain, b.rest = append(next.text[:0], b.rest...), false, b.rest[:0]
	for b.err == nil {
		from, n := len(next.text), 0
		if from == cap(next.text) {
			next.text = slices.Grow(next.text, from)
		}
		n, b.err = b.from.Read(next.text[from:cap(next.text)])
		next.text = next.text[:from+n]
		end := from + bytes.LastIndexByte(next.text[from:], '\n') + 1
		if end > from && b.from.quoted == (bytes.Count(next.text[end:], []byte{'"'})%2 == 1) {
			next.text, b.rest = next.text[:end], append(b.rest, next.text[end:]...)
			return next
		}
	}
	if len(next.text) == 0 {
		return nil
	}
	return next
}

// Read reads a block that is not plain.
func (b *blocks) Read(p []byte) (int, error) {
	for len(b.now) == 0 {
		var next *block
		if len(b.ahead) > 0 {
			next, b.ahead = b.ahead[0], b.ahead[1:]
			<-next.parsed
		} else if next = b.next(); next == nil {
			return 0, b.err
		}
		b.now, b.given, b.free = next.text, b.given+int64(len(next.text)), append(b.free, next)
	}
	n := copy(p, b.now)
	b.now = b.now[n:]
	return n, nil
}

// takePlain gives plain blocks to take, in order, until one is not plain, or take returns false. parse runs ahead in other goroutines.
func (b *blocks) takePlain(parse func(*block), take func(*block) bool) {
	for {
		for len(b.ahead) <= min(runtime.GOMAXPROCS(0), 8) {
			next := b.next()
			if next == nil {
				break
			}
			next.parsed = make(chan struct{})
			go func() {
				defer close(next.parsed)
				parse(next)
			}()
			b.ahead = append(b.ahead, next)
		}
		if len(b.ahead) == 0 {
			return
		}
		first := b.ahead[0]
		if <-first.parsed; !first.plain || !take(first) {
			return
		}
		b.lines, b.plain = b.lines+bytes.Count(first.text, []byte{'\n'}), b.plain+int64(len(first.text))
		b.ahead, b.free = b.ahead[1:], append(b.free, first)
	}
}

// wait returns when no block is parsed any more.
func (b *blocks) wait() {
	for _, next := range b.ahead {
		<-next.parsed
	}
}

// The places of columns that are no features.
const (
	placeNone = -1 - iota
	placeY
	placeName // also of a class
)

// plainParser parses blocks of rows.
type plainParser struct {
	*textRows
	comma  byte
	places []int             // of each column of the text: among the features, or else
	named  []*columns.Labels // of the columns that have names, in the order of the text
}

func newPlainParser(r *textRows, comma rune) *plainParser {
	p := &plainParser{textRows: r, places: make([]int, len(r.names))}
	if comma < utf8.RuneSelf && !strings.ContainsRune("-.0123456789", comma) {
		p.comma = byte(comma)
	}
	for i := range p.places {
		p.places[i] = placeNone
	}
	for k, i := range r.x {
		p.places[i] = k
	}
	p.places[r.y] = placeY
	for i := range p.places {
		labels := r.categories[i]
		if i == r.y && r.labeled {
			labels = r.labels
		}
		if labels != nil {
			p.places[i], p.named = placeName, append(p.named, labels)
		}
	}
	return p
}

// parse parses a block, if it is plain.
func (p *plainParser) parse(b *block) {
	b.xs, b.ys, b.names = b.xs[:0], b.ys[:0], b.names[:0]
	text := b.text
	if b.plain = p.comma != 0 && text[len(text)-1] == '\n' && bytes.IndexByte(text, '"') < 0; !b.plain {
		return
	}
	b.xs = slices.Grow(b.xs, bytes.Count(text, []byte{'\n'})*len(p.x))
	for len(text) > 0 && b.plain {
		n := 1 // of an empty line
		if text = bytes.TrimPrefix(text, []byte{'\r'}); text[0] != '\n' {
			n = p.row(b, text)
		}
		text, b.plain = text[n:], n > 0
	}
}

// row parses the row that a text begins with, and returns its length; 0: it is not plain.
func (p *plainParser) row(b *block, text []byte) (at int) {
	first := len(b.xs)
	b.xs = append(b.xs, make([]float32, len(p.x))...)
	x := b.xs[first:]
	for i, place := range p.places {
		v, n := float32(0), 0
		if place >= 0 || place == placeY {
			v, n = decimal(text[at:])
		}
		end := at + n
		for text[end] != p.comma && text[end] != '\n' {
			end++
		}
		if (text[end] == '\n') != (i == len(p.places)-1) {
			return 0
		}
		field := text[at:end]
		if text[end] == '\n' {
			field = bytes.TrimSuffix(field, []byte{'\r'})
		}
		var err error
		switch at = end + 1; {
		case place == placeName:
			b.names = append(b.names, string(field))
		case place == placeNone || len(field) == n && n > 0:
		case place == placeY:
			v, err = number(string(field))
		default:
			v, err = p.value(i, string(field))
		}
		switch {
		case err != nil:
			return 0
		case place >= 0:
			x[place] = v
		case place == placeY:
			b.ys = append(b.ys, v)
		}
	}
	return at
}

// take adds the rows of a plain block, or returns false and adds none.
func (p *plainParser) take(b *block) bool {
	n := p.len()
	for i, name := range b.names {
		if p.name(p.named[i%len(p.named)], name) != nil {
			p.cut(n)
			return false
		}
	}
	p.xs, p.ys = append(p.xs, b.xs...), append(p.ys, b.ys...)
	return true
}
