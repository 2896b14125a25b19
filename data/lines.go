package data

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/ringo-ml/ringo/internal/bounded"
)

// Lines reads a text file of at most 2 GiB. It returns all its lines, empty ones too, without line ends, which may be CRLF. A byte order
// mark is skipped. Text that is not UTF-8 is an error with its line. [NewText] makes a Dataset of their tokens.
func Lines(file string) ([]string, error) {
	text, err := readRegular(file)
	if err != nil {
		return nil, err
	}
	lines, err := parseLines(text)
	if err != nil {
		return nil, fmt.Errorf("data: %s: %w", file, err)
	}
	return lines, nil
}

// lineBytes is the memory of a line, besides its text.
const lineBytes = 16

func parseLines(text []byte) (lines []string, err error) {
	from, err := skipBOM(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	n := int64(bytes.Count(text, []byte("\n"))) + 1
	if err := bounded.New(int64(len(text))).Take(lineBytes*n + 4*int64(len(text))); err != nil {
		return nil, fmt.Errorf("%d lines: %w", n, err)
	}
	var all strings.Builder
	all.Grow(len(text))
	if _, err := io.Copy(&all, from); err != nil {
		return nil, err
	}
	lines = make([]string, 0, n)
	for line := range strings.Lines(all.String()) {
		if !utf8.ValidString(line) {
			return nil, fmt.Errorf("line %d is no UTF-8", len(lines)+1)
		}
		if whole, ended := strings.CutSuffix(line, "\n"); ended {
			line = strings.TrimSuffix(whole, "\r")
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		return nil, errors.New("no lines")
	}
	return lines, nil
}
