package tokenizer

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// matcher finds added tokens in a text. A nil *matcher finds none.
type matcher struct {
	pattern *regexp.Regexp
	ids     map[string]int
}

func newMatcher(ids map[string]int) (*matcher, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	var quoted []string
	for _, content := range slices.Sorted(maps.Keys(ids)) {
		quoted = append(quoted, regexp.QuoteMeta(content))
	}
	pattern, err := regexp.Compile(strings.Join(quoted, "|"))
	if err != nil {
		return nil, err
	}
	pattern.Longest()
	return &matcher{pattern, ids}, nil
}

// each calls f for each added token: the leftmost one and, of those at the same place, the longest. It also calls f, with id -1, for each
// text between them that is not empty. Each part begins at byte at of the text.
func (m *matcher) each(s string, f func(at int, part string, id int)) {
	at := 0
	for at < len(s) {
		from, to := len(s), len(s)
		if m != nil {
			if found := m.pattern.FindStringIndex(s[at:]); found != nil {
				from, to = at+found[0], at+found[1]
			}
		}
		if at < from {
			f(at, s[at:from], -1)
		}
		if from < to {
			f(from, s[from:to], m.ids[s[from:to]])
		}
		at = to
	}
}
