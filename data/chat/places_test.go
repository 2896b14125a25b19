package chat

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/data/tokenizer"
)

// TestTransformersMasks: tokens and masks are those of apply_chat_template.
func TestTransformersMasks(t *testing.T) {
	text, err := os.ReadFile("testdata/expect.json")
	require.NoError(t, err)
	var all []struct {
		Kind, Template string
		Specials       map[string]string
		Messages       json.RawMessage
		IDs, Mask      []int
	}
	require.NoError(t, json.Unmarshal(text, &all))
	require.Len(t, all, 70)
	toks, refused := map[string]*tokenizer.Tokenizer{}, 0
	for _, c := range all {
		tok := toks[c.Kind]
		if tok == nil {
			tok, err = tokenizer.Open(filepath.Join("..", "tokenizer", "testdata", c.Kind))
			require.NoError(t, err)
			toks[c.Kind] = tok
		}
		template, err := New(c.Template)
		require.NoError(t, err)
		for name, s := range c.Specials {
			template.vars[name] = s
		}
		messages, _, err := parse(`{"messages": ` + string(c.Messages) + `}`)
		require.NoError(t, err)
		docs, err := template.documents(messages, nil)
		require.NoError(t, err)
		require.Len(t, docs, 1)
		ids, answer, err := encode(tok, docs[0])
		if err != nil {
			refused++
			t.Log(c.Kind, string(c.Messages), err)
			continue
		}
		require.Equal(t, c.IDs, ids)
		mask := make([]int, len(ids))
		for i, a := range answer {
			if a {
				mask[i] = 1
			}
		}
		require.Equal(t, c.Mask, mask, "%s: %s %q", c.Kind, c.Messages, docs[0].text)
	}
	require.LessOrEqual(t, refused, 4, "texts that the tokenizer changes next to an answer")
}
