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

// Read returns the text of a file, or the Opticks.
func Read(file string) ([]byte, error) {
	if file != "" {
		lines, err := data.Lines(file)
		return []byte(strings.Join(append(lines, ""), "\n")), err
	}
	z, err := gzip.NewReader(bytes.NewReader(opticks))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// Corpus is a text as tokens.
type Corpus struct {
	*tokenizer.Tokenizer
	Learn, Test data.Dataset // the first 90% of the text, and the rest
	Begin, Ends []int        // what -sample goes on from, and the tokens that end it
	perByte     float64      // tokens per byte of the rest; 0: unknown
}

// Corpus returns the text of -data, in the tokens of -load.
func (o *Options) Corpus() (*Corpus, error) {
	tok, _, err := o.Tokenizer()
	if err != nil {
		return nil, err
	}
	text, err := Read(o.Data)
	if err != nil {
		return nil, err
	}
	c, cut := &Corpus{Tokenizer: tok, Begin: tok.Prompt("\n")}, len(text)*9/10
	if c.Learn, err = data.NewText(tok.Encode(string(text[:cut])), o.Seq, 1); err != nil {
		return nil, o.tooShort(err)
	}
	rest := tok.Encode(string(text[cut:]))
	c.perByte = float64(len(rest)) / float64(len(text)-cut)
	if c.Test, err = data.NewText(rest, o.Seq, o.Seq); err != nil {
		return nil, o.tooShort(err)
	}
	return c, nil
}

// tooShort names the text. It is cut in two.
func (o *Options) tooShort(err error) error {
	return fmt.Errorf("%s: the last tenth is for the test: %w", cmp.Or(o.Data, "the Opticks"), err)
}

// Tokenizer returns the tokenizer of the loaded folder, or else that of bytes.
func (o *Options) Tokenizer() (tok *tokenizer.Tokenizer, bytes bool, err error) {
	if o.Load != "" {
		tok, err := tokenizer.Open(o.Load)
		if !errors.Is(err, fs.ErrNotExist) {
			return tok, false, err
		}
	}
	return tokenizer.Bytes(), true, nil
}
