package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// text returns a file of testdata with one place changed.
func text(t testing.TB, kind, old, by string) string {
	b, err := os.ReadFile(filepath.Join("testdata", kind, fileName))
	require.NoError(t, err)
	require.Contains(t, string(b), old)
	return strings.Replace(string(b), old, by, 1)
}

// TestClasses: the classes of all letters, numbers and spaces are those of Hugging Face's regular expressions, with every Go release.
func TestClasses(t *testing.T) {
	b, err := os.ReadFile("testdata/expect.json")
	require.NoError(t, err)
	var all struct{ Classes map[string][][2]rune }
	require.NoError(t, json.Unmarshal(b, &all))
	want := map[rune]class{}
	for c, name := range []string{space: "space", letter: "letter", number: "number"} {
		for _, r := range all.Classes[name] {
			for i := r[0]; i <= r[1]; i++ {
				want[i] = class(c)
			}
		}
	}
	require.Greater(t, len(want), 140000)
	for r := range unicode.MaxRune + 1 {
		w, ok := want[r]
		if !ok {
			w = other
		}
		if got, _ := classOf(string(r)); got != w {
			require.Equal(t, w, got, "%U", r)
		}
	}
}

// TestRefused: a setting that is not supported is an error that names it.
func TestRefused(t *testing.T) {
	split := `"behavior":"Isolated"`
	refused(t, []refusal{
		{"gpt2", `"version":`, `"versions":`, `unknown field "versions"`},
		{"gpt2", `"normalizer":null`, `"normalizer":{"type":"Nmt"}`, `normalizer: the type "Nmt" is not supported`},
		{"gpt2", `"normalizer":null`, `"normalizer":{"type":"Replace","pattern":{"Regex":"a+"},"content":"b"}`,
			`normalizer: a Replace of "a+" is not supported`},
		{"gpt2", `"normalizer":null`, `"normalizer":{"type":"Precompiled","precompiled_charsmap":"!"}`,
			`normalizer: a map of Precompiled: illegal base64`},
		{"gpt2", `"normalizer":null`, `"normalizer":{"type":"Precompiled","precompiled_charsmap":"AAAA"}`,
			`there is no map of Precompiled`},
		{"gpt2", `"normalizer":null`, `"normalizer":{"type":"Precompiled","precompiled_charsmap":"AAEAAAAAAAA="}`,
			`the map of Precompiled is damaged`},
		{"gpt2", `"normalizer":null`, `"normalizer":{"type":"Replace","pattern":{"String":"a"},"content":"` +
			strings.Repeat("a", maxGrowth+1) + `"}`, `steps that may make a text more than 16384 times longer`},
		{"gpt2", `"pre_tokenizer":{"type":"ByteLevel"`, `"pre_tokenizer":{"type":"Whitespace"`,
			`pre_tokenizer: the type "Whitespace" is not supported`},
		{"gpt2", `"pre_tokenizer":{"type":"ByteLevel"`, `"pre_tokenizer":{"type":"ByteLevel","new":1`,
			`pre_tokenizer: ByteLevel: json: unknown field "new"`},
		{"gpt2", `"post_processor":{"type":"ByteLevel"`, `"post_processor":{"type":"RobertaProcessing"`,
			`post_processor: the type "RobertaProcessing" is not supported`},
		{"gpt2", `"decoder":{"type":"ByteLevel"`, `"decoder":{"type":"CTC"`, `decoder: the type "CTC" is not supported`},
		{"gpt2", `"decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}`, `"decoder":null`,
			`decoder: a file without a decoder`},
		{"gpt2", `"decoder":{"type":"ByteLevel"`, `"decoder":{"type":"WordPiece"`, `ByteLevel must be both`},
		{"gpt2", `"dropout":null`, `"dropout":0.1`, `model: dropout 0.1`},
		{"gpt2", `"model":{`, `"model":{"type":"WordLevel",`, `model: the type "WordLevel" is not supported`},
		{"gpt2", `"model":{`, `"model":{"type":"Unigram",`, `model: Unigram behind ByteLevel is not supported`},
		{"gpt2", `"model":{`, `"model":{"type":"BPE","news":1,`, `model: BPE: json: unknown field "news"`},
		{"gpt2", `"model":{`, `"model":7,"x":{`, `unknown field "x"`},
		{"gpt2", `"end_of_word_suffix":""`, `"end_of_word_suffix":"</w>"`, `end_of_word_suffix "</w>"`},
		{"gpt2", `"id":421,`, `"id":420,`, `added_tokens: "<|user|>" is not the only token with the id 420`},
		{"gpt2", `"id":421,`, `"id":-1,`, `must be from 0 to`},
		{"gpt2", `"id":421,`, `"id":2097152,`, `must be from 0 to 2097151`},
		{"gpt2", `"content":"<|user|>"`, `"content":""`, `"" is empty or not UTF-8`},
		{"gpt2", `"content":"<|user|>"`, `"content":"a\ud800"`, `is empty or not UTF-8`},
		{"gpt2", `"content":"<|user|>"`, `"content":"!"`, `"!" has the ids 0 and 421`},
		{"gpt2", `"vocab":{"!":0`, `"vocab":{"!!":0`, `no token "!" for the byte 33`},
		{"gpt2", `"vocab":{"!":0`, `"vocab":{"!":1`, `is not the only token with the id 1`},
		{"gpt2", `"merges":[`, `"merges":["a",`, `the merge "a" is not of two tokens`},
		{"gpt2", `"merges":[`, `"merges":["a b c",`, `the merge "a b c" is not of two tokens`},
		{"gpt2", `"merges":[`, `"merges":["! !",`, `merge 0, of "!" and "!": the vocabulary must have both`},
		{"llama3", `"merges":[`, `"merges":[["a"],`, `a merge of 1 tokens, not of two`},
		{"llama3", split, `"behavior":"Removed"`, `Split with behavior "Removed"`},
		{"llama3", `\\p{N}{1,3}`, `\\p{N}{1,2}`, `is not supported: there are Llama 3's`},
		{"llama3", `"invert":false`, `"invert":true`, `Split with behavior "Isolated", invert true`},
		{"llama3", `"ids":[442]`, `"ids":[442` + strings.Repeat(`,442`, maxAround) + `]`, `TemplateProcessing: more than 1024 tokens`},
		{"llama3", `"ids":[442]`, `"ids":[448]`, `TemplateProcessing: "<|begin_of_text|>" has the id 448, which no token has`},
		{"llama3", `{"Sequence":{"id":"A"`, `{"Sequence":{"id":"B"`, `neither a special token nor the text A`},
		{"llama3", `{"Sequence":{"id":"A","type_id":0}}`, `{"SpecialToken":{"id":"<|begin_of_text|>","type_id":0}}`, `the text stands 0 times`},
	})
	for _, empty := range []string{"", "{", "null", "{}", "[]", `{"model":null}`, `{} {}`} {
		_, err := parse([]byte(empty))
		require.Error(t, err, empty)
	}
}

// TestRefusedModels: the same for files with other models.
func TestRefusedModels(t *testing.T) {
	refused(t, []refusal{
		{"llama2", `"pre_tokenizer":null`, `"pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"first"}`,
			`Metaspace with prepend_scheme first is not supported behind normalizers other than NFC`},
		{"llama2", `"byte_fallback":true`, `"byte_fallback":false`, `model: BPE with byte_fallback false is not supported here`},
		{"llama2", `"stop":0`, `"stop":1`, `decoder: a Strip of " ", 1 at the end`},
		{"llama2", `{"type":"Fuse"},`, ``, `decoder: Strip behind ByteFallback is not supported`},
		{"llama2", `"pattern":{"String":"▁"},"content":" "`, `"pattern":{"String":"▁"},"content":"12345678901234567"`,
			`Replace by a text more than 4 times`},
		{"llama2", `"<0x07>"`, `"<0x7>"`, `no token "<0x07>" for the byte 7`},
		{"metaspace", `"replacement":"▁"`, `"replacement":"▁▁"`, `Metaspace with replacement "▁▁"`},
		{"metaspace", `"prepend_scheme":"first"`, `"prepend_scheme":"last"`, `prepend_scheme "last"`},
		{"metaspace", `"prepend_scheme":"first"`, `"prepend_scheme":"first","add_prefix_space":false`, `contradict each other`},
		{"smollm", `{"type":"Digits","individual_digits":true},`, `{"type":"ByteLevel"},`, `ByteLevel is only supported as the last step`},
		{"t5", `"unk_id":2`, `"unk_id":null`, `model: a Unigram without the unk_id`},
		{"t5", `"unk_id":2`, `"unk_id":10000`, `model: a Unigram without the unk_id`},
		{"t5", `["<pad>",0.0]`, `["<pad>"]`, `a token of 1 values`},
		{"t5", `["<pad>",0.0]`, `["` + strings.Repeat("a", maxUnigram+1) + `",0.0]`, `is longer than 1024 bytes`},
		{"fallback", `"<0x07>"`, `"<0x7>"`, `byte_fallback: the vocabulary has no token <0x07>`},
		{"bert", `"unk_token":"[UNK]"`, `"unk_token":"[unk]"`, `the vocabulary has no unk_token "[unk]"`},
		{"bert", `"max_input_chars_per_word":20`, `"max_input_chars_per_word":1001`, `max_input_chars_per_word 1001 is not supported`},
		{"bert", `"added_tokens":[`,
			`"added_tokens":[{"id":900,"content":"A b","normalized":true},{"id":901,"content":"Á b","normalized":true},`,
			`"A b" and "Á b" are normalized to the same text`},
	})
}

// refusal is a change of a file, and the error that it makes.
type refusal struct{ kind, old, by, want string }

func refused(t *testing.T, all []refusal) {
	for _, c := range all {
		_, err := parse([]byte(text(t, c.kind, c.old, c.by)))
		require.ErrorContains(t, err, c.want, "%s in place of %s", c.by, c.old)
	}
}

// TestSchemes: Metaspace's other schemes, and a ByteLevel that adds a space before each part of a text. Ids are those of tokenizers.
func TestSchemes(t *testing.T) {
	for _, c := range []struct{ kind, old, by, text, want string }{
		{"metaspace", `"first"`, `"never"`, "the<s>the a", "t|h|e|<s>|the▁|a"},
		{"metaspace", `"first"`, `"always"`, "the<s>the a", "▁|t|h|e|<s>|▁|the▁|a"},
		{"metaspace", `"first"`, `"first"`, "the<s>the a", "▁|t|h|e|<s>|the▁|a"},
		{"gpt2", `"add_prefix_space":false`, `"add_prefix_space":true`, "the<|user|>the", "Ġthe|<|user|>|Ġthe"},
	} {
		tok, err := parse([]byte(text(t, c.kind, c.old, c.by)))
		require.NoError(t, err)
		names := map[int]string{}
		for name, id := range tok.ids {
			names[id] = name
		}
		var got []string
		for _, id := range tok.Encode(c.text) {
			got = append(got, names[id])
		}
		require.Equal(t, c.want, strings.Join(got, "|"), c.by)
	}
}

// TestEmptySequence: a Sequence of nothing is as none.
func TestEmptySequence(t *testing.T) {
	tok, err := parse([]byte(text(t, "gpt2", `"normalizer":null`, `"normalizer":{"type":"Sequence","normalizers":[]}`)))
	require.NoError(t, err)
	require.Empty(t, tok.normal)
}

// TestOpen: files are found through the links in Hugging Face's cache, and errors name the file.
func TestOpen(t *testing.T) {
	cache := t.TempDir()
	b, err := os.ReadFile("testdata/gpt2/" + fileName)
	require.NoError(t, err)
	snapshot := filepath.Join(cache, "snapshots", "0123")
	require.NoError(t, os.MkdirAll(snapshot, 0o777))
	require.NoError(t, os.Mkdir(filepath.Join(cache, "blobs"), 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(cache, "blobs", "89ab"), b, 0o666))
	if err := os.Symlink(filepath.Join("..", "..", "blobs", "89ab"), filepath.Join(snapshot, fileName)); err != nil {
		t.Skip("no links here:", err)
	}
	tok, err := Open(snapshot)
	require.NoError(t, err)
	require.Equal(t, 424, tok.Vocab())

	_, err = Open(cache)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "; transformers writes it, by AutoTokenizer.from_pretrained(")
	require.ErrorContains(t, err, filepath.Join(cache, fileName))

	path := filepath.Join(cache, fileName)
	require.NoError(t, os.Mkdir(path, 0o777))
	_, err = Open(cache)
	require.ErrorContains(t, err, path+" is not a regular file")

	require.NoError(t, os.Remove(path))
	require.NoError(t, os.WriteFile(path, []byte(`{"model": 1}`), 0o666))
	_, err = Open(cache)
	require.ErrorContains(t, err, path)

	require.NoError(t, os.Truncate(path, maxFile+1))
	_, err = Open(cache)
	require.ErrorContains(t, err, path+": longer than")
}

// TestHostile: files that would take much time or memory are errors.
func TestHostile(t *testing.T) {
	const steps = 100000
	deep := strings.Repeat(`{"type":"Sequence","normalizers":[`, 4000) + strings.Repeat(`]}`, 4000)
	long := `{"type":"Sequence","normalizers":[` + strings.Repeat(`{"type":"Prepend","prepend":"▁"},`, steps-1) + `{"type":"Prepend"}]}`
	for normalizer, want := range map[string]string{
		deep: `normalizer: the type "Sequence" is not supported`, long: `normalizer: a Sequence of 100000`,
	} {
		_, err := parse([]byte(text(t, "gpt2", `"normalizer":null`, `"normalizer":`+normalizer)))
		require.ErrorContains(t, err, want)
	}
	for kind, n := range map[string]int{"gpt2": maxAdded, "albert": 10000} { // there, normalizers could make it longer still
		token := `{"id":900,"normalized":true,"content":"` + strings.Repeat("x", n) + `"},`
		_, err := parse([]byte(text(t, kind, `"added_tokens":[`, `"added_tokens":[`+token)))
		require.ErrorContains(t, err, "added_tokens: longer than")
	}
}

// Files whose values are far larger in memory than in the file are errors.
func TestBombs(t *testing.T) {
	for name, text := range map[string]string{
		"merges":     `{"model":{"type":"BPE","merges":[` + strings.Repeat(`"a b",`, 1_000_000) + `"a b"]}}`,
		"no merges":  `{"model":{"type":"BPE","merges":[` + strings.Repeat(`null,`, 1_000_000) + `null]}}`,
		"added":      `{"added_tokens":[` + strings.Repeat(`{},`, 1_000_000) + `{}]}`,
		"an array":   `{"decoder":[` + strings.Repeat(`0,`, 1_000_000) + `0]}`,
		"vocabulary": `{"model":{"vocab":{` + strings.Repeat(`"":0,`, 1_000_000) + `"":0}}}`,
	} {
		reliability.Bounded(t, len(text), func() {
			_, err := parse([]byte(text))
			require.ErrorContains(t, err, "it would take more than", name)
		})
	}
}

// FuzzOpen: no file makes the program panic, and an accepted one can encode.
func FuzzOpen(f *testing.F) {
	for _, kind := range []string{"gpt2", "llama3", "qwen2", "metaspace", "phi3", "gemma", "t5", "xlmr", "albert", "fallback", "cased"} {
		b, err := os.ReadFile(filepath.Join("testdata", kind, fileName))
		require.NoError(f, err)
		f.Add(b)
		var parts map[string]json.RawMessage
		require.NoError(f, json.Unmarshal(b, &parts))
		delete(parts, "model")
		b, err = json.Marshal(parts)
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var tok *Tokenizer
		var err error
		reliability.Bounded(t, len(b), func() { tok, err = parse(b) })
		if err != nil {
			return
		}
		back, err := tok.Decode(tok.Prompt("The rays of<s>'s 1234 \n é中🙂\xff"))
		require.NoError(t, err)
		require.NotEmpty(t, back)
	})
}

// TestSteps: a word of any length takes at most a few steps for each byte, whatever the tokens.
func TestSteps(t *testing.T) {
	long := strings.Repeat("a", 1<<14)
	for longest, steps := range map[int]int{1: 1, 16: 16, maxUnigram: maxUnigram} {
		tok := &Tokenizer{names: map[int]string{}, ids: map[string]int{}}
		file := unigramFile{Unknown: new(int), Vocab: []scored{{text: "<unk>"}, {text: "a", score: -1}, {text: long[:longest-1] + "b"}}}
		require.NoError(t, tok.readUnigram(&file))
		l := tok.model.worker().(*lattice)
		require.Len(t, l.encode(nil, long), len(long))
		require.GreaterOrEqual(t, l.steps, len(long))
		require.LessOrEqual(t, l.steps, (steps+1)*len(long))
	}

	w, err := parse([]byte(text(t, "bert", `"vocab":{`, `"vocab":{"`+strings.Repeat("ab", 500)+`":900,`)))
	require.NoError(t, err)
	p := w.model.worker().(*pieces)
	require.Len(t, p.encode(nil, long), 1)
	require.Zero(t, p.steps)
	p.encode(nil, long[:20])
	require.LessOrEqual(t, p.steps, 20*20)
}

// TestFirstToken: what a decoder does only with the first token of all.
func TestFirstToken(t *testing.T) {
	for kind, c := range map[string][3]string{"t5": {"▁the", "the", " the"}, "cased": {"##s", "##s", "s"}} {
		tok, err := parse([]byte(text(t, kind, `"version"`, `"version"`)))
		require.NoError(t, err)
		id, ok := tok.ID(c[0])
		require.True(t, ok, c[0])
		got, err := tok.Decode([]int{id, id})
		require.NoError(t, err)
		require.Equal(t, c[1]+c[2], got)
		require.Equal(t, c[2], tok.Piece(id))
	}
}
