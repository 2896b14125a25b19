package bounded

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxQuoted is the number of bytes of a word that errors print.
const maxQuoted = 100

// Quote returns a word of a file for an error: quoted, so that no terminal obeys it, and shortened.
func Quote(word string) string {
	if len(word) <= maxQuoted {
		return strconv.Quote(word)
	}
	return fmt.Sprintf("%q... (%d bytes)", word[:maxQuoted], len(word))
}

// Plain returns a word of a file for people: as it is if it is short and can be printed, else as Quote does.
func Plain(word string) string {
	if len(word) <= maxQuoted && utf8.ValidString(word) && !strings.ContainsFunc(word, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return word
	}
	return Quote(word)
}
