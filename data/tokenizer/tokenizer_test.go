package tokenizer_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/data/tokenizer"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// kinds are the folders that testdata/write.py makes.
var kinds = append(bytes[:len(bytes):len(bytes)], "t5", "xlmr", "albert", "bert", "cased")

// bytes are those that have a token for each byte.
var bytes = []string{"gpt2", "llama3", "smollm", "qwen2", "llama2", "metaspace", "phi3", "gemma", "fallback"}

// expected is what Hugging Face's tokenizers computes.
type expected struct {
	Vocab   int
	IDs     [][]int
	Prompt  []int
	Decoded []string
}

func expect(t testing.TB) (texts []string, of map[string]expected) {
	text, err := os.ReadFile("testdata/expect.json")
	require.NoError(t, err)
	return read(t, text)
}

func read(t testing.TB, text []byte) (texts []string, of map[string]expected) {
	var all map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(text, &all))
	require.NoError(t, json.Unmarshal(all["texts"], &texts))
	of = map[string]expected{}
	for _, kind := range kinds {
		var e expected
		require.NoError(t, json.Unmarshal(all[kind], &e))
		of[kind] = e
	}
	return texts, of
}

func open(t testing.TB, kind string) *tokenizer.Tokenizer {
	tok, err := tokenizer.Open(filepath.Join("testdata", kind))
	require.NoError(t, err)
	return tok
}

// TestHuggingFace: ids and texts equal those of Hugging Face's tokenizers, also the tokens around a prompt.
func TestHuggingFace(t *testing.T) {
	texts, of := expect(t)
	require.Greater(t, len(texts), 300)
	for _, kind := range kinds {
		compare(t, kind, texts, of[kind])
	}
}

func compare(t *testing.T, kind string, texts []string, want expected) {
	tok := open(t, kind)
	require.Equal(t, want.Vocab, tok.Vocab(), kind)
	require.Equal(t, want.Prompt, tok.Prompt("the rays"), kind)
	for i, text := range texts {
		got := tok.Encode(text)
		require.Equal(t, fmt.Sprint(want.IDs[i]), fmt.Sprint(got), "%s: %+q", kind, text)
		back, err := tok.Decode(got)
		require.NoError(t, err)
		require.Equal(t, want.Decoded[i], string([]rune(back)), "%s: %+q", kind, text) // there, U+FFFD replaces what is no UTF-8
		pieces := ""
		for _, id := range got {
			pieces += tok.Piece(id)
		}
		if len(got) == 0 || tok.Piece(got[0]) != "" && tok.Piece(got[0])[0] == ' ' || kind != "bert" && kind != "cased" {
			require.Equal(t, back, pieces[len(pieces)-len(back):], "%s: %+q", kind, text)
		}
	}
}

// TestRoundTrip: tokenizers of bytes return every text, UTF-8 or not.
func TestRoundTrip(t *testing.T) {
	toks := []*tokenizer.Tokenizer{tokenizer.Bytes(), open(t, "gpt2"), open(t, "llama3")}
	alphabet := []string{" ", "\n", "\r", "\t", "'", "s", "LL", "the", "é", "中", "🙂", "7", "\u00a0", "\xff", "\xf0\x9f", "\x80", "<|eot_id|>",
		"<|endoftext|>", "\ufffd"}
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var text strings.Builder
		for range r.IntN(20) {
			text.WriteString(alphabet[r.IntN(len(alphabet))])
		}
		for _, tok := range toks {
			checkRoundTrip(t, tok, text.String())
		}
	}
}

func checkRoundTrip(t testing.TB, tok *tokenizer.Tokenizer, text string) {
	back, err := tok.Decode(tok.Encode(text))
	require.NoError(t, err)
	require.Equal(t, text, back)
}

func FuzzRoundTrip(f *testing.F) {
	texts, _ := expect(f)
	for _, text := range texts {
		f.Add(text)
	}
	f.Add("\xff \xf0\x9f\x99")
	toks := []*tokenizer.Tokenizer{tokenizer.Bytes(), open(f, "gpt2"), open(f, "llama3")}
	var characters []*tokenizer.Tokenizer
	for _, kind := range kinds[2:] {
		characters = append(characters, open(f, kind))
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, tok := range toks {
			checkRoundTrip(t, tok, text)
		}
		for _, tok := range characters { // there, added tokens remove spaces
			_, err := tok.Decode(tok.Encode(text))
			require.NoError(t, err)
		}
	})
}

// TestNotUTF8: bytes that are not UTF-8 become tokens of bytes.
func TestNotUTF8(t *testing.T) {
	for _, kind := range bytes {
		tok := open(t, kind)
		back, err := tok.Decode(tok.Encode("a\xff\xe4\xb8 b"))
		require.NoError(t, err)
		require.Equal(t, "a\xff\xe4\xb8 b", back, kind)
	}
}

// TestPartsOfCharacters: tokens that end inside a character return its bytes one by one.
func TestPartsOfCharacters(t *testing.T) {
	for _, kind := range bytes {
		tok := open(t, kind)
		ids := tok.Encode("x𐍈")
		pieces, parts := "", 0
		for _, id := range ids {
			if !utf8.ValidString(tok.Piece(id)) {
				parts++
			}
			pieces += tok.Piece(id)
		}
		require.Greater(t, parts, 1, kind)
		require.Equal(t, "x𐍈", strings.TrimPrefix(pieces, " "), kind)
	}
}

func TestNames(t *testing.T) {
	tok := open(t, "llama3")
	id, ok := tok.ID("<|eot_id|>")
	require.True(t, ok)
	require.Equal(t, tok.Vocab()-1, id)
	require.Equal(t, "<|eot_id|>", tok.Piece(id))
	require.Equal(t, []int{id}, tok.Encode("<|eot_id|>"))
	_, ok = tok.ID("<|endoftext|>")
	require.False(t, ok)

	id, ok = tok.ID("Ġthe") // its name in the file
	require.True(t, ok)
	require.Equal(t, " the", tok.Piece(id))

	for _, wrong := range []int{-1, tok.Vocab()} {
		_, err := tok.Decode([]int{0, wrong})
		require.ErrorContains(t, err, fmt.Sprintf("tokenizer: id %d, at 1, is not the id of a token", wrong))
		require.Empty(t, tok.Piece(wrong))
	}
}

func TestBytes(t *testing.T) {
	tok := tokenizer.Bytes()
	require.Equal(t, 256, tok.Vocab())
	require.Equal(t, []int{'a', 0xc3, 0xa9, 0xff}, tok.Encode("aé\xff"))
	require.Equal(t, tok.Encode("ab"), tok.Prompt("ab"))
	checkRoundTrip(t, tok, strings.Repeat("abc", 5000))
}

// TestLargeTexts: for any text, the time does not grow with the square of its length, which would take half a minute or more here.
// In the short form, each tokenizer reads every tenth text.
func TestLargeTexts(t *testing.T) {
	const size, limit = 1 << 17, 3*time.Second + reliability.Slack
	random := rand.New(rand.NewPCG(1, 2))
	letters := make([]byte, size)
	for i := range letters {
		letters[i] = "abcdefgh"[random.IntN(8)]
	}
	texts := map[string]string{"letters": string(letters)}
	for _, of := range []string{"a", "\u0323\u0301", " ", " \n", "the rays of light ", "<", "<|eot_id|>", "\xff", "'s1!"} {
		texts[of] = strings.Repeat(of, size/len(of))
	}
	names := slices.Sorted(maps.Keys(texts))
	for k, kind := range kinds {
		tok := open(t, kind)
		for i, name := range names {
			if (i+k)%10 > 0 && !reliability.Long(t) {
				continue
			}
			text := texts[name]
			took := time.Hour
			for try := 0; try < 3 && took >= limit; try++ { // the machine may do something else in one of them
				start := time.Now()
				tok.Encode(text)
				took = time.Since(start)
			}
			t.Logf("%s, %q: %v for %d bytes", kind, name, took.Round(time.Millisecond), len(text))
			require.Less(t, took, limit, "%s, %q", kind, name)
		}
	}
}

func TestLongLargeTexts(t *testing.T) { reliability.AsLong(t, TestLargeTexts) }

// TestPython compares with Hugging Face's tokenizers on thousands of texts, if there is a Python with it.
func TestPython(t *testing.T) {
	named := os.Getenv("RINGO_PYTHON")
	python := cmp.Or(named, "python3")
	if out, err := exec.Command(python, "-c", "import tokenizers").CombinedOutput(); err != nil {
		require.Empty(t, named, "%v: %s", err, out)
		t.Skip(python, "has no tokenizers")
	}
	c := exec.Command(python, append([]string{"write.py", "compare"}, kinds...)...)
	c.Dir, c.Stderr = "testdata", os.Stderr
	text, err := c.Output()
	require.NoError(t, err)
	texts, of := read(t, text)
	require.Greater(t, len(texts), 4000)
	for _, kind := range kinds {
		compare(t, kind, texts, of[kind])
	}
}
