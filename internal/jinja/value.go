package jinja

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Dict is a dict of Python with names: they keep their order.
type Dict struct {
	names  []string
	values map[string]any
}

// NewDict returns an empty Dict.
func NewDict() *Dict { return &Dict{values: map[string]any{}} }

// Get returns the value of a name, and whether there is one.
func (d *Dict) Get(name string) (any, bool) {
	v, ok := d.values[name]
	return v, ok
}

// Set sets the value of a name, which comes last if it is new.
func (d *Dict) Set(name string, v any) {
	if _, ok := d.values[name]; !ok {
		d.names = append(d.names, name)
	}
	d.values[name] = v
}

func truth(v any) bool {
	switch v := v.(type) {
	case undefined:
		return false
	case []any:
		return len(v) > 0
	case *Dict:
		return len(v.names) > 0
	}
	return !slices.Contains([]any{nil, false, 0, 0.0, ""}, v)
}

// plain returns a bool and a whole float as an int: Python's 1, 1.0 and True are equal.
func plain(v any) any {
	switch x := v.(type) {
	case bool:
		if x {
			return 1
		}
		return 0
	case float64:
		if x == math.Trunc(x) && math.Abs(x) < maxInt {
			return int(x)
		}
	}
	return v
}

// equal compares as Python's ==.
func (e *env) equal(a, b any) bool {
	text := func(v any) string {
		w := &writer{env: e, canonical: true}
		w.value(v, 0)
		return w.String()
	}
	return isA[undefined](a) && isA[undefined](b) || !isA[undefined](a) && !isA[undefined](b) && text(a) == text(b)
}

// str is Python's str.
func (e *env) str(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case undefined:
		return ""
	case bool:
		return map[bool]string{true: "True", false: "False"}[v]
	case int:
		return strconv.Itoa(v)
	case float64:
		return float(v)
	case string:
		return v
	}
	fail("the text of %s is not supported: tojson is", kindOf(v))
	return ""
}

// float is Python's repr of a finite float.
func float(x float64) string {
	format := byte('f')
	if m := math.Abs(x); m != 0 && (m < 1e-4 || m >= 1e16) {
		format = 'e'
	}
	s := strconv.FormatFloat(x, format, -1, 64)
	if format == 'f' && !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// writer writes values as json.dumps with ensure_ascii=False does.
type writer struct {
	*env
	strings.Builder
	canonical bool // equal values have the same text
	deepest   int
}

func (w *writer) put(s string) {
	w.cost(4 * len(s))
	w.WriteString(s)
}

func (w *writer) value(v any, depth int) {
	if w.cost(1); depth > maxDepth {
		fail("more than %d values inside each other", maxDepth)
	}
	if w.deepest = max(w.deepest, depth); w.canonical {
		v = plain(v)
	}
	switch v := v.(type) {
	case nil:
		w.put("null")
	case bool:
		w.put(strconv.FormatBool(v))
	case int, float64:
		w.put(w.str(v))
	case string:
		w.put(quote(v))
	case []any:
		w.list("[]", len(v), func(i int) { w.value(v[i], depth+1) })
	case *Dict:
		names := v.names
		if w.canonical {
			names = slices.Sorted(slices.Values(names))
		}
		w.list("{}", len(names), func(i int) {
			w.put(quote(names[i]) + ": ")
			w.value(v.values[names[i]], depth+1)
		})
	default:
		fail("%s has no JSON", kindOf(v))
	}
}

func (w *writer) list(marks string, n int, item func(i int)) {
	w.put(marks[:1])
	for i := range n {
		if i > 0 {
			w.put(", ")
		}
		item(i)
	}
	w.put(marks[1:])
}

var separators = strings.NewReplacer(`\\`, `\\`, `\u2028`, "\u2028", `\u2029`, "\u2029")

// quote is a string in JSON as Python writes it.
func quote(s string) string {
	out := bytes.Buffer{}
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always has JSON
	return separators.Replace(strings.TrimSuffix(out.String(), "\n"))
}

// JSON reads a JSON value. Objects become Dicts.
func JSON(text []byte) (any, error) {
	if !json.Valid(text) {
		var v any
		return nil, json.Unmarshal(text, &v) // says what is wrong
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return jsonValue(d, 0)
}

func jsonValue(d *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, errors.New("values are too deep inside each other")
	}
	t, err := d.Token()
	switch t := t.(type) {
	case json.Number:
		if i, err := strconv.Atoi(string(t)); err == nil {
			return i, nil
		}
		x, err := t.Float64()
		if err == nil && !strings.ContainsAny(string(t), ".eE") {
			err = errors.New("an integer is too large: " + string(t[:min(len(t), 40)]))
		}
		return x, err
	case json.Delim:
		list, dict := []any{}, NewDict()
		for d.More() {
			var name any
			if t == '{' {
				name, _ = d.Token()
			}
			v, err := jsonValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			if list = append(list, v); t == '{' {
				dict.Set(name.(string), v)
			}
		}
		if _, err = d.Token(); t == '{' {
			return dict, err
		}
		return list, err
	}
	return t, err
}
