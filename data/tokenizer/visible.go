package tokenizer

// visible are the characters that files of bytes write for each byte: itself where it can be seen in Latin-1, else one from U+0100 on.
var visible, byVisible = func() (to [256]rune, from map[rune]byte) {
	from = map[rune]byte{}
	hidden := rune(256)
	for b := range 256 {
		r := rune(b)
		if b <= ' ' || b > '~' && b < 0xA1 || b == 0xAD {
			r = hidden
			hidden++
		}
		to[b], from[r] = r, byte(b)
	}
	return to, from
}()

// fromVisible returns the bytes that a token's name stands for, and whether it consists of such characters.
func fromVisible(name string) (string, bool) {
	var s []byte
	for _, r := range name {
		b, ok := byVisible[r]
		if !ok {
			return "", false
		}
		s = append(s, b)
	}
	return string(s), true
}
