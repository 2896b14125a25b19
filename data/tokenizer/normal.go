package tokenizer

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/ringo-ml/ringo/internal/bounded"
)

// normalizer is one step that changes a text before it is cut into words.
type normalizer func(string) string

func (t *Tokenizer) normalize(s string) string {
	for _, n := range t.normal {
		s = n(s)
	}
	return s
}

func readNormalizer(s step) (normalizer, error) {
	switch s.Type {
	case "NFC":
		return form{norm.NFC, true}.normalize, nil
	case "NFD":
		return form{norm.NFD, false}.normalize, nil
	case "NFKC":
		return form{norm.NFKC, true}.normalize, nil
	case "NFKD":
		return form{norm.NFKD, false}.normalize, nil
	case "Lowercase":
		return lower, nil
	case "StripAccents":
		return func(s string) string { return without(s, accent) }, nil
	case "Strip":
		return func(text string) string {
			if s.StripLeft {
				text = strings.TrimLeftFunc(text, unicode.IsSpace)
			}
			if s.StripRight {
				text = strings.TrimRightFunc(text, unicode.IsSpace)
			}
			return text
		}, nil
	case "Prepend":
		return func(text string) string {
			if text == "" {
				return ""
			}
			return s.Prepend + text
		}, nil
	case "Replace":
		return replacer(s)
	case "BertNormalizer":
		return func(text string) string { return bertNormal(s, text) }, nil
	}
	return readCharsmap(s.Charsmap)
}

// growth tells how many times longer a step can make a text.
func (s step) growth() int {
	switch s.Type {
	case "Replace":
		p := or(s.Pattern, pattern{})
		return 1 + (len(s.Content)-1)/max(1, len(p.String), min(2, len(p.Regex)))
	case "NFKC", "NFKD":
		return 12 // U+FDFA
	case "Precompiled":
		return maxMapped
	case "Prepend", "Strip", "StripAccents":
		return 1
	}
	return 3 // the decomposition of U+0390
}

// regexes are the regular expressions that Replace may have: for them, package regexp and the library's are the same.
var regexes = []string{" {2,}"}

func replacer(s step) (normalizer, error) {
	p := or(s.Pattern, pattern{})
	if p.String != "" && p.Regex == "" {
		return func(text string) string { return strings.ReplaceAll(text, p.String, s.Content) }, nil
	}
	for _, known := range regexes {
		if p == (pattern{Regex: known}) {
			r := regexp.MustCompile(known)
			return func(text string) string { return r.ReplaceAllLiteralString(text, s.Content) }, nil
		}
	}
	return nil, fmt.Errorf("a Replace of %s is not supported: there are texts, and the regular expressions %q",
		bounded.Quote(p.String+p.Regex), regexes)
}

// edit builds a text from what f appends for each character. Bytes that are not UTF-8 stay.
func edit(s string, f func(out []byte, r rune) []byte) string {
	out := make([]byte, 0, len(s))
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 {
			out = append(out, s[0])
		} else {
			out = f(out, r)
		}
		s = s[n:]
	}
	return string(out)
}

func without(s string, table *unicode.RangeTable) string {
	return edit(s, func(out []byte, r rune) []byte {
		if unicode.Is(table, r) {
			return out
		}
		return utf8.AppendRune(out, r)
	})
}

// lower makes every character lower case by itself: a sigma at the end of a word is as any other.
func lower(s string) string {
	return edit(s, func(out []byte, r rune) []byte {
		if r == 'İ' {
			return append(out, "i\u0307"...)
		}
		return utf8.AppendRune(out, lower17.ToLower(r))
	})
}

// lower17 are the letters since Unicode 15.0, which a Go release may not know.
var lower17 = unicode.SpecialCase{
	{Lo: 0x1C89, Hi: 0x1C89, Delta: delta(1)}, {Lo: 0xA7CB, Hi: 0xA7CB, Delta: delta(0x264 - 0xA7CB)},
	{Lo: 0xA7CC, Hi: 0xA7CC, Delta: delta(1)}, {Lo: 0xA7CE, Hi: 0xA7CE, Delta: delta(1)}, {Lo: 0xA7D2, Hi: 0xA7D2, Delta: delta(1)},
	{Lo: 0xA7D4, Hi: 0xA7D4, Delta: delta(1)}, {Lo: 0xA7DA, Hi: 0xA7DA, Delta: delta(1)},
	{Lo: 0xA7DC, Hi: 0xA7DC, Delta: delta(0x19B - 0xA7DC)}, {Lo: 0x10D50, Hi: 0x10D65, Delta: delta(0x20)},
	{Lo: 0x16EA0, Hi: 0x16EB8, Delta: delta(0x1B)},
}

func delta(d rune) (of [unicode.MaxCase]rune) {
	of[unicode.LowerCase] = d
	return of
}

// bertNormal is BERT's normalizer: no control characters, ideographs as words of their own, no accents, lower case.
func bertNormal(s step, text string) string {
	if s.CleanText {
		text = edit(without(text, bertControl), func(out []byte, r rune) []byte {
			if unicode.IsSpace(r) {
				r = ' '
			}
			return utf8.AppendRune(out, r)
		})
	}
	if s.Chinese {
		text = edit(text, func(out []byte, r rune) []byte {
			if !unicode.Is(ideographs, r) {
				return utf8.AppendRune(out, r)
			}
			return append(utf8.AppendRune(append(out, ' '), r), ' ')
		})
	}
	if or(s.StripAccents, s.Lowercase) {
		text = without(form{norm.NFD, false}.normalize(text), bertMark)
	}
	if s.Lowercase {
		text = lower(text)
	}
	return text
}

// ideographs are those that BERT's normalizer knows.
var ideographs = &unicode.RangeTable{
	R16: []unicode.Range16{{0x3400, 0x4DBF, 1}, {0x4E00, 0x9FFF, 1}, {0xF900, 0xFAFF, 1}},
	R32: []unicode.Range32{{0x20000, 0x2A6DF, 1}, {0x2A700, 0x2B81F, 1}, {0x2B920, 0x2CEAF, 1}, {0x2F800, 0x2FA1F, 1}},
}

// charsmap is SentencePiece's map of texts: a double array (darts-clone), and the texts that it leads to, each with a zero behind.
type charsmap struct {
	units []uint32
	texts string
}

const maxMapped = 64 // bytes of a text; NFKC's longest has 33

func readCharsmap(text string) (normalizer, error) {
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("a map of Precompiled: %w", err)
	}
	if len(b) < 8 {
		return nil, errors.New("there is no map of Precompiled")
	}
	size := binary.LittleEndian.Uint32(b)
	b = b[4:]
	if size == 0 || size%4 != 0 || uint64(size) > uint64(len(b)) || !utf8.Valid(b[size:]) {
		return nil, errors.New("the map of Precompiled is damaged")
	}
	for text := range strings.SplitSeq(string(b[size:]), "\x00") {
		if len(text) > maxMapped {
			return nil, fmt.Errorf("a text of Precompiled is longer than %d bytes", maxMapped)
		}
	}
	m := &charsmap{make([]uint32, size/4), string(b[size:])}
	for i := range m.units {
		m.units[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return m.normalize, nil
}

// normalize replaces characters as the library does: a short grapheme as a whole, by what its first characters lead to; else each
// character by itself.
func (m *charsmap) normalize(s string) string {
	var out strings.Builder
	for len(s) > 0 {
		n := grapheme(s)
		if to, ok := m.find(s[:n]); ok && n < 6 {
			out.WriteString(to)
			s = s[n:]
			continue
		}
		for end := len(s) - n; len(s) > end; {
			_, n := utf8.DecodeRuneInString(s)
			to, ok := m.find(s[:n])
			if !ok {
				to = s[:n]
			}
			out.WriteString(to)
			s = s[n:]
		}
	}
	return out.String()
}

// find returns what the shortest prefix of a text in the map leads to.
func (m *charsmap) find(s string) (string, bool) {
	at := offset(m.units[0])
	for _, c := range []byte(s) {
		at ^= uint32(c)
		if c == 0 || int(at) >= len(m.units) || m.units[at]&(1<<31|0xFF) != uint32(c) {
			break
		}
		leaf := m.units[at]>>8&1 == 1
		at ^= offset(m.units[at])
		if !leaf {
			continue
		}
		if int(at) >= len(m.units) || int(m.units[at]&^(1<<31)) > len(m.texts) {
			break
		}
		to, _, _ := strings.Cut(m.texts[m.units[at]&^(1<<31):], "\x00")
		return to, true
	}
	return "", false
}

func offset(unit uint32) uint32 { return unit >> 10 << (unit >> 9 & 1 * 8) }
