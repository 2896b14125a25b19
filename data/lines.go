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

// Lines reads a text file of at most 2 GiB. It returns all its lines, empty ones too, without line ends. These may be CRLF, and CR if no
// line ends in LF. A byte order mark is skipped. What is not UTF-8, or has a zero byte, is an error with its line. [NewText] makes a
// Dataset of their tokens.
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
	head := text[:min(len(text), 512)]
	if bytes.HasPrefix(head, []byte(bounded.Pointer)) {
		return nil, bounded.Explain(errors.New("no text"), head)
	}
	end := "\n"
	if !bytes.Contains(text, []byte(end)) {
		end = "\r"
	}
	from, err := skipBOM(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	n := int64(bytes.Count(text, []byte(end))) + 1
	if err := bounded.New(int64(len(text))).Take(lineBytes*n + 4*int64(len(text))); err != nil {
		return nil, fmt.Errorf("%d lines: %w", n, err)
	}
	var all strings.Builder
	all.Grow(len(text))
	if _, err := io.Copy(&all, from); err != nil {
		return nil, err
	}
	lines = make([]string, 0, n)
	for line := range strings.SplitAfterSeq(all.String(), end) {
		if line == "" { // behind the last end
			continue
		}
		if err := checkText(line); err != nil {
			return nil, bounded.Explain(fmt.Errorf("line %d %w", len(lines)+1, err), head)
		}
		if whole, ended := strings.CutSuffix(line, end); ended {
			line = strings.TrimSuffix(whole, "\r")
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		return nil, errors.New("no lines")
	}
	return lines, nil
}

// checkText returns an error, which goes on after the name of the place, for what is no text.
func checkText(text string) error {
	switch {
	case strings.IndexByte(text, 0) >= 0:
		return errors.New("has a zero byte: the file is damaged, no text, or UTF-16: want UTF-8")
	case !utf8.ValidString(text):
		return errors.New("is no UTF-8: if it is Latin-1, convert it with iconv -f latin1 -t utf-8 FILE")
	}
	return nil
}
