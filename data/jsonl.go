package data

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/ringo-ml/ringo/internal/bounded"
)

// JSONLConfig says which values of the objects make a sample.
type JSONLConfig struct {
	Columns  []string // of x, in this order; nil: all but Target
	Target   string   // the name of y; "": the last one of the first object
	NoTarget bool     // as of CSVConfig
	Labels   bool     // Target names classes, as text, integers or booleans: y is the number of a class
	Classes  []string // Labels has these numbers, such as Table.Classes of the training set; nil: the classes in the file

	Categories []string // as of CSVConfig
	Missing    bool     // as of CSVConfig; null is missing, too
	Skip       bool     // as of CSVConfig
}

// JSONL reads a file of JSON Lines into memory, like [CSV]: in each line, an object such as {"a": 1, "b": 2.5, "y": true} is a sample.
// Values are numbers and booleans (0 and 1), and text if it names the class. The objects have the same names, in any order. What is
// missing, null, a list or another object is an error with line and name.
func JSONL(file string, cfg JSONLConfig) (*Table, error) {
	return readTable(file, cfg, parseJSONL)
}

// jsonNameBytes is the memory of a name in the first line, with its place.
const jsonNameBytes = 768

type jsonParser struct {
	cfg    JSONLConfig
	budget *bounded.Budget
	places map[string]int // of names
	values [][]byte       // of a line; nil: missing
	fields []string
	textRows
}

func parseJSONL(from io.Reader, size int64, cfg JSONLConfig) (*Table, error) {
	text, err := skipBOM(from)
	if err != nil {
		return nil, err
	}
	head, _ := text.Peek(512)
	head = bytes.Clone(head)
	p := &jsonParser{cfg: cfg, budget: bounded.New(size), places: map[string]int{}}
	if p.textRows, err = newTextRows(cfg.NoTarget, cfg.Labels, cfg.Classes, cfg.Missing, p.budget); err != nil {
		return nil, err
	}
	text = bufio.NewReader(&lineEnds{text: text, json: true})
	var line []byte
	for n := 1; ; {
		part, err := text.ReadSlice('\n')
		line = append(line, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		wrong := p.line(bytes.Trim(line, " \t\r\n"))
		if wrong != nil && cfg.Skip && p.x != nil && !bounded.IsTooMuch(wrong) {
			p.skip(fmt.Errorf("line %d%w", n, wrong))
		} else if wrong != nil {
			return nil, bounded.Explain(fmt.Errorf("line %d%w", n, wrong), head)
		}
		if err != nil {
			return p.table()
		}
		n, line = n+1, line[:0]
	}
}

// line adds a sample. An error begins with the rest of its place.
func (p *jsonParser) line(line []byte) error {
	if len(line) == 0 {
		return nil
	}
	if !utf8.Valid(line) || bytes.IndexByte(line, 0) >= 0 {
		return fmt.Errorf(" %w", checkText(string(line)))
	}
	if !json.Valid(line) || line[0] != '{' {
		var value json.RawMessage
		err := json.Unmarshal(line, &value) // says what is wrong
		if err == nil {
			err = errors.New("it is another value")
		}
		return fmt.Errorf(`: want an object, such as {"a": 1, "y": 2}, as of pandas' df.to_json(file, orient="records", lines=True): %w`, err)
	}
	first := p.names == nil
	clear(p.values)
	if err := p.object(line, first); err != nil {
		return err
	}
	if first {
		var err error
		if err = p.choose(p.cfg.Columns, p.cfg.Target, p.cfg.Categories, p.budget); err != nil {
			return fmt.Errorf(": %w", err)
		}
	}
	at, err := p.sample()
	if err != nil {
		return fmt.Errorf(", %s: %w", bounded.Quote(p.names[at]), p.wayOut(at, err))
	}
	return nil
}

// object finds the values of a line, which is valid JSON. A json.Decoder for each line would take a hundred times the bytes of short lines.
func (p *jsonParser) object(line []byte, first bool) error {
	for rest := bytes.TrimSpace(line[1:]); rest[0] != '}'; {
		n := extent(rest)
		name, err := unquoted(rest[:n])
		if err != nil {
			return fmt.Errorf(": %w", err)
		}
		rest = bytes.TrimSpace(rest[n:])
		rest = bytes.TrimSpace(rest[1:]) // behind the colon
		n = extent(rest)
		if err := p.value(name, rest[:n], first); err != nil {
			return fmt.Errorf(", %s: %w", bounded.Quote(string(name)), err)
		}
		if rest = bytes.TrimSpace(rest[n:]); rest[0] == ',' {
			rest = bytes.TrimSpace(rest[1:])
		}
	}
	return nil
}

// extent returns the length of the value that valid JSON begins with.
func extent(b []byte) int {
	depth, quoted := 0, false
	for i := 0; i < len(b); i++ {
		c := b[i]
		switch {
		case quoted && c == '\\':
			i++
			continue
		case c == '"':
			quoted = !quoted
		case quoted:
			continue
		case c == '{' || c == '[':
			depth++
			continue
		case depth > 0 && (c == '}' || c == ']'):
			depth--
		case depth == 0 && bytes.IndexByte([]byte(" \t\r\n,}]"), c) >= 0:
			return i
		default:
			continue
		}
		if depth == 0 && !quoted {
			return i + 1
		}
	}
	return len(b)
}

// unquoted returns the text of a string.
func unquoted(value []byte) ([]byte, error) {
	if bytes.IndexByte(value, '\\') < 0 && utf8.Valid(value) {
		return value[1 : len(value)-1], nil
	}
	var text string
	err := json.Unmarshal(value, &text)
	return []byte(text), err
}

// value keeps the value of a name, which is new if the line is the first one.
func (p *jsonParser) value(name, value []byte, first bool) error {
	i, known := p.places[string(name)]
	switch {
	case known && p.values[i] != nil:
		return errors.New("given twice")
	case known:
	case !first && p.cfg.Columns != nil:
		return nil
	case !first:
		return errors.New("the first object has no such name: with Columns, others are ignored")
	default:
		if err := p.budget.Take(jsonNameBytes + int64(len(name))); err != nil {
			return fmt.Errorf("%d names: %w", len(p.names)+1, err)
		}
		i = len(p.names)
		p.names, p.values, p.fields = append(p.names, string(name)), append(p.values, nil), append(p.fields, "")
		p.places[p.names[i]] = i
	}
	p.values[i] = value
	return nil
}

// sample adds a sample. An error is about a name.
func (p *jsonParser) sample() (at int, err error) {
	for _, i := range p.columns {
		if p.fields[i], err = p.field(i); err != nil {
			return i, err
		}
	}
	return p.add(p.fields)
}

// field returns a value as the text of a number or a label; "" if there is none.
func (p *jsonParser) field(i int) (string, error) {
	value, label := p.values[i], p.labeled && i == p.y || p.categories[i] != nil
	switch {
	case len(value) == 0 || value[0] == 'n': // null
		return "", nil
	case value[0] == '{' || value[0] == '[':
		return "", errors.New("a list or an object: want one value; Columns and Target can name others")
	case value[0] == '"' && !label:
		return "", fmt.Errorf("%s is text, and %w", bounded.Plain(string(value)), errNoNumber)
	case value[0] == '"':
		text, err := unquoted(value)
		return string(text), err
	case label && (value[0] == '-' || value[0] <= '9') && bytes.ContainsAny(value, ".eE"):
		return "", fmt.Errorf("%s is not a whole number: labels are text, whole numbers or booleans", bounded.Plain(string(value)))
	case value[0] == 't' && !label:
		return "1", nil
	case value[0] == 'f' && !label:
		return "0", nil
	}
	return string(value), nil
}
