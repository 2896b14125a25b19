package tokenizer

// visible are the characters that files use for bytes: the byte's own Latin-1 character if it is visible, else one from U+0100 on.
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

// fromVisible returns the bytes of a token's name, or the name as it is if it does not consist of such characters.
func fromVisible(name string) string {
	var s []byte
	for _, r := range name {
		b, ok := byVisible[r]
		if !ok {
			return name
		}
		s = append(s, b)
	}
	return string(s)
}
