package tokenizer

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// matcher finds added tokens in a text. A nil *matcher finds none.
type matcher struct {
	pattern *regexp.Regexp
	tokens  map[string]addedToken // by what is searched
}

func newMatcher(tokens map[string]addedToken) (*matcher, error) {
	if len(tokens) == 0 {
		return nil, nil
	}
	var quoted []string
	for _, content := range slices.Sorted(maps.Keys(tokens)) {
		quoted = append(quoted, regexp.QuoteMeta(content))
	}
	pattern, err := regexp.Compile(strings.Join(quoted, "|"))
	if err != nil {
		return nil, err
	}
	pattern.Longest()
	return &matcher{pattern, tokens}, nil
}

// each calls f for each added token: the leftmost one and, of those at the same place, the longest. It also calls f, with id -1, for each
// text between them that is not empty. Each part begins at byte at of the text. A token that must be a word, and is none, is text; it still
// hides shorter ones at its place.
func (m *matcher) each(s string, f func(at int, part string, id int)) {
	done, searched := 0, 0 // behind the last token that counts, and behind the last one that was found
	for m != nil {
		found := m.pattern.FindStringIndex(s[searched:])
		if found == nil {
			break
		}
		from, to := searched+found[0], searched+found[1]
		searched = to
		t := m.tokens[s[from:to]]
		if t.SingleWord && (endsWithWord(s[:from]) || startsWithWord(s[to:])) {
			continue
		}
		if t.LStrip {
			from = max(done, len(strings.TrimRightFunc(s[:from], unicode.IsSpace)))
		}
		if t.RStrip {
			to = len(s) - len(strings.TrimLeftFunc(s[to:], unicode.IsSpace))
		}
		if done < from {
			f(done, s[done:from], -1)
		}
		f(from, s[from:to], t.ID)
		done = to
	}
	if done < len(s) {
		f(done, s[done:], -1)
	}
}

func startsWithWord(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return unicode.Is(wordChar, r)
}

func endsWithWord(s string) bool {
	r, _ := utf8.DecodeLastRuneInString(s)
	return unicode.Is(wordChar, r)
}
