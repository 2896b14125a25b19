package tokenizer

import (
	"slices"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// form is one of Unicode's normalization forms, as Hugging Face's tokenizers computes it: its tables are those of Unicode 9.0, and a run of
// marks may be of any length. Package norm has newer tables, and puts U+034F into a run of more than 30 marks; its tables are used here,
// one character at a time.
type form struct {
	norm.Form
	compose bool
}

func (f form) normalize(s string) string {
	if f.IsNormalString(s) {
		return s
	}
	c := composer{out: make([]byte, 0, len(s)), joins: f.compose}
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch p := f.PropertiesString(s[:n]); {
		case r == utf8.RuneError || unicode.Is(normalSince9, r):
			c.flush()
			c.out = append(c.out, s[:n]...) // also a byte that is not UTF-8
		case p.Decomposition() != nil:
			for _, r := range string(p.Decomposition()) {
				c.add(r)
			}
		case !f.compose && firstSyllable <= r && r <= lastSyllable:
			for _, r := range norm.NFD.String(s[:n]) {
				c.add(r)
			}
		default:
			c.add(r)
		}
		s = s[n:]
	}
	c.flush()
	return string(c.out)
}

const firstSyllable, lastSyllable = '가', '힣' // of Korean, which no table decomposes

// composer holds a character, and the marks behind it, until the next character that is no mark.
type composer struct {
	out     []byte
	starter []rune // one or none
	marks   []mark
	joins   bool // characters and their marks become composed ones
}

type mark struct {
	r     rune
	class uint8 // the canonical combining class: marks are sorted by it
}

func (c *composer) add(r rune) {
	class := norm.NFC.PropertiesString(string(r)).CCC()
	if class > 0 {
		c.marks = append(c.marks, mark{r, class})
		return
	}
	c.compose()
	if len(c.marks) == 0 && c.join(r) {
		return
	}
	c.write()
	c.starter = append(c.starter, r)
}

// compose joins marks with the character before them. A mark that stays blocks later ones of its class.
func (c *composer) compose() {
	slices.SortStableFunc(c.marks, func(a, b mark) int { return int(a.class) - int(b.class) })
	kept := c.marks[:0]
	for _, m := range c.marks {
		blocked := len(kept) > 0 && kept[len(kept)-1].class == m.class
		if blocked || !c.join(m.r) {
			kept = append(kept, m)
		}
	}
	c.marks = kept
}

// join replaces the character by what it makes with r, if there is such a character.
func (c *composer) join(r rune) bool {
	if !c.joins || len(c.starter) == 0 || norm.NFC.PropertiesString(string(r)).BoundaryBefore() {
		return false
	}
	both := norm.NFC.String(string(c.starter) + string(r))
	joined, n := utf8.DecodeRuneInString(both)
	if n < len(both) || unicode.Is(normalSince9, joined) {
		return false
	}
	c.starter[0] = joined
	return true
}

func (c *composer) flush() {
	c.compose()
	c.write()
}

func (c *composer) write() {
	c.out = append(c.out, string(c.starter)...)
	for _, m := range c.marks {
		c.out = utf8.AppendRune(c.out, m.r)
	}
	c.starter, c.marks = c.starter[:0], c.marks[:0]
}

// normalSince9 are the marks, and the characters with a decomposition, that came after Unicode 9.0, up to 17.0: there, nothing changes.
var normalSince9 = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x07FD, 0x07FD, 1}, {0x0897, 0x089F, 1}, {0x08CA, 0x08D3, 1}, {0x09FE, 0x09FE, 1}, {0x0C3C, 0x0C3C, 1}, {0x0D3B, 0x0D3C, 1},
		{0x0EBA, 0x0EBA, 1}, {0x1715, 0x1715, 1}, {0x1ABF, 0x1ADD, 1}, {0x1AE0, 0x1AEB, 1}, {0x1DF6, 0x1DFA, 1}, {0x32FF, 0x32FF, 1},
		{0xA7F1, 0xA7F4, 1}, {0xA82C, 0xA82C, 1}, {0xAB69, 0xAB69, 1},
	},
	R32: []unicode.Range32{
		{0x105C9, 0x105C9, 1}, {0x105E4, 0x105E4, 1}, {0x10781, 0x107BA, 1}, {0x10D24, 0x10D27, 1}, {0x10D69, 0x10D6D, 1},
		{0x10EAB, 0x10EAC, 1}, {0x10EFA, 0x10EFB, 1}, {0x10EFD, 0x10EFF, 1}, {0x10F46, 0x10F50, 1}, {0x10F82, 0x10F85, 1},
		{0x11070, 0x11070, 1}, {0x1133B, 0x1133B, 1}, {0x11383, 0x11383, 1}, {0x11385, 0x11385, 1}, {0x1138E, 0x1138E, 1},
		{0x11391, 0x11391, 1}, {0x113C5, 0x113C5, 1}, {0x113C7, 0x113C8, 1}, {0x113CE, 0x113D0, 1}, {0x1145E, 0x1145E, 1},
		{0x11839, 0x1183A, 1}, {0x11938, 0x11938, 1}, {0x1193D, 0x1193E, 1}, {0x11943, 0x11943, 1}, {0x119E0, 0x119E0, 1},
		{0x11A34, 0x11A34, 1}, {0x11A47, 0x11A47, 1}, {0x11A99, 0x11A99, 1}, {0x11D42, 0x11D42, 1}, {0x11D44, 0x11D45, 1},
		{0x11D97, 0x11D97, 1}, {0x11F41, 0x11F42, 1}, {0x16121, 0x16128, 1}, {0x1612F, 0x1612F, 1}, {0x16D68, 0x16D6A, 1},
		{0x16FF0, 0x16FF1, 1}, {0x1CCD6, 0x1CCF9, 1}, {0x1E030, 0x1E06D, 1}, {0x1E08F, 0x1E08F, 1}, {0x1E130, 0x1E136, 1},
		{0x1E2AE, 0x1E2AE, 1}, {0x1E2EC, 0x1E2EF, 1}, {0x1E4EC, 0x1E4EF, 1}, {0x1E5EE, 0x1E5EF, 1}, {0x1E6E3, 0x1E6E3, 1},
		{0x1E6E6, 0x1E6E6, 1}, {0x1E6EE, 0x1E6EF, 1}, {0x1E6F5, 0x1E6F5, 1}, {0x1F16C, 0x1F16C, 1}, {0x1FBF0, 0x1FBF9, 1},
	},
}
