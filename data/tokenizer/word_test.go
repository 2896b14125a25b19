package tokenizer

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// TestWords: texts are cut where Hugging Face's regular expressions cut them.
func TestWords(t *testing.T) {
	b, err := os.ReadFile("testdata/expect.json")
	require.NoError(t, err)
	var all struct {
		Texts               []string
		GPT2, Llama3, Qwen2 struct{ Words [][]int }
	}
	require.NoError(t, json.Unmarshal(b, &all))
	for i, text := range all.Texts {
		require.Equal(t, all.GPT2.Words[i], lengths(text, splitGPT2), "gpt2: %q", text)
		require.Equal(t, all.Llama3.Words[i], lengths(text, splitLlama3), "llama3: %q", text)
		require.Equal(t, all.Qwen2.Words[i], lengths(text, splitQwen2), "qwen2: %q", text)
	}
}

// lengths returns the lengths of words in characters.
func lengths(s string, split func(string) int) []int {
	all := []int{}
	for s != "" {
		n := split(s)
		all = append(all, utf8.RuneCountInString(s[:n]))
		s = s[n:]
	}
	return all
}

// TestNaive: the heap merges as the definition says: again and again, of all pairs that have a merge, the one of lowest rank, and of those
// the leftmost. Vocabularies and merges are random.
func TestNaive(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		b := randomBPE(r)
		for range 20 {
			s := make([]byte, 1+r.IntN(40))
			for i := range s {
				s[i] = "abcd"[r.IntN(4)]
			}
			require.Equal(t, naive(b, string(s)), b.worker().encode(nil, string(s)), "%s", s)
		}
	}
}

// randomBPE has the merges of random pairs of tokens, in an order in which a later one may make what an earlier one takes.
func randomBPE(r *rand.Rand) *bpe {
	b := &bpe{merges: map[pair]merge{}}
	var texts []string
	ids := map[string]int32{}
	add := func(s string) int32 {
		if _, ok := ids[s]; !ok {
			ids[s] = int32(len(texts))
			texts = append(texts, s)
		}
		return ids[s]
	}
	for _, c := range "abcd" {
		b.bytes[c] = add(string(c))
	}
	ranks := r.Perm(40)
	for _, rank := range ranks {
		p := pair{int32(r.IntN(len(texts))), int32(r.IntN(len(texts)))}
		if s := texts[p.left] + texts[p.right]; len(s) <= 6 {
			b.merges[p] = merge{int32(rank), add(s)}
		}
	}
	return b
}

func naive(b *bpe, s string) []int {
	var ids []int
	for _, c := range []byte(s) {
		ids = append(ids, int(b.bytes[c]))
	}
	for {
		best, at := merge{}, -1
		for i := range len(ids) - 1 {
			m, ok := b.merges[pair{int32(ids[i]), int32(ids[i+1])}]
			if ok && (at < 0 || m.rank < best.rank) {
				best, at = m, i
			}
		}
		if at < 0 {
			return ids
		}
		ids = append(append(ids[:at:at], int(best.id)), ids[at+2:]...)
	}
}
