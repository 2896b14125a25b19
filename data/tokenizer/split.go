package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// class is a class of characters in the regular expressions.
type class int

const (
	end    class = iota // of the text
	space               // \s
	letter              // \p{L}
	number              // \p{N}
	other
)

// classOf returns the class and the length of the first character. A byte that is not UTF-8 is of class other.
func classOf(s string) (class, int) {
	r, n := utf8.DecodeRuneInString(s)
	switch {
	case n == 0:
		return end, 0
	case unicode.IsSpace(r):
		return space, n
	case isLetter(r):
		return letter, n
	case isNumber(r):
		return number, n
	}
	return other, n
}

// run returns the length of the run of characters of class c at the beginning.
func run(s string, c class) int {
	n := 0
	for {
		got, size := classOf(s[n:])
		if got != c {
			return n
		}
		n += size
	}
}

// splitGPT2 returns the length of the match at the beginning of s, which is not empty, with the pattern built into ByteLevel:
//
//	's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
func splitGPT2(s string) int {
	if n := contraction(s, false); n > 0 {
		return n
	}
	n := 0
	if s[0] == ' ' {
		n = 1
	}
	if c, _ := classOf(s[n:]); c != space && c != end {
		return n + run(s[n:], c)
	}
	return spacesBefore(s)
}

const llama3Pattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

const qwen2Pattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

// splitLlama3 is splitGPT2 for llama3Pattern, and splitQwen2 for qwen2Pattern.
func splitLlama3(s string) int { return splitNumbers(s, 3) }
func splitQwen2(s string) int  { return splitNumbers(s, 1) }

// splitNumbers takes at most that many characters of a number.
func splitNumbers(s string, most int) int {
	if n := contraction(s, true); n > 0 {
		return n
	}
	c, n := classOf(s)
	switch {
	case c == letter:
		return run(s, letter)
	case c == number:
		for range most - 1 {
			if c, size := classOf(s[n:]); c == number {
				n += size
			}
		}
		return n
	case s[0] != '\r' && s[0] != '\n':
		if letters := run(s[n:], letter); letters > 0 {
			return n + letters
		}
	}
	n = 0
	if s[0] == ' ' {
		n = 1
	}
	if others := run(s[n:], other); others > 0 {
		n += others
		return n + len(s[n:]) - len(strings.TrimLeft(s[n:], "\r\n"))
	}
	if newline := strings.LastIndexAny(s[:run(s, space)], "\r\n"); newline >= 0 {
		return newline + 1
	}
	return spacesBefore(s)
}

// spacesBefore is \s+(?!\S)|\s+ at a space: all spaces, except the last one if a word follows and it is not the only one.
func spacesBefore(s string) int {
	n := run(s, space)
	_, last := utf8.DecodeLastRuneInString(s[:n])
	if n == len(s) || n == last {
		return n
	}
	return n - last
}

// contraction returns the length of 's, 't, 're, 've, 'm, 'll or 'd at the beginning, or 0.
func contraction(s string, anyCase bool) int {
	if s[0] != '\'' {
		return 0
	}
	for _, c := range []string{"s", "t", "re", "ve", "m", "ll", "d"} {
		if strings.HasPrefix(s[1:], c) || anyCase && len(s) > len(c) && strings.EqualFold(s[1:1+len(c)], c) {
			return 1 + len(c)
		}
	}
	if anyCase && strings.HasPrefix(s[1:], "ſ") { // the long s, another form of s
		return 1 + len("ſ")
	}
	return 0
}
