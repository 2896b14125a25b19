package main

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"io"
	"os"

	"github.com/ringo-ml/ringo/data"
)

// The text of Project Gutenberg's Opticks, which is in the public domain.
//
//go:embed opticks.txt.gz
var opticks []byte

// text returns the bytes to learn.
func (o *options) text() ([]byte, error) {
	if o.data != "" {
		return os.ReadFile(o.data)
	}
	z, err := gzip.NewReader(bytes.NewReader(opticks))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// texts returns the first 90% of the text, to learn, and the rest, to test.
func (o *options) texts() (learn, test *data.Text, err error) {
	text, err := o.text()
	if err != nil {
		return nil, nil, err
	}
	cut := len(text) * 9 / 10
	if learn, err = data.NewText(tokens(text[:cut]), o.seq, 1); err != nil {
		return nil, nil, err
	}
	test, err = data.NewText(tokens(text[cut:]), o.seq, o.seq)
	return learn, test, err
}

// tokens are the numbers of bytes.
func tokens(text []byte) []int {
	ids := make([]int, len(text))
	for i, b := range text {
		ids[i] = int(b)
	}
	return ids
}
