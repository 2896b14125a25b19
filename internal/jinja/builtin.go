package jinja

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// builtin is a filter, test, method or function of so many parameters. a has as many values, and missing for those that are not given.
type builtin struct {
	name   string
	params string // their names; those with ? need not be given; "*": any names
	do     func(e *env, v any, a []any) any
}

type absent struct{}

// missing is an argument that is not given.
var missing any = absent{}

// call binds arguments to parameters.
func (b builtin) call(e *env, v any, a args) any {
	e.cost(1)
	if b.params == "*" {
		if len(a.pos) > 0 {
			fail("%s takes names alone", b.name)
		}
		return b.do(e, a.named, nil)
	}
	params := strings.Fields(b.params)
	values, used := make([]any, len(params)), len(a.pos)
	for i, p := range params {
		n, optional := strings.CutSuffix(p, "?")
		given, named := a.named[n]
		switch {
		case i < len(a.pos):
			given = a.pos[i]
		case named:
			used++
		case !optional:
			fail("%s needs %s", b.name, n)
		default:
			given = missing
		}
		values[i] = given
	}
	if len(a.pos) > len(params) || used < len(a.pos)+len(a.named) {
		fail("%s has not so many arguments, or not with these names: it has %q", b.name, b.params)
	}
	return b.do(e, v, values)
}

var filters, tests, functions map[string]builtin

func init() { // they refer to each other
	of := func(params string, do func(e *env, v any, a []any) any) builtin { return builtin{"", params, do} }
	test := func(is func(v any) bool) builtin { return of("", func(_ *env, v any, _ []any) any { return is(v) }) }
	method := func(name string) func(e *env, v any, a []any) any {
		return func(e *env, v any, a []any) any { return e.method(e.str(v), name, args{pos: a}) }
	}
	fallback := of("default_value boolean?", func(_ *env, v any, a []any) any {
		if isA[undefined](v) || a[1] == true && !truth(v) {
			return a[0]
		}
		return v
	})
	filters = map[string]builtin{
		"length": of("", length), "count": of("", length), "tojson": of("indent?", toJSON), "default": fallback, "d": fallback,
		"trim": of("", method("strip")), "upper": of("", method("upper")), "lower": of("", method("lower")),
		"replace":    of("old new", method("replace")),
		"string":     of("", func(e *env, v any, _ []any) any { return e.str(v) }),
		"list":       of("", func(e *env, v any, _ []any) any { return e.items(v) }),
		"first":      of("", func(e *env, v any, _ []any) any { return e.index(e.items(v), 0) }),
		"last":       of("", func(e *env, v any, _ []any) any { return e.index(e.items(v), -1) }),
		"items":      of("", func(e *env, v any, _ []any) any { return e.method(v, "items", args{}) }),
		"join":       of("d?", joined),
		"map":        of("filter? attribute?", attributes),
		"selectattr": of("name test? value?", func(e *env, v any, a []any) any { return e.chosen(v, a, true) }),
		"rejectattr": of("name test? value?", func(e *env, v any, a []any) any { return e.chosen(v, a, false) }),
	}
	equal := of("other", func(e *env, v any, a []any) any { return e.equal(v, a[0]) })
	iterable := test(func(v any) bool { return isA[undefined](v) || isA[string](v) || isA[[]any](v) || isA[*Dict](v) })
	tests = map[string]builtin{
		"undefined": test(isA[undefined]), "defined": test(func(v any) bool { return !isA[undefined](v) }),
		"none": test(func(v any) bool { return v == nil }), "string": test(isA[string]), "mapping": test(isA[*Dict]),
		"boolean": test(isA[bool]), "true": test(func(v any) bool { return v == true }), "false": test(func(v any) bool { return v == false }),
		"iterable": iterable, "sequence": iterable, "equalto": equal, "eq": equal,
		"ne": of("other", func(e *env, v any, a []any) any { return !e.equal(v, a[0]) }),
		"in": of("seq", func(e *env, v any, a []any) any { return e.contains(a[0], v) }),
	}
	functions = map[string]builtin{
		"range": of("start stop?", numbers), "strftime_now": of("format", strftime),
		"namespace": of("*", func(_ *env, v any, _ []any) any { return v }),
		"raise_exception": of("message", func(e *env, _ any, a []any) any {
			fail("the template refuses the conversation: %.1000s", e.str(a[0]))
			return nil
		}),
	}
}

func isA[T any](v any) bool { _, ok := v.(T); return ok }

func length(e *env, v any, _ []any) any {
	if s, ok := v.(string); ok {
		e.cost(1 + len(s)/8)
		return utf8.RuneCountInString(s)
	}
	return len(e.items(v))
}

func toJSON(e *env, v any, a []any) any {
	w := &writer{env: e}
	w.value(v, 0)
	n, ok := a[0].(int)
	switch {
	case a[0] == missing || a[0] == nil:
		return w.String()
	case !ok || n < 1 || n > 16:
		fail("an indent of tojson that is not from 1 to 16 is not supported")
	}
	e.cost(w.Len() * n * (1 + w.deepest))
	var out bytes.Buffer
	if err := json.Indent(&out, []byte(w.String()), "", strings.Repeat(" ", n)); err != nil {
		fail("tojson: %v", err)
	}
	return e.join(out.String())
}

func joined(e *env, v any, a []any) any {
	var parts []string
	for i, x := range e.items(v) {
		e.cost(32)
		if i > 0 && a[0] != missing {
			parts = append(parts, e.join(e.str(a[0])))
		}
		parts = append(parts, e.str(x))
	}
	return e.join(parts...)
}

// attributes is map(attribute="x").
func attributes(e *env, v any, a []any) any {
	if a[0] != missing || a[1] == missing {
		fail("map is supported with attribute=\"name\" alone")
	}
	list := []any{}
	for _, x := range e.items(v) {
		e.cost(32)
		list = append(list, e.index(x, a[1]))
	}
	return list
}

// chosen are the items of v whose attribute passes a test, or is true.
func (e *env) chosen(v any, a []any, want bool) any {
	is := func(x any) bool { return truth(x) }
	if a[1] != missing {
		f, ok := tests[e.str(a[1])]
		if !ok {
			fail("the test %.100q is not supported", e.str(a[1]))
		}
		more := args{}
		if a[2] != missing {
			more.pos = a[2:]
		}
		is = func(x any) bool { return truth(f.call(e, x, more)) }
	}
	return e.keep(e.items(v), func(x any) bool { return is(e.index(x, a[0])) == want })
}

func numbers(e *env, _ any, a []any) any {
	from, to := any(0), a[0]
	if a[1] != missing {
		from, to = a[0], a[1]
	}
	i, isFrom := from.(int)
	n, isTo := to.(int)
	if !isFrom || !isTo {
		fail("range needs one or two integers")
	}
	list := []any{}
	for ; i < n; i++ {
		e.cost(64)
		list = append(list, i)
	}
	return list
}

func strftime(e *env, _ any, a []any) any {
	parts := map[byte]string{'d': "02", 'm': "01", 'Y': "2006", 'b': "Jan", 'B': "January", 'H': "15", 'M': "04", 'S': "05", 'A': "Monday"}
	text, rest, more := strings.Cut(e.str(a[0]), "%")
	for more {
		var after string
		if after, rest, more = strings.Cut(rest, "%"); after == "" || parts[after[0]] == "" {
			fail("%%%.1s of strftime_now is not supported", after)
		}
		e.cost(len(text) + 32)
		text += e.now.Format(parts[after[0]]) + after[1:]
	}
	return text
}

// method calls a method of a string or a dict.
func (e *env) method(x any, name string, a args) any {
	var m builtin
	switch x := x.(type) {
	case string:
		e.cost(2 * len(x))
		m = texts[name]
	case *Dict:
		m = dicts[name]
	}
	if m.do == nil {
		fail("the method %.100q of %s is not supported", name, kindOf(x))
	}
	m.name = name
	return m.call(e, x, a)
}

// texts are the methods of strings.
var texts = map[string]builtin{
	"strip":  {"", "chars?", func(_ *env, v any, a []any) any { return stripped(v, a, strings.TrimFunc) }},
	"lstrip": {"", "chars?", func(_ *env, v any, a []any) any { return stripped(v, a, strings.TrimLeftFunc) }},
	"rstrip": {"", "chars?", func(_ *env, v any, a []any) any { return stripped(v, a, strings.TrimRightFunc) }},
	"upper":  {"", "", func(e *env, v any, _ []any) any { return e.join(strings.ToUpper(v.(string))) }},
	"lower":  {"", "", func(e *env, v any, _ []any) any { return e.join(strings.ToLower(v.(string))) }},

	"startswith": {"", "prefix", func(_ *env, v any, a []any) any { return strings.HasPrefix(v.(string), textOf(a[0])) }},
	"endswith":   {"", "suffix", func(_ *env, v any, a []any) any { return strings.HasSuffix(v.(string), textOf(a[0])) }},
	"replace": {"", "old new", func(e *env, v any, a []any) any {
		s, from, to := v.(string), textOf(a[0]), textOf(a[1])
		e.cost(len(s) + (strings.Count(s, from)+1)*len(to))
		return strings.ReplaceAll(s, from, to)
	}},
	"split": {"", "sep", func(e *env, v any, a []any) any {
		s, sep, list := v.(string), textOf(a[0]), []any{}
		if sep == "" {
			fail("split at an empty string")
		}
		e.cost(32 * (strings.Count(s, sep) + 1))
		for part := range strings.SplitSeq(s, sep) {
			list = append(list, part)
		}
		return list
	}},
}

// dicts are the methods of dicts.
var dicts = map[string]builtin{
	"items": {"", "", func(e *env, v any, _ []any) any {
		d, list := v.(*Dict), []any{}
		for _, n := range d.names {
			e.cost(64)
			list = append(list, []any{n, d.values[n]})
		}
		return list
	}},
	"keys": {"", "", func(e *env, v any, _ []any) any { return e.items(v) }},
	"get": {"", "key default?", func(e *env, v any, a []any) any {
		if x := e.index(v, a[0]); !isA[undefined](x) {
			return x
		} else if a[1] == missing {
			return nil
		}
		return a[1]
	}},
}

func textOf(v any) string {
	s, ok := v.(string)
	if !ok {
		fail("%s where a string is wanted", kindOf(v))
	}
	return s
}

func stripped(v any, a []any, trim func(string, func(rune) bool) string) any {
	if a[0] == missing {
		return trim(v.(string), isSpace)
	}
	chars := textOf(a[0])
	if len(chars) > 64 {
		fail("strip of more than 64 letters")
	}
	return trim(v.(string), func(r rune) bool { return strings.ContainsRune(chars, r) })
}
