package jinja

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// failure is an error of a template, which Parse and Render return.
type failure struct{ error }

func fail(format string, a ...any) { panic(failure{fmt.Errorf(format, a...)}) }

type kind byte

const (
	end      kind = iota
	text          // outside of tags
	operator      // with {{ }} {% %} and the words that are no names
	name
	str
	number
)

type token struct {
	kind kind
	text string // of a string: without quotes and escapes
	line int
}

var (
	opening = regexp.MustCompile(`\{[{%#]`)
	inTag   = regexp.MustCompile(`^(?:(not\s+in\b|(?:and|else|if|in|is|not|or)\b|//|[=!<>]=|[-+*/%~<>=.,:|()\[\]])|([\pL_][\pL\pN_]*)|(\d+)|` +
		`('(?:[^'\\]|\\[nrt\\'"])*'|"(?:[^"\\]|\\[nrt\\'"])*"))`)
	unescape = strings.NewReplacer(`\n`, "\n", `\r`, "\r", `\t`, "\t", `\\`, `\`, `\'`, `'`, `\"`, `"`)
	newlines = strings.NewReplacer("\r\n", "\n", "\r", "\n")
)

type lexer struct {
	rest   string
	source string
	tokens []token
}

// lex cuts a template into tokens.
func lex(source string) []token {
	source = strings.TrimSuffix(newlines.Replace(source), "\n")
	l := &lexer{rest: source, source: source}
	lineStart := true // what came before ended a line
	for {
		at := opening.FindStringIndex(l.rest)
		if at == nil {
			l.add(text, l.rest)
			l.add(end, "the end")
			return l.tokens
		}
		before, begin := l.rest[:at[0]], l.rest[at[0]:at[1]]
		l.rest = l.rest[at[1]:]
		if rest, ok := strings.CutPrefix(l.rest, "-"); ok {
			l.rest, before = rest, strings.TrimRightFunc(before, isSpace)
		} else if line := strings.LastIndexByte(before, '\n') + 1; begin != "{{" && (line > 0 || lineStart) { // lstrip_blocks
			if strings.TrimFunc(before[line:], isSpace) == "" {
				before = before[:line]
			}
		}
		l.add(text, before)
		trim := l.tag(begin)
		rest := l.rest
		if trim {
			l.rest = strings.TrimLeftFunc(rest, isSpace)
		} else if begin != "{{" { // trim_blocks
			l.rest = strings.TrimPrefix(rest, "\n")
		}
		lineStart = strings.HasSuffix(rest[:len(rest)-len(l.rest)], "\n")
	}
}

// isSpace reports what Python's strip removes.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

func (l *lexer) line() int { return 1 + strings.Count(l.source[:len(l.source)-len(l.rest)], "\n") }

func (l *lexer) add(k kind, s string) {
	if k != text || s != "" {
		l.tokens = append(l.tokens, token{k, s, l.line()})
	}
}

// tag adds the tokens of a tag, and reports whether it ends with a sign that removes spaces.
func (l *lexer) tag(begin string) (trim bool) {
	if begin == "{#" {
		s, rest, ok := strings.Cut(l.rest, "#}")
		if !ok {
			fail("line %d: a comment has no end", l.line())
		}
		l.rest = rest
		return strings.HasSuffix(s, "-")
	}
	closing := map[string]string{"{{": "}}", "{%": "%}"}[begin]
	line := l.line()
	l.tokens = append(l.tokens, token{operator, begin, line})
	for {
		l.rest = strings.TrimLeftFunc(l.rest, isSpace)
		rest, trim := strings.CutPrefix(l.rest, "-"+closing)
		if rest, ok := strings.CutPrefix(rest, closing); ok || trim {
			l.rest = rest
			l.tokens = append(l.tokens, token{operator, closing, line})
			return trim
		}
		m := inTag.FindStringSubmatch(l.rest)
		if m == nil {
			fail("line %d: %.20q is not supported, or the tag has no end", line, l.rest)
		}
		l.rest = l.rest[len(m[0]):]
		switch {
		case m[1] != "":
			l.tokens = append(l.tokens, token{operator, strings.Join(strings.Fields(m[1]), " "), line})
		case m[4] != "":
			l.tokens = append(l.tokens, token{str, unescape.Replace(m[4][1 : len(m[4])-1]), line})
		default:
			l.tokens = append(l.tokens, token{map[bool]kind{true: name, false: number}[m[2] != ""], m[2] + m[3], line})
		}
	}
}
