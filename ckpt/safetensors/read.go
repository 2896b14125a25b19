package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/ringo-ml/ringo/internal/bounded"
)

// Read reads and checks the header of a file of size bytes. file is the file's name in errors. Read does not read the
// data, but returns an *Error if the data does not have the size that the header says.
func Read(file string, r io.ReaderAt, size int64) (*Header, error) {
	text, err := readText(r, size)
	if err != nil {
		head := make([]byte, min(size, 512))
		_, _ = r.ReadAt(head, 0) // only for the error's text
		return nil, &Error{File: file, Reason: bounded.Explain(err, head).Error()}
	}
	p := &parser{dec: json.NewDecoder(bytes.NewReader(text)), budget: bounded.New(size)}
	if err := p.budget.Take(4 * int64(len(text))); err != nil { // the decoder copies it, and its copy grows
		return nil, &Error{File: file, Reason: err.Error()}
	}
	p.dec.UseNumber()
	h := &p.h
	h.Size = int64(len(text)) + 8
	if err := p.header(); err != nil {
		return nil, &Error{file, p.name, err.Error()}
	}
	if name, err := h.check(size - h.Size); err != nil {
		return nil, &Error{file, name, err.Error()}
	}
	return h, nil
}

// readText returns the JSON text. It compares the length with the file's size before it allocates memory.
func readText(r io.ReaderAt, size int64) ([]byte, error) {
	var length [8]byte
	if size < int64(len(length)) {
		return nil, fmt.Errorf("%d bytes are too few for a header", size)
	}
	if err := readAt(r, length[:], 0); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(length[:])
	switch {
	case n > MaxHeader:
		return nil, fmt.Errorf("a header of %d bytes; the format allows %d", n, MaxHeader)
	case int64(n) > size-8:
		return nil, fmt.Errorf("a header of %d bytes in a file of %d: it is cut off, or of another format", n, size)
	}
	text := make([]byte, n)
	if err := readAt(r, text, 8); err != nil {
		return nil, err
	}
	switch {
	case n == 0 || text[0] != '{':
		return nil, errors.New("the header does not begin with {")
	case !utf8.Valid(text):
		return nil, errors.New("the header is not UTF-8")
	case !json.Valid(text):
		return nil, errors.New("the header is not JSON")
	}
	return text, nil
}

func readAt(r io.ReaderAt, b []byte, off int64) error {
	n, err := r.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("reading the header: %w", err)
}

// The memory of a tensor, here and in readers of checkpoints, and of an entry of the metadata, besides their names; and the
// largest number of dimensions.
const (
	tensorBytes   = 1536
	metadataBytes = 480
	maxDims       = 64
)

// parser reads a header, which is valid JSON, token by token.
type parser struct {
	dec    *json.Decoder
	h      Header
	name   string // of the current entry
	budget *bounded.Budget
}

func (p *parser) header() error {
	return p.object(func(name string, again bool) (err error) {
		p.name = name
		if err := p.budget.Take(int64(tensorBytes + 4*len(name))); err != nil {
			return err
		}
		switch {
		case again:
			return errors.New("the name is there twice")
		case name == metadataKey:
			err = p.metadata()
		default:
			err = p.entry()
		}
		if err == nil {
			p.name = ""
		}
		return err
	})
}

// object calls fn for every key of an object, before its value. again says that the key was there before.
func (p *parser) object(fn func(key string, again bool) error) error {
	if err := p.delim('{'); err != nil {
		return err
	}
	seen := map[string]bool{}
	for p.dec.More() {
		key, err := p.text()
		if err == nil {
			err = fn(key, seen[key])
		}
		if err != nil {
			return err
		}
		seen[key] = true
	}
	return p.delim('}')
}

func (p *parser) metadata() error {
	p.h.Metadata = map[string]string{}
	return p.object(func(key string, again bool) (err error) {
		if again {
			return fmt.Errorf("the key %s is there twice", bounded.Quote(key))
		}
		if p.h.Metadata[key], err = p.text(); err != nil {
			return err
		}
		return p.budget.Take(int64(metadataBytes + 2*len(key) + 2*len(p.h.Metadata[key])))
	})
}

func (p *parser) entry() error {
	t, keys := Tensor{Name: p.name}, 0
	err := p.object(func(key string, again bool) (err error) {
		keys++
		switch {
		case again:
			return fmt.Errorf("%s is there twice", bounded.Quote(key))
		case key == "dtype":
			var s string
			s, err = p.text()
			t.DType = DType(s)
		case key == "shape":
			t.Shape, err = p.numbers()
		case key == "data_offsets":
			var at []int
			if at, err = p.numbers(); err == nil && len(at) != 2 {
				err = fmt.Errorf("data_offsets are %d, not two", len(at))
			}
			if err == nil {
				t.Start, t.End = int64(at[0]), int64(at[1])
			}
		default:
			err = fmt.Errorf("unknown key %s", bounded.Quote(key))
		}
		return err
	})
	if err == nil && keys != 3 {
		err = errors.New("dtype, shape and data_offsets are not all there")
	}
	p.h.Tensors = append(p.h.Tensors, t)
	return err
}

func (p *parser) delim(want json.Delim) error {
	t, err := p.dec.Token()
	if err != nil {
		return err
	}
	if t != want {
		return fmt.Errorf("%s where %v should be", bounded.Plain(fmt.Sprint(t)), want)
	}
	return nil
}

func (p *parser) text() (string, error) {
	t, err := p.dec.Token()
	if err != nil {
		return "", err
	}
	s, ok := t.(string)
	if !ok {
		return "", fmt.Errorf("%s where a string should be", bounded.Plain(fmt.Sprint(t)))
	}
	return s, nil
}

// numbers returns a list of non-negative integers.
func (p *parser) numbers() ([]int, error) {
	if err := p.delim('['); err != nil {
		return nil, err
	}
	list := []int{}
	for p.dec.More() {
		t, err := p.dec.Token()
		if err != nil {
			return nil, err
		}
		s, ok := t.(json.Number)
		if !ok {
			return nil, fmt.Errorf("%s where a number should be", bounded.Plain(fmt.Sprint(t)))
		}
		n, err := strconv.ParseInt(string(s), 10, 64)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%s is not an integer from 0 to 2^63-1", bounded.Plain(string(s)))
		}
		if len(list) == maxDims {
			return nil, fmt.Errorf("more than %d numbers in a list", maxDims)
		}
		list = append(list, int(n))
	}
	return list, p.delim(']')
}

// check sorts the tensors by position and verifies that they cover the data exactly. If one does not fit, it returns
// its name.
func (h *Header) check(data int64) (string, error) {
	slices.SortStableFunc(h.Tensors, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End))
	})
	end := int64(0)
	for _, t := range h.Tensors {
		n, err := t.bytes()
		switch {
		case err != nil:
			return t.Name, err
		case t.End < t.Start || t.End-t.Start != n:
			return t.Name, fmt.Errorf("data_offsets [%d,%d] for the %d bytes of %s%v", t.Start, t.End, n, t.DType, t.Shape)
		case t.End > data:
			return t.Name, fmt.Errorf("data_offsets [%d,%d] in %d bytes of data: the file is cut off, get it again", t.Start, t.End, data)
		case t.Start < end:
			return t.Name, fmt.Errorf("data_offsets [%d,%d] overlap what ends at %d", t.Start, t.End, end)
		case t.Start > end:
			return t.Name, fmt.Errorf("data_offsets [%d,%d] leave a gap from %d", t.Start, t.End, end)
		}
		end = t.End
	}
	if end != data {
		return "", fmt.Errorf("%d bytes of data, of which the tensors use %d: trailing garbage", data, end)
	}
	return "", nil
}
