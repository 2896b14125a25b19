package data

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/bounded"
	"github.com/ringo-ml/ringo/internal/columns"
)

// CSVConfig describes the lines of a CSV file.
type CSVConfig struct {
	Header   bool     // the first line has the columns' names; otherwise they are named 1, 2, and so on
	Comma    rune     // between fields, such as ';' or '\t'; 0: ','
	Columns  []string // of x, in this order; nil: all but Target
	Target   string   // the column of y; "": the last one
	NoTarget bool     // no Target is read, as of the rows that a trained model is for: y is 0
	Labels   bool     // Target names classes: y is the number of a class
	Classes  []string // Labels has these numbers, such as Table.Classes of the training set; nil: the classes in the file

	Categories []string // columns of x that have names, such as of towns: see Table.Categories, and package data/transform
	Missing    bool     // x may lack values: they are NaN, and of Categories the name ""; package data/transform fills them in
	Skip       bool     // rows that cannot be read are left out, and counted in Table.Skipped; else they are an error
}

// CSV reads a file of numbers, with one sample in each line, into memory (4 bytes for each number). Quotes are those of package
// encoding/csv. A UTF-8 byte order mark and empty lines are skipped; lines may end in LF, CRLF or CR. Everything else that is not a number
// is an error with its line and column, also missing values, NaN and infinities: see Missing and Skip. So is an index of pandas,
// unless the columns are named, and a whole number that float32 would round, such as 16777217.
//
// A first line of 0, 1, 2 and so on, in at least three columns, is how pandas names columns: it is an error without Header. With Header,
// any other line of numbers alone is one.
//
// Spaces around fields are ignored. If the file names the classes, they are sorted: as numbers if all are integers without a plus sign or
// leading zeros (1 and 01 are two classes), else as text. A test set may have other classes than its training set, and so other numbers:
// give it the classes of the training set.
func CSV(file string, cfg CSVConfig) (*Table, error) {
	return readTable(file, cfg, parseCSV)
}

func readTable[C any](file string, cfg C, parse func(io.Reader, int64, C) (*Table, error)) (*Table, error) {
	f, size, err := bounded.Open(file)
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	defer f.Close()
	t, err := parse(f, size, cfg)
	if err != nil {
		return nil, fmt.Errorf("data: %s: %w", file, err)
	}
	return t, nil
}

// columnBytes is the memory of a column.
const columnBytes = 256

// lineEnds makes line ends of carriage returns that stand alone outside of quotes: old programs write them.
type lineEnds struct {
	text   *bufio.Reader
	json   bool // which has no line ends in quotes
	quoted bool

	err  error  // of the last block
	rest []byte // behind it
}

func (l *lineEnds) Read(p []byte) (int, error) {
	n, err := l.text.Read(p)
	if bytes.IndexByte(p[:n], '\r') < 0 {
		l.quoted = l.quoted != (!l.json && bytes.Count(p[:n], []byte{'"'})%2 == 1)
		return n, err
	}
	for i, c := range p[:n] {
		if c == '"' && !l.json {
			l.quoted = !l.quoted
		}
		if c != '\r' || l.quoted {
			continue
		}
		next := p[i+1 : n]
		if len(next) == 0 {
			next, _ = l.text.Peek(1) // the next Read has its error
		}
		if !bytes.HasPrefix(next, []byte("\n")) {
			p[i] = '\n'
		}
	}
	return n, err
}

type csvParser struct {
	cfg    CSVConfig
	budget *bounded.Budget
	from   *lineEnds
	lines  int         // before the block
	r      *csv.Reader // of the block
	textRows
}

func parseCSV(from io.Reader, size int64, cfg CSVConfig) (*Table, error) {
	text, err := skipBOM(from)
	if err != nil {
		return nil, err
	}
	if head, _ := text.Peek(512); len(head) > 0 { // an empty file has no rows
		if err := bounded.Explain(errNoTable, head); err != errNoTable {
			return nil, err
		}
	}
	p := &csvParser{cfg: cfg, budget: bounded.New(size), from: &lineEnds{text: text}}
	p.cfg.Comma = cmp.Or(cfg.Comma, ',')
	if p.textRows, err = newTextRows(cfg.NoTarget, cfg.Labels, cfg.Classes, cfg.Missing, p.budget); err != nil {
		return nil, err
	}
	return p.parseAll(size)
}

// parseAll parses blocks, some at a time, and takes their rows in order.
func (p *csvParser) parseAll(size int64) (*Table, error) {
	some, next, taken, read := make([]block, 2*min(runtime.GOMAXPROCS(0), 8)), 0, 0, 0
	defer func() {
		for i := range some {
			some[i].parsing.Wait()
		}
	}()
	for {
		// The first block says which columns there are.
		if b := &some[next%len(some)]; next-taken < len(some) && (next == 0 || taken > 0) && p.from.block(b) {
			next++
			if p.x != nil && p.numbers() {
				b.parsing.Go(func() { p.parse(b) })
			}
			continue
		}
		if taken == next && errors.Is(p.from.err, io.EOF) {
			return p.table()
		} else if taken == next {
			return nil, p.from.err
		}
		b := &some[taken%len(some)]
		b.parsing.Wait()
		if err := p.take(b); err != nil {
			return nil, err
		}
		p.lines, read = p.lines+bytes.Count(b.text, []byte{'\n'}), read+len(b.text)
		if taken++; taken == 2 {
			p.reserve(float64(size) / float64(read))
		}
	}
}

// numbers reports whether rows have numbers alone. Names get theirs in order.
func (p *csvParser) numbers() bool { return !p.labeled && len(p.categories) == 0 }

// parse parses the numbers of a block, if it is plain.
func (p *csvParser) parse(b *block) {
	b.rows = textRows{x: p.x, y: p.y, to: p.to, zeros: p.zeros, missing: p.missing, none: p.none, labels: &columns.Labels{}, xs: b.rows.xs[:0],
		ys: b.rows.ys[:0]}
	b.plain = b.rows.plain(unsafe.String(unsafe.SliceData(b.text), len(b.text)), string(p.cfg.Comma)) // numbers keep no part of it
}

// take adds the rows of a block.
func (p *csvParser) take(b *block) error {
	if b.plain {
		p.xs, p.ys = append(p.xs, b.rows.xs...), append(p.ys, b.rows.ys...)
		return nil
	}
	if p.x != nil && !p.numbers() && p.plain(string(b.text), string(p.cfg.Comma)) {
		return nil
	}
	grown := 6 * int64(len(b.text)) // what it took to read the block
	if err := p.budget.Take(grown); err != nil {
		return fmt.Errorf("lines up to the end of a quote: %w", err)
	}
	defer p.budget.Give(grown)
	return p.lineByLine(b.text)
}

// lineByLine parses a block.
func (p *csvParser) lineByLine(text []byte) error {
	count := &fieldCounter{from: *bytes.NewReader(text), comma: []byte(string(p.cfg.Comma)), budget: p.budget}
	defer count.ended()
	p.r = csv.NewReader(count)
	p.r.Comma, p.r.FieldsPerRecord, p.r.ReuseRecord = p.cfg.Comma, -1, true // row reports wrong numbers of fields
	for {
		record, err := p.r.Read()
		count.ended()
		quote, wrong := errors.AsType[*csv.ParseError](err)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case wrong:
			quote.StartLine, quote.Line = quote.StartLine+p.lines, quote.Line+p.lines
			err = fmt.Errorf("%w: a field with a quote in it needs quotes around it, and its quote twice", err)
		case err == nil && p.names == nil:
			err = p.first(record)
		case err == nil:
			if err = p.row(record); err != nil && p.cfg.Skip && !bounded.IsTooMuch(err) {
				p.skip(err)
				err = nil
			}
		}
		if err != nil {
			return err
		}
	}
}

var errNoTable = errors.New("no table")

// skipBOM skips a UTF-8 byte order mark.
func skipBOM(from io.Reader) (*bufio.Reader, error) {
	text := bufio.NewReader(from)
	mark, err := text.Peek(3)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(mark, []byte("\xfe\xff")) || bytes.HasPrefix(mark, []byte("\xff\xfe")):
		return nil, errors.New("the text is UTF-16 or UTF-32: want UTF-8, such as of iconv -f utf-16 -t utf-8 FILE")
	case string(mark) == "\xef\xbb\xbf":
		_, err = text.Discard(3)
		return text, err
	}
	return text, nil
}

// first reads the first line: names, or the first row.
func (p *csvParser) first(record []string) (err error) {
	if err := p.budget.Take(columnBytes * int64(len(record))); err != nil {
		return fmt.Errorf("%d columns: %w", len(record), err)
	}
	p.names = make([]string, len(record))
	numbers, counted := 0, 0
	for i, field := range record {
		p.names[i] = strconv.Itoa(i + 1)
		if p.cfg.Header {
			p.names[i] = strings.Clone(strings.TrimSpace(field))
		}
		if _, err := number(field); err == nil {
			numbers++
		}
		if field == strconv.Itoa(i) {
			counted++
		}
	}
	line := p.line(0)
	if err := checkText(strings.Join(record, "")); p.cfg.Header && err != nil {
		return fmt.Errorf("line %d %w", line, err)
	}
	switch {
	case strings.HasPrefix(record[0], "sep="):
		return fmt.Errorf("line %d, %s, is for Excel alone: remove it, and set CSVConfig.Comma if that is no comma", line,
			bounded.Quote(strings.Join(record, string(p.r.Comma))))
	case p.cfg.Header && numbers == len(record) && counted != len(record):
		return fmt.Errorf("line %d has numbers alone, no names of columns: CSVConfig.Header is for files that have them", line)
	case !p.cfg.Header && counted == len(record) && counted > 2:
		return fmt.Errorf("line %d has 0, 1, 2 and so on, which are pandas' names of columns: set CSVConfig.Header, or, if it is a sample, "+
			"move it to another line", line)
	case len(record) == 1 && !p.none:
		return fmt.Errorf("line %d has one field (CSVConfig.Comma is %q): want x and a target%s", line, p.r.Comma, otherComma(record[0]))
	}
	if err = p.choose(p.cfg.Columns, p.cfg.Target, p.cfg.Categories, p.budget); err != nil {
		return fmt.Errorf("line %d: %w", line, err)
	}
	switch {
	case p.cfg.Header:
		return nil
	case numbers > 0:
		return p.row(record)
	}
	column, err := p.add(record)
	switch {
	case errors.Is(err, errNoNumber):
		return fmt.Errorf("%w; if the line has the names of the columns, set CSVConfig.Header", p.at(column, err))
	case err != nil:
		return p.at(column, err)
	}
	return nil
}

// otherComma returns, for an error, what may separate the fields in a line.
func otherComma(line string) string {
	for _, comma := range []string{";", "\t", "|", ","} {
		if strings.Contains(line, comma) {
			return fmt.Sprintf(": set it to %q", comma[0])
		}
	}
	return ""
}

// row adds a sample.
func (p *csvParser) row(record []string) error {
	if len(record) != len(p.names) {
		err := fmt.Errorf("line %d: %d fields, want %d as in the first line", p.line(0), len(record), len(p.names))
		if len(record) > len(p.names) {
			err = fmt.Errorf("%w: a field with a separator in it needs quotes, and the end of a line no separator", err)
		}
		return err
	}
	if column, err := p.add(record); err != nil {
		return p.at(column, p.wayOut(column, err))
	}
	return nil
}

// at adds the place of a field to an error.
func (p *csvParser) at(column int, err error) error {
	name := p.names[column]
	if p.cfg.Header {
		name = bounded.Quote(name)
	}
	return fmt.Errorf("line %d, column %s: %w", p.line(column), name, err)
}

// line returns the line of a field.
func (p *csvParser) line(column int) int {
	line, _ := p.r.FieldPos(column)
	return line + p.lines
}
