package lm

import (
	"bytes"
	"cmp"
	"compress/gzip"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/data/tokenizer"
)

// The text of Project Gutenberg's Opticks, which is in the public domain.
//
//go:embed opticks.txt.gz
var opticks []byte

// text returns the text to learn.
func (o *Options) text() ([]byte, error) {
	if o.data != "" {
		lines, err := data.Lines(o.data)
		return []byte(strings.Join(append(lines, ""), "\n")), err
	}
	z, err := gzip.NewReader(bytes.NewReader(opticks))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// corpus is a text as tokens.
type corpus struct {
	*tokenizer.Tokenizer
	learn, test *data.Text // the first 90% of the text, and the rest
	perByte     float64    // tokens per byte of the rest
}

func (o *Options) corpus() (*corpus, error) {
	tok, _, err := o.tokenizer()
	if err != nil {
		return nil, err
	}
	text, err := o.text()
	if err != nil {
		return nil, err
	}
	c, cut := &corpus{Tokenizer: tok}, len(text)*9/10
	if c.learn, err = data.NewText(tok.Encode(string(text[:cut])), o.seq, 1); err != nil {
		return nil, o.tooShort(err)
	}
	rest := tok.Encode(string(text[cut:]))
	c.perByte = float64(len(rest)) / float64(len(text)-cut)
	if c.test, err = data.NewText(rest, o.seq, o.seq); err != nil {
		return nil, o.tooShort(err)
	}
	return c, nil
}

// tooShort names the text. It is cut in two.
func (o *Options) tooShort(err error) error {
	return fmt.Errorf("%s: the last tenth is for the test: %w", cmp.Or(o.data, "the Opticks"), err)
}

const tokenizerFile = "tokenizer.json"

// tokenizer returns the tokenizer of the loaded folder, or else that of bytes.
func (o *Options) tokenizer() (tok *tokenizer.Tokenizer, bytes bool, err error) {
	if o.load != "" {
		tok, err := tokenizer.Open(o.load)
		if !errors.Is(err, fs.ErrNotExist) {
			return tok, false, err
		}
	}
	return tokenizer.Bytes(), true, nil
}
