package tokenizer

import "unicode"

// Models were trained with the letters and numbers of one version of Unicode, and a program's tokens must not depend on the Go release that
// built it: package unicode has version 15.0 in Go 1.26, and 17.0 in Go 1.27. Here they are those of 16.0, the version of tokenizers
// 0.23.3.

func isLetter(r rune) bool { return is(r, unicode.IsLetter(r), letters16) }
func isNumber(r rune) bool { return is(r, unicode.IsNumber(r), numbers16) }

func is(r rune, now bool, since16 *unicode.RangeTable) bool {
	if r < first16 {
		return now
	}
	return now && !unicode.Is(since17, r) || unicode.Is(since16, r)
}

const first16 = 0x88F // the first character in the tables

// letters16 are the letters that were added after 15.0.
var letters16 = &unicode.RangeTable{
	R16: []unicode.Range16{{0x1C89, 0x1C8A, 1}, {0xA7CB, 0xA7CD, 1}, {0xA7DA, 0xA7DC, 1}},
	R32: []unicode.Range32{
		{0x105C0, 0x105F3, 1}, {0x10D4A, 0x10D65, 1}, {0x10D6F, 0x10D85, 1}, {0x10EC2, 0x10EC4, 1}, {0x11380, 0x11389, 1}, {0x1138B, 0x1138B, 1},
		{0x1138E, 0x1138E, 1}, {0x11390, 0x113B5, 1}, {0x113B7, 0x113B7, 1}, {0x113D1, 0x113D1, 1}, {0x113D3, 0x113D3, 1}, {0x11BC0, 0x11BE0, 1},
		{0x13460, 0x143FA, 1}, {0x16100, 0x1611D, 1}, {0x16D40, 0x16D6C, 1}, {0x18CFF, 0x18CFF, 1}, {0x1E5D0, 0x1E5ED, 1}, {0x1E5F0, 0x1E5F0, 1},
		{0x2EBF0, 0x2EE5D, 1},
	},
}

// numbers16 are the numbers that were added after 15.0.
var numbers16 = &unicode.RangeTable{R32: []unicode.Range32{
	{0x10D40, 0x10D49, 1}, {0x116D0, 0x116E3, 1}, {0x11BF0, 0x11BF9, 1}, {0x16130, 0x16139, 1}, {0x16D70, 0x16D79, 1}, {0x1CCF0, 0x1CCF9, 1},
	{0x1E5F1, 0x1E5FA, 1},
}}

// since17 are the letters and numbers that were added in 17.0.
var since17 = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x088F, 0x088F, 1}, {0x0C5C, 0x0C5C, 1}, {0x0CDC, 0x0CDC, 1}, {0xA7CE, 0xA7CF, 1}, {0xA7D2, 0xA7D2, 1}, {0xA7D4, 0xA7D4, 1},
		{0xA7F1, 0xA7F1, 1},
	},
	R32: []unicode.Range32{
		{0x10940, 0x10959, 1}, {0x10EC5, 0x10EC7, 1}, {0x11DB0, 0x11DDB, 1}, {0x11DE0, 0x11DE9, 1}, {0x16EA0, 0x16EB8, 1}, {0x16EBB, 0x16ED3, 1},
		{0x16FF2, 0x16FF6, 1}, {0x187F8, 0x187FF, 1}, {0x18D09, 0x18D1E, 1}, {0x18D80, 0x18DF2, 1}, {0x1E6C0, 0x1E6DE, 1}, {0x1E6E0, 0x1E6E2, 1},
		{0x1E6E4, 0x1E6E5, 1}, {0x1E6E7, 0x1E6ED, 1}, {0x1E6F0, 0x1E6F4, 1}, {0x1E6FE, 0x1E6FF, 1}, {0x2B73A, 0x2B73F, 1}, {0x2CEA2, 0x2CEAD, 1},
		{0x323B0, 0x33479, 1},
	},
}
