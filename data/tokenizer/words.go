package tokenizer

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ringo-ml/ringo/internal/bounded"
)

// A cutter is a step that cuts a text into parts. first says whether it begins where the text of Encode begins.
type cutter func(s string, first bool, out func(part string, first bool))

// cut passes a part of a text through the cutters from one on.
func (t *Tokenizer) cut(from int, s string, first bool, out func(word string)) {
	if s == "" {
		return
	}
	if from == len(t.cutters) {
		out(s)
		return
	}
	t.cutters[from](s, first, func(part string, first bool) { t.cut(from+1, part, first, out) })
}

// by cuts at the ends of what split matches at the beginning, again and again.
func by(split func(string) int) cutter {
	return func(s string, first bool, out func(string, bool)) {
		for s != "" {
			n := split(s)
			out(s[:n], first)
			s, first = s[n:], false
		}
	}
}

// between cuts out what lies between characters of the class. These are parts of their own if keep is set.
func between(class func(rune) bool, keep bool) cutter {
	return func(s string, first bool, out func(string, bool)) {
		for from, at := 0, 0; from < len(s); {
			found := strings.IndexFunc(s[at:], class)
			n := 0
			if found < 0 {
				at = len(s)
			} else {
				at += found
				_, n = utf8.DecodeRuneInString(s[at:])
			}
			out(s[from:at], first && from == 0)
			if keep {
				out(s[at:at+n], first && at == 0)
			}
			at += n
			from = at
		}
	}
}

// readCutters returns the cutters of the steps; first tells whether one of them asks where the text begins.
func readCutters(steps []step) (cutters []cutter, first bool, err error) {
	for i, s := range steps {
		switch s.Type {
		case "Metaspace":
			scheme, err := prependScheme(s)
			if err != nil {
				return nil, false, err
			}
			first = first || scheme == "first"
			cutters = append(cutters, metaspace(s.Replacement, scheme, or(s.Split, true)))
		case "Split":
			c, err := readSplit(s)
			if err != nil {
				return nil, false, err
			}
			cutters = append(cutters, c)
		case "ByteLevel":
			if i != len(steps)-1 {
				return nil, false, errors.New("ByteLevel is only supported as the last step")
			}
			cutters = append(cutters, byteLevel(or(s.PrefixSpace, true), or(s.UseRegex, true)))
		case "WhitespaceSplit":
			cutters = append(cutters, between(unicode.IsSpace, false))
		case "BertPreTokenizer":
			cutters = append(cutters, between(unicode.IsSpace, false),
				between(func(r rune) bool { return unicode.Is(bertPunctuation, r) }, true))
		case "Digits":
			isDigit := func(r rune) bool { return unicode.Is(digit, r) }
			if s.Individual {
				cutters = append(cutters, between(isDigit, true))
			} else {
				cutters = append(cutters, by(func(s string) int { return same(s, isDigit) }))
			}
		}
	}
	return cutters, first, nil
}

// same returns the length of the run of characters that are all of the class, or all not.
func same(s string, class func(rune) bool) int {
	r, _ := utf8.DecodeRuneInString(s)
	is := class(r)
	if n := strings.IndexFunc(s, func(r rune) bool { return class(r) != is }); n >= 0 {
		return n
	}
	return len(s)
}

func byteLevel(prefix, regex bool) cutter {
	words := by(splitGPT2)
	return func(s string, first bool, out func(string, bool)) {
		if prefix && s[0] != ' ' {
			s = " " + s
		}
		if regex {
			words(s, first, out)
		} else {
			out(s, first)
		}
	}
}

// prependScheme returns when Metaspace puts its character before a part: always, first or never. Old files say add_prefix_space.
func prependScheme(s step) (string, error) {
	scheme := s.Scheme
	if scheme == "" {
		scheme = "always"
	}
	if !or(s.PrefixSpace, true) {
		if scheme != "never" && s.Scheme != "" {
			return "", fmt.Errorf("add_prefix_space and prepend_scheme %s of Metaspace contradict each other", bounded.Quote(scheme))
		}
		scheme = "never"
	}
	if scheme != "always" && scheme != "first" && scheme != "never" || utf8.RuneCountInString(s.Replacement) != 1 {
		return "", fmt.Errorf("a Metaspace with replacement %s and prepend_scheme %s is not supported", bounded.Quote(s.Replacement),
			bounded.Quote(scheme))
	}
	return scheme, nil
}

// metaspace replaces spaces by mark. The parts that it cuts begin with it.
func metaspace(mark, scheme string, cut bool) cutter {
	words := by(func(s string) int {
		_, n := utf8.DecodeRuneInString(s)
		if end := strings.Index(s[n:], mark); end >= 0 {
			return n + end
		}
		return len(s)
	})
	return func(s string, first bool, out func(string, bool)) {
		s = strings.ReplaceAll(s, " ", mark)
		if (scheme == "always" || scheme == "first" && first) && !strings.HasPrefix(s, mark) {
			s = mark + s
		}
		if cut {
			words(s, first, out)
		} else {
			out(s, first)
		}
	}
}

// patterns are the regular expressions of Split.
var patterns = map[string]func(string) int{llama3Pattern: splitLlama3, qwen2Pattern: splitQwen2}

func readSplit(s step) (cutter, error) {
	p := or(s.Pattern, pattern{})
	split, ok := patterns[p.Regex]
	switch {
	case s.Invert:
	case ok && p.String == "" && s.Behavior == "Isolated":
		return by(split), nil
	case p.Regex == "" && p.String != "" && s.Behavior == "MergedWithPrevious":
		return by(func(s string) int {
			if end := strings.Index(s, p.String); end >= 0 {
				return end + len(p.String)
			}
			return len(s)
		}), nil
	}
	return nil, fmt.Errorf("a Split with behavior %s, invert %v and pattern %s is not supported: there are Llama 3's, %q, and Qwen2's, %q, "+
		"isolated, and texts that are MergedWithPrevious", bounded.Quote(s.Behavior), s.Invert, bounded.Quote(p.String+p.Regex),
		llama3Pattern, qwen2Pattern)
}
