package jinja_test

import (
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/jinja"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// clock is the time of testdata/write.py.
var clock = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func value(t testing.TB, text []byte) any {
	v, err := jinja.JSON(text)
	require.NoError(t, err)
	return v
}

func render(text string, vars map[string]any) (string, [][2]int, error) {
	t, err := jinja.Parse(text)
	if err != nil {
		return "", nil, err
	}
	return t.Render(vars, clock)
}

// TestTransformers: texts and generation blocks are those of transformers, and what it refuses is an error.
func TestTransformers(t *testing.T) {
	f, err := os.Open(cmp.Or(os.Getenv("EXPECT"), "testdata/expect.json.gz"))
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	var want struct {
		Chats     []json.RawMessage
		Options   []map[string]json.RawMessage
		Templates map[string][][][]json.RawMessage
	}
	require.NoError(t, json.NewDecoder(z).Decode(&want))
	require.GreaterOrEqual(t, len(want.Templates), 8)
	for name, chats := range want.Templates {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join("testdata", "templates", name)
		}
		source, err := os.ReadFile(path)
		require.NoError(t, err)
		tpl, err := jinja.Parse(string(source))
		if filepath.IsAbs(name) && err != nil {
			t.Log(name, err)
			continue
		}
		require.NoError(t, err, name)
		rendered := 0
		for c, options := range chats {
			for o, expected := range options {
				vars := map[string]any{"messages": value(t, want.Chats[c]), "bos_token": "<s>", "eos_token": "</s>", "tools": nil, "documents": nil,
					"add_generation_prompt": false}
				for n, v := range want.Options[o] {
					vars[n] = value(t, v)
				}
				about := fmt.Sprintf("%s: %s %s", name, want.Chats[c], want.Options[o])
				got, spans, err := tpl.Render(vars, clock)
				if len(expected) == 1 {
					require.Error(t, err, about)
					continue
				}
				if err != nil && strings.Contains(about, `"content":[`) { // only Python writes lists so
					require.EqualError(t, err, "the text of a list is not supported: tojson is")
					continue
				}
				rendered++
				require.NoError(t, err, about)
				var text string
				var places [][2]int
				require.NoError(t, json.Unmarshal(expected[0], &text))
				require.NoError(t, json.Unmarshal(expected[1], &places))
				require.Equal(t, text, got, about)
				require.Len(t, spans, len(places), about)
				for i, p := range places { // transformers counts letters
					runes := []rune(text)
					require.Equal(t, string(runes[p[0]:p[1]]), got[spans[i][0]:spans[i][1]], about)
				}
			}
		}
		t.Logf("%s: %d texts", name, rendered)
		require.Greater(t, rendered, 100, name)
	}
}

// TestHostile: no template takes much time or memory, or ends the program.
func TestHostile(t *testing.T) {
	deep := func(n int, open, inner, closing string) string {
		return strings.Repeat(open, n) + inner + strings.Repeat(closing, n)
	}
	const limit = "steps and bytes"
	for text, want := range map[string]string{
		`{% set ns = namespace(x="a") %}{% for i in range(40) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}`:                   limit,
		`{% set ns = namespace(x=[1]) %}{% for i in range(40) %}{% set ns.x = ns.x + ns.x %}{% endfor %}`:                   limit,
		`{% set ns = namespace(x=1) %}{% for i in range(40) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | tojson }}`: limit,
		`{% set ns = namespace(x=1) %}{% for i in range(40) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x == ns.x }}`:  limit,
		`{% set ns = namespace(x=1) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson }}`:     "inside each other",
		`{% for i in range(10000000000) %}{% endfor %}`:                                                                     limit,
		`{% for i in range(99999) %}{% for i in range(99999) %}{% endfor %}{% endfor %}`:                                    limit,
		`{{ "abc" * 1000000000 }}`: "a string * a number is not supported",
		`{{ x.replace("", x) }}`:   limit,
		`{{ ([1] * 3) }}`:          "a list * a number is not supported",
		`{% for i in range(1000) %}{{ range(100000) | join("----------------------------------------") }}{% endfor %}`: limit,
		`{% set ns = namespace(x=none) %}{% for i in range(30000) %}{% set ns.x = [ns.x, loop] %}{% endfor %}`:         limit,
		`{% for i in range(100000) %}{% if (x ~ x).split("b") %}{% endif %}{% endfor %}`:                               limit,
		deep(5000, "{% if 1 %}", "", "{% endif %}"):                                                                    "inside each other",
		deep(5000, "{{ ", "", ""):                           "line 1",
		"{{ " + deep(5000, "(", "1", ")") + " }}":           "inside each other",
		"{{ " + deep(5000, "[", "1", "]") + " }}":           "inside each other",
		"{{ " + deep(5000, "not ", "1", "") + " }}":         "inside each other",
		"{{ " + deep(5000, "-", "1", "") + " }}":            "inside each other",
		"{{ x" + deep(5000, ".a", "", "") + " }}":           "inside each other",
		"{{ x" + deep(5000, " | trim", "", "") + " }}":      "inside each other",
		"{{ 1" + deep(5000, " if 1 else 1", "", "") + " }}": "inside each other",
		strings.Repeat("x", 300<<10):                        "longer than 256 KiB",
	} {
		start := time.Now()
		reliability.Bounded(t, len(text), func() {
			_, _, err := render(text, map[string]any{"x": strings.Repeat("a", 50_000)})
			require.ErrorContains(t, err, want, "%.100s", text)
		})
		require.Less(t, time.Since(start), 20*time.Second+reliability.Slack, "%.100s", text)
	}
}

// TestRefused: what is not supported is an error that names it, with its line.
func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"\n{{ x | fancy }}":                   `line 2: the filter "fancy" is not supported`,
		"{% include 'x' %}":                   `line 1: the tag "include" is not supported`,
		"{{ x is fancy }}":                    `the test "fancy" is not supported`,
		"{% if x %}":                          "the template ends without endif",
		"{% for x in y %}":                    "the template ends without endfor",
		"{% for x in y %}{% else %}":          `the tag "else" is not supported`,
		"{{ x":                                "the tag has no end",
		"{# x":                                "a comment has no end",
		"{{ 'x }}":                            "not supported, or the tag has no end",
		"{{ 1 2 }}":                           `"2" where "}}" is wanted`,
		"{% break %}":                         `the tag "break" is not supported`,
		"{% macro f() %}{% endmacro %}":       `the tag "macro" is not supported`,
		"{{ x.y }}":                           "x is undefined, and has no y",
		"{{ x.y.z }}":                         "x is undefined",
		"{{ x() }}":                           `the function "x" is not supported`,
		"{{ 'a' + 1 }}":                       "a string + a number is not supported",
		"{{ 'a' < 1 }}":                       "the order of a string and a number is not supported",
		"{{ 1 % 0 }}":                         "division by zero",
		"{{ 1 in 'a' }}":                      "a number is looked for in a string",
		"{{ raise_exception('no') }}":         "the template refuses the conversation: no",
		"{{ strftime_now('%Q') }}":            "%Q of strftime_now is not supported",
		"{{ x | tojson }}":                    "x, which is undefined, has no JSON",
		"{{ range }}":                         "the text of a function or namespace is not supported",
		"{{ 'a'.strip('b', 'c') }}":           "strip has not so many arguments",
		"{{ 9007199254740992 * 2 }}":          "is too large",
		"{{ 99999999999999999999 }}":          "the number 99999999999999999999 is too large",
		"{% set a.b = 1 %}":                   "a is no namespace",
		"{% for a, b in [[1]] %}{% endfor %}": "1 values for the names a, b",
		"{% set x %}y{% endset %}":            `"%}" where "=" is wanted`,
		"{{ [1][0:2:0] }}":                    "a slice with a step is not supported",
		"{{ loop.depth }}":                    "loop is undefined",
		"{{ ['a'] | map('upper') }}":          `map is supported with attribute="name" alone`,
		"{{ 1 < 2 < 3 }}":                     "comparisons one after the other are not supported",
		"{{ 'a' * 3 }}":                       "a string * a number is not supported",
		"{{ [1] }}":                           "the text of a list is not supported",
		"{{ '\\x41' }}":                       "is not supported",
		"{{ 1.5 }}":                           `"5" where a name is wanted`,
		"{%+ if 1 %}{% endif %}":              `"+" where a name is wanted`,
		"{{ 'a'.title() }}":                   `the method "title" of a string is not supported`,
	} {
		_, _, err := render(text, nil)
		require.ErrorContains(t, err, want, text)
	}
}

func TestJSON(t *testing.T) {
	for text, want := range map[string]string{"{": "unexpected end", "12345678901234567890": "an integer is too large",
		strings.Repeat("[", 300) + strings.Repeat("]", 300): "too deep", "": "unexpected end", "1e999": "out of range"} {
		_, err := jinja.JSON([]byte(text))
		require.ErrorContains(t, err, want)
	}
	d := value(t, []byte(`{"b": 1, "a": [null, true, "x", 2.5], "b": 3}`))
	text, _, err := render("{{ d | tojson }}", map[string]any{"d": d})
	require.NoError(t, err)
	require.Equal(t, `{"b": 3, "a": [null, true, "x", 2.5]}`, text)
}

// FuzzRender: no template makes the program panic, or takes more than its bound.
func FuzzRender(f *testing.F) {
	paths, err := filepath.Glob("testdata/templates/*")
	require.NoError(f, err)
	for _, p := range paths {
		text, err := os.ReadFile(p)
		require.NoError(f, err)
		f.Add(string(text))
	}
	messages := value(f, []byte(`[{"role": "user", "content": "Hi é"}, {"role": "assistant", "content": "<think>a</think>b",
		"tool_calls": [{"name": "f"}]}]`))
	f.Fuzz(func(t *testing.T, text string) {
		_, spans, err := render(text, map[string]any{"messages": messages, "bos_token": "<s>", "add_generation_prompt": true})
		if err != nil {
			require.Empty(t, spans)
		}
	})
}
