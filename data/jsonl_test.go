package data

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

func TestJSONLForms(t *testing.T) {
	rows := [][]float64{{1, 2.5, 0}, {3, -4, 1}}
	for name, c := range map[string]struct {
		text string
		cfg  JSONLConfig
	}{
		"lines":         {"{\"a\":1,\"b\":2.5,\"y\":0}\n{\"a\":3,\"b\":-4,\"y\":1}\n", JSONLConfig{}},
		"another order": {"\xef\xbb\xbf{\"a\":1,\"b\":25e-1,\"y\":false}\r\n\n{\"y\":true,\"b\":-4.0,\"a\":3}", JSONLConfig{}},
		"columns chosen": {"{\"y\":0,\"b\":2.5,\"a\":1,\"c\":[]}\n{\"y\":1,\"b\":-4,\"a\":3,\"d\":{}}\n",
			JSONLConfig{Columns: []string{"a", "b"}, Target: "y"}},
		"labels":           {"{\"a\":1,\"b\":2.5,\"y\":\"c\\u0061t\"}\n{\"a\":3,\"b\":-4,\"y\":\"dog\"}\n", JSONLConfig{Labels: true}},
		"carriage returns": {"{\"a\":1,\"b\":2.5,\"y\":\"\\\"\"}\r{\"a\":3,\"b\":-4,\"y\":\"e.E\"}\r", JSONLConfig{Labels: true}},
		"labels of truth":  {"{\"a\":1,\"b\":2.5,\"y\":false}\n{\"a\":3,\"b\":-4,\"y\":true}\n", JSONLConfig{Labels: true}},
		"classes":          {"{\"a\":1,\"b\":2.5,\"y\":9}\n{\"a\":3,\"b\":-4,\"y\":7}\n", JSONLConfig{Classes: []string{"9", "7"}}},
		"spaces":           {" { \"\\u0061\" :\t1 , \"b\" : 2.5, \"y\" : 0 } \n{\"a\":3,\"b\":-4,\"y\":1}\n\n", JSONLConfig{}},
		"others": {"{\"a\":1,\"b\":2.5,\"y\":0,\"c\":[1,{\"]\":\"\\\"}\"}]}\n{\"c\":\"}\",\"a\":3,\"b\":-4,\"y\":1}",
			JSONLConfig{Columns: []string{"a", "b"}, Target: "y"}},
	} {
		ds, err := parseJSONL(strings.NewReader(c.text), int64(len(c.text)), c.cfg)
		require.NoError(t, err, name)
		require.Equal(t, []string{"a", "b"}, ds.Columns, name)
		require.Equal(t, "y", ds.Target, name)
		require.Equal(t, rows, rowsOf(t, ds, 5, 1), name)
	}
}

func TestJSONLErrors(t *testing.T) {
	const want = `line 1: want an object, such as {"a": 1, "y": 2}, as of pandas' df.to_json(file, orient="records", lines=True): `
	for _, c := range []struct {
		text, want string
		cfg        JSONLConfig
	}{
		{"", "no rows", JSONLConfig{}},
		{"[{\"a\":1,\"y\":2}]", want + "it is another value", JSONLConfig{}},
		{`{"a":1}`, "line 1: 1 columns: want one for x and one for the target", JSONLConfig{}},
		{`{}`, "line 1: 0 columns: want one for x and one for the target", JSONLConfig{}},
		{"{\"a\":1,\"y\":2}\n{\"a\":1}", `line 2, "y": no value` + fillIn, JSONLConfig{}},
		{"{\"a\":1,\"y\":2}\n{\"a\":null,\"y\":2}", `line 2, "a": no value` + fillIn, JSONLConfig{}},
		{"{\"a\":1,\"y\":2}\n{\"a\":1,\"y\":2,\"z\":3}", `line 2, "z": the first object has no such name: with Columns, others are ignored`,
			JSONLConfig{}},
		{"{\"a\":1,\"y\":2,\"a\":3}", `line 1, "a": given twice`, JSONLConfig{}},
		{"{\"a\":[1],\"y\":2}", `line 1, "a": a list or an object: want one value; Columns and Target can name others`, JSONLConfig{}},
		{"{\"a\":\"1\",\"y\":2}", `line 1, "a": "1" is text, and is not a number` + leaveOut, JSONLConfig{}},
		{"{\"a\":NaN,\"y\":2}", want + "invalid character 'N' looking for beginning of value", JSONLConfig{}},
		{"{\"a\":1e39,\"y\":2}", `line 1, "a": "1e39" is out of the range of float32` + divideIt, JSONLConfig{}},
		{"{\"a\":16777217,\"y\":2}", `line 1, "a": 16777217 does not fit float32, which makes it 16777216: divide the column, subtract ` +
			`from it, or make it floats if that is near enough`, JSONLConfig{}},
		{"{\"a\":1,\"y\":\"cat\"}", `line 1, "y": "cat" is text, and is not a number` + forLabels, JSONLConfig{}},
		{"{\"a\":1,\"y\":\"k\xe4t\"}", "line 1 " + latin1, JSONLConfig{Labels: true}},
		{"{\"a\":1,\"y\":2}\r{\"a\":1,\"y\":2}\r\x00\x00", "line 3 " + zero, JSONLConfig{}},
		{"{\x00}\x00", "line 1 " + zero, JSONLConfig{}},
		{"{\"a\":1,\"y\":1}\n{\"a\":1,\"y\":-1.0}", `line 2, "y": -1.0 is not a whole number: labels are text, whole numbers or booleans`,
			JSONLConfig{Labels: true}},
		{"{\"a\":1,\"y\":null}", `line 1, "y": no label` + fillIn, JSONLConfig{Labels: true}},
		{"{\"a\":1,\"y\":2}", `line 1: no column "b": there are "a", "y"; NoTarget is for rows without one`, JSONLConfig{Target: "b"}},
		{"{\"a\":1,\"y\":2", want + "unexpected end of JSON input", JSONLConfig{}},
		{"{\"a\":1,\"y\":2}", `class "a" is given twice`, JSONLConfig{Classes: []string{"a", "a"}}},
		{"\xff\xfe{\x00}\x00", utf16, JSONLConfig{}},
	} {
		file := writeFile(t, t.TempDir(), "t.jsonl", []byte(c.text))
		_, err := JSONL(file, c.cfg)
		require.EqualError(t, err, "data: "+file+": "+c.want, "%q", c.text)
	}
	_, err := JSONL(t.TempDir(), JSONLConfig{})
	require.ErrorContains(t, err, "is not a regular file")
	page := writeFile(t, t.TempDir(), "t.jsonl", []byte("<!doctype html>"))
	_, err = JSONL(page, JSONLConfig{})
	require.ErrorContains(t, err, "this is a web page")
}

// Objects take no more memory than their text justifies. The long form has deep ones in more text.
func TestJSONLBombs(t *testing.T) {
	var names strings.Builder
	for i := range 500_000 {
		fmt.Fprintf(&names, `,"%x":1`, i)
	}
	const deep = "exceeded max depth"
	depth := 20_000
	if reliability.Long(t) {
		depth = 1_000_000
	}
	for want, text := range map[string]string{
		"":                               strings.Repeat("{\"a\":1,\"b\":2}\n", 1_000_000),
		deep:                             strings.Repeat(`{"a":`, depth),
		"names: it would take more than": "{" + names.String()[1:] + "}",
		"want one value":                 `{"a":` + strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000) + `,"b":1}`,
	} {
		if want != deep && want == "" != reliability.Long(t) {
			continue
		}
		reliability.Bounded(t, len(text), func() {
			_, err := parseJSONL(strings.NewReader(text), int64(len(text)), JSONLConfig{})
			if want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, want)
		})
	}
}

func TestLongJSONLBombs(t *testing.T) { reliability.AsLong(t, TestJSONLBombs) }

// The result equals that of encoding/json for each object.
func FuzzJSONL(f *testing.F) {
	for _, text := range []string{
		"{\"a\":1,\"b\":2}\n{\"b\":3,\"a\":true}", "{\"a\":1}\r{\"a\":2}\r", `{"a":1,"b":"x"}`, `{"a":[{}],"b":null}`, "[]", `{"a":1,"a":2}`, "",
	} {
		f.Add(text, false)
		f.Add(text, true)
	}
	f.Fuzz(func(t *testing.T, text string, labels bool) {
		var ds *Table
		var err error
		reliability.Bounded(t, len(text), func() {
			ds, err = parseJSONL(strings.NewReader(text), int64(len(text)), JSONLConfig{Labels: labels})
		})
		if err != nil {
			return
		}
		var lines []string
		ends := strings.NewReplacer("\r\n", "\n", "\r", "\n")
		for line := range strings.Lines(ends.Replace(strings.TrimPrefix(text, "\xef\xbb\xbf"))) {
			if strings.TrimSpace(line) != "" {
				lines = append(lines, line)
			}
		}
		require.Len(t, lines, ds.Len())
		x := tensor.FromSlice(make([]float32, len(ds.Columns)), 1, len(ds.Columns))
		y := tensor.FromSlice(make([]float32, 1), 1, 1)
		if labels {
			y = tensor.FromSlice(make([]int64, 1), 1)
		}
		for i, line := range lines {
			var want map[string]any
			require.NoError(t, json.Unmarshal([]byte(line), &want))
			require.NoError(t, ds.Batch([]int{i}, x, y))
			for j, name := range ds.Columns {
				v, ok := want[name].(float64)
				if b, is := want[name].(bool); is && b {
					v, ok = 1, true
				} else if is {
					ok = true
				}
				require.True(t, ok)
				require.Equal(t, float32(v), tensor.Data[float32](x)[j])
			}
		}
	})
}
