package jinja

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
)

const maxInt = 1 << 53 // float64 has all integers up to it

// env is the state of a Render.
type env struct {
	left   int // of MaxCost
	now    time.Time
	scopes []map[string]any // variables that are given, those of the template, and those of each loop around
	out    strings.Builder
	spans  [][2]int
}

type (
	undefined string // the name of what is not there
	namespace map[string]any
	args      struct {
		pos   []any
		named namespace
	}
)

// cost counts steps, or bytes, before they are made.
func (e *env) cost(n int) {
	if e.left -= n; n < 0 || e.left < 0 {
		fail("the template takes more than %d steps and bytes", MaxCost)
	}
}

// write adds to the result, which is copied when it grows.
func (e *env) write(s string) {
	e.cost(4 * len(s))
	e.out.WriteString(s)
}

func (e *env) do(body []stmt) {
	for _, s := range body {
		e.cost(1)
		s(e)
	}
}

// set sets a variable of the loop around, or of the template.
func (e *env) set(name string, v any) {
	e.cost(64)
	e.scopes[len(e.scopes)-1][name] = v
}

func (e *env) lookup(name string) any {
	e.cost(1)
	for _, s := range slices.Backward(e.scopes) {
		if v, ok := s[name]; ok {
			return v
		}
	}
	if f, ok := functions[name]; ok {
		return f
	}
	return undefined(name)
}

// loop does a body for each item, with variables of its own.
func (e *env) loop(names []string, over, only expr, body []stmt) {
	all, outer := e.items(over(e)), e.scopes
	defer func() { e.scopes = outer }()
	begin := func(v any) {
		e.cost(1024)
		e.scopes = append(slices.Clip(outer), map[string]any{})
		values := []any{v}
		if len(names) > 1 {
			values = e.items(v)
		}
		if len(values) != len(names) {
			fail("%d values for the names %s", len(values), strings.Join(names, ", "))
		}
		for i, n := range names {
			e.set(n, values[i])
		}
	}
	items := e.keep(all, func(v any) bool { begin(v); return truth(only(e)) })
	for i, v := range items {
		begin(v)
		e.set("loop", loop(items, i))
		e.do(body)
	}
}

// loop returns the variable of this name.
func loop(items []any, i int) namespace {
	n := len(items)
	l := namespace{"index": i + 1, "index0": i, "revindex": n - i, "revindex0": n - i - 1, "first": i == 0, "last": i == n-1, "length": n}
	if i > 0 {
		l["previtem"] = items[i-1]
	}
	if i < n-1 {
		l["nextitem"] = items[i+1]
	}
	return l
}

func (e *env) keep(items []any, is func(any) bool) (kept []any) {
	for _, v := range items {
		if e.cost(32); is(v) {
			kept = append(kept, v)
		}
	}
	return kept
}

// items returns what a for loop goes through.
func (e *env) items(v any) (list []any) {
	switch v := v.(type) {
	case undefined:
	case []any:
		return v
	case *Dict:
		e.cost(32 * len(v.names))
		for _, n := range v.names {
			list = append(list, n)
		}
	case string:
		e.cost(32 * len(v))
		for _, r := range v {
			list = append(list, string(r))
		}
	default:
		fail("%s is not a list", kindOf(v))
	}
	return list
}

func (e *env) binary(op string, x, y expr) any {
	e.cost(1)
	a := x(e)
	if op == "and" || op == "or" {
		if truth(a) == (op == "or") {
			return a
		}
		return y(e)
	}
	b := y(e)
	switch op {
	case "~":
		return e.join(e.str(a), e.str(b))
	case "==", "!=":
		return e.equal(a, b) == (op == "==")
	case "in", "not in":
		return e.contains(b, a) == (op == "in")
	case "<", "<=", ">", ">=":
		order := e.order(a, b)
		return order < 0 && op[0] == '<' || order > 0 && op[0] == '>' || order == 0 && len(op) == 2
	}
	return e.arithmetic(op, a, b)
}

// order returns a number below 0, 0 or one above 0.
func (e *env) order(a, b any) int {
	s, isS := a.(string)
	t, isT := b.(string)
	if isS && isT {
		e.cost(min(len(s), len(t)))
		return strings.Compare(s, t)
	}
	x, isX := a.(int)
	y, isY := b.(int)
	if !isX || !isY {
		fail("the order of %s and %s is not supported", kindOf(a), kindOf(b))
	}
	return cmp.Compare(x, y)
}

// contains is Python's in.
func (e *env) contains(in, v any) bool {
	s, text := v.(string)
	switch in := in.(type) {
	case string:
		if !text {
			fail("%s is looked for in a string", kindOf(v))
		}
		e.cost(len(in))
		return strings.Contains(in, s)
	case *Dict:
		_, there := in.values[s]
		return text && there
	}
	return slices.ContainsFunc(e.items(in), func(x any) bool { return e.equal(x, v) })
}

// arithmetic is of integers; + also joins strings, and lists.
func (e *env) arithmetic(op string, a, b any) any {
	if s, ok := a.(string); ok && op == "+" {
		if t, ok := b.(string); ok {
			return e.join(s, t)
		}
	}
	if s, ok := a.([]any); ok && op == "+" {
		if t, ok := b.([]any); ok {
			e.cost(16 * (len(s) + len(t)))
			return slices.Concat(s, t)
		}
	}
	m, isM := a.(int)
	n, isN := b.(int)
	x, y := float64(m), float64(n)
	switch {
	case !isM || !isN || op == "/":
		fail("%s %s %s is not supported", kindOf(a), op, kindOf(b))
	case n == 0 && (op == "//" || op == "%"):
		fail("division by zero")
	}
	z := map[string]float64{"+": x + y, "-": x - y, "*": x * y, "//": math.Floor(x / y), "%": x - y*math.Floor(x/y)}[op]
	if max(math.Abs(x), math.Abs(y), math.Abs(z)) > maxInt {
		fail("the integer %v is too large", z)
	}
	return int(z)
}

func (e *env) join(parts ...string) string {
	for _, s := range parts {
		e.cost(len(s))
	}
	return strings.Join(parts, "")
}

// index is x[i] and x.name.
func (e *env) index(x, i any) any {
	e.cost(1)
	name, named := i.(string)
	at, isInt := i.(int)
	var v any
	there := false
	switch x := x.(type) {
	case *Dict:
		v, there = x.values[name]
	case namespace:
		v, there = x[name]
	case []any, string:
		list := e.items(x)
		if at < 0 {
			at += len(list)
		}
		if there = isInt && at >= 0 && at < len(list); there {
			v = list[at]
		}
	case undefined:
		fail("%s is undefined, and has no %v", string(x), i)
	default:
		named = true
	}
	switch {
	case there:
		return v
	case named:
		return undefined(name)
	}
	return undefined("an element")
}

// slice is x[from:to], and x[::-1] with a step.
func (e *env) slice(x, from, to, step any) any {
	list := e.items(x)
	place := func(v any, none int) int {
		i, ok := v.(int)
		switch {
		case v == nil:
			return none
		case !ok:
			fail("%s is no place in a slice", kindOf(v))
		case i < 0:
			i += len(list)
		}
		return min(max(i, 0), len(list))
	}
	e.cost(16 * len(list))
	first := place(from, 0)
	list = slices.Clone(list[first:max(first, place(to, len(list)))])
	switch {
	case step == -1 && from == nil && to == nil:
		slices.Reverse(list)
	case step != nil:
		fail("a slice with a step is not supported, other than [::-1]")
	}
	if _, text := x.(string); !text {
		return list
	}
	parts := make([]string, len(list))
	for i, c := range list {
		parts[i] = c.(string)
	}
	return e.join(parts...)
}
