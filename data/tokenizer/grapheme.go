package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// grapheme returns the length of the first grapheme of a text that is not empty (Unicode Standard Annex 29), as far as it matters for
// those of less than 6 bytes: joined consonants of Indic scripts are longer.
func grapheme(s string) int {
	n := 0
	for {
		r, size := utf8.DecodeRuneInString(s[n:])
		if !unicode.Is(graphemePrepend, r) {
			break
		}
		n += size
	}
	r, size := utf8.DecodeRuneInString(s[n:])
	switch {
	case size == 0:
		return n
	case standsAlone(r) && n > 0:
		return n
	case r == '\r' && len(s) > 1 && s[1] == '\n':
		return 2
	case standsAlone(r):
		return size
	}
	n += size
	joiner := false
	for pair := false; ; {
		next, size := utf8.DecodeRuneInString(s[n:])
		switch {
		case size == 0:
			return n
		case unicode.Is(graphemeExtend, next):
			joiner = next == '\u200d' && (unicode.Is(pictograph, r) || r == '©')
			pair = true
		case joiner && unicode.Is(pictograph, next), hangul(r, next) && !pair:
			joiner, r = false, next
		case unicode.Is(unicode.Regional_Indicator, r) && unicode.Is(unicode.Regional_Indicator, next) && !pair:
			pair = true
		default:
			return n
		}
		n += size
	}
}

func standsAlone(r rune) bool {
	return r == 0 || unicode.Is(graphemeControl, r) || r > 0xFFFF && unicode.Is(unicode.Cf, r) && !unicode.Is(graphemeExtend, r)
}

// hangul tells whether two parts of Korean syllables are of one.
func hangul(a, b rune) bool {
	const lead, vowel, tail, lv, lvt = 1, 2, 3, 4, 5
	kind := func(r rune) int {
		switch {
		case 0x1100 <= r && r <= 0x115F, 0xA960 <= r && r <= 0xA97C:
			return lead
		case 0x1160 <= r && r <= 0x11A7, 0xD7B0 <= r && r <= 0xD7C6:
			return vowel
		case 0x11A8 <= r && r <= 0x11FF, 0xD7CB <= r && r <= 0xD7FB:
			return tail
		case 0xAC00 <= r && r <= 0xD7A3 && (r-0xAC00)%28 == 0:
			return lv
		case 0xAC00 <= r && r <= 0xD7A3:
			return lvt
		}
		return 0
	}
	switch k := kind(b); kind(a) {
	case lead:
		return k == lead || k == vowel || k == lv || k == lvt
	case vowel, lv:
		return k == vowel || k == tail
	case tail, lvt:
		return k == tail
	}
	return false
}
