package tokenizer

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/bounded"
)

// decoder turns the names of tokens into text.
type decoder struct {
	steps []func(name string, first bool) string // for each token; first: it is the first of all
	whole []func(text string) string             // for the text of all
	first bool                                   // a step asks whether it is the first
}

func (d *decoder) piece(name string, first bool) string {
	for _, step := range d.steps {
		name = step(name, first)
	}
	return name
}

func readDecoder(steps []step) (d decoder, err error) {
	if len(steps) == 0 {
		return d, errors.New("a file without a decoder is not supported")
	}
	bytes, fused, times := false, false, 1
	for i, s := range steps {
		if (bytes || fused) && s.Type != "Fuse" && (s.Type != "Strip" || !fused) || s.Type == "ByteLevel" && i > 0 {
			return d, fmt.Errorf("%s behind %s is not supported", s.Type, steps[i-1].Type)
		}
		switch s.Type {
		case "ByteLevel":
			d.add(fromVisible)
			fused = true
		case "ByteFallback":
			d.add(fromByteName)
			bytes = true
		case "Fuse":
			fused = true
		case "Strip":
			if len([]rune(s.Content)) != 1 || s.Stop != 0 {
				return d, fmt.Errorf("a Strip of %s, %d at the end, is not supported: there is that of a character at the beginning",
					bounded.Quote(s.Content), s.Stop)
			}
			if fused {
				d.whole = append(d.whole, s.stripStart)
			} else {
				d.add(s.stripStart)
			}
		case "Replace":
			replace, err := replacer(s)
			if err != nil {
				return d, err
			}
			d.add(replace)
			if times *= s.growth(); times > 4 {
				return d, errors.New("a Replace by a text more than 4 times longer is not supported")
			}
		case "Metaspace":
			scheme, err := prependScheme(s)
			if err != nil {
				return d, err
			}
			d.first = true
			d.steps = append(d.steps, func(name string, first bool) string {
				if first && scheme != "never" {
					return strings.ReplaceAll(name, s.Replacement, "")
				}
				return strings.ReplaceAll(name, s.Replacement, " ")
			})
		case "WordPiece":
			d.first = true
			d.steps = append(d.steps, s.wordPiece)
		}
	}
	return d, nil
}

func (d *decoder) add(step func(string) string) {
	d.steps = append(d.steps, func(name string, _ bool) string { return step(name) })
}

// stripStart removes at most Start times the character.
func (s step) stripStart(text string) string {
	for i := 0; i < s.Start && strings.HasPrefix(text, s.Content); i++ {
		text = text[len(s.Content):]
	}
	return text
}

// wordPiece puts a space before each token, except the first, and those that go on in a word.
func (s step) wordPiece(name string, first bool) string {
	if rest, ok := strings.CutPrefix(name, s.Prefix); first {
	} else if ok {
		name = rest
	} else {
		name = " " + name
	}
	if s.Cleanup {
		for _, c := range cleanups {
			name = strings.ReplaceAll(name, c[0], c[1])
		}
	}
	return name
}

// cleanups are done in this order.
var cleanups = [][2]string{{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"},
	{" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}}

// fromByteName returns the byte of a name such as <0x0A>, or another name as it is.
func fromByteName(name string) string {
	if len(name) != 6 || name[:3] != "<0x" || name[5] != '>' || name[3] == '-' {
		return name
	}
	b, err := strconv.ParseInt(name[3:5], 16, 16) // which also reads +A, as the library does
	if err != nil {
		return name
	}
	return string([]byte{byte(b)})
}
