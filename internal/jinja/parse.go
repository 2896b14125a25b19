package jinja

import (
	"errors"
	"slices"
	"strconv"
	"time"
)

const (
	maxSource = 256 << 10
	maxDepth  = 200 // of statements and expressions, and of values

	// MaxCost is the largest sum of steps, and bytes of new values, of a Render.
	MaxCost = 16 << 20
)

// Template is a parsed template. It is safe for use by several goroutines.
type Template struct{ body []stmt }

// Parse returns a template, or an error for what is not Jinja or is not supported.
func Parse(source string) (t *Template, err error) {
	if len(source) > maxSource {
		return nil, errors.New("the template is longer than 256 KiB")
	}
	defer caught(&err)
	p := &parser{tokens: lex(source)}
	return &Template{p.body()}, nil
}

// Render returns the text for variables, and the byte ranges of its generation blocks. Values are nil, bool, int, float64, string, []any
// and *Dict. now is what strftime_now tells.
func (t *Template) Render(vars map[string]any, now time.Time) (text string, spans [][2]int, err error) {
	e := &env{left: MaxCost, now: now, scopes: []map[string]any{vars, {}}}
	defer caught(&err)
	e.do(t.body)
	return e.out.String(), e.spans, nil
}

// caught sets err to the failure that ends Parse or Render.
func caught(err *error) {
	if r := recover(); r != nil {
		f, ok := r.(failure)
		if !ok {
			panic(r)
		}
		*err = f.error
	}
}

type (
	stmt func(e *env)
	expr func(e *env) any
)

type parser struct {
	tokens []token
	at     int
	depth  int
}

func (p *parser) fail(format string, a ...any) {
	fail("line %d: "+format, append([]any{p.tokens[max(0, p.at-1)].line}, a...)...)
}

func (p *parser) next() token {
	p.at++
	return p.tokens[p.at-1]
}

// is reports whether the next token is one of these operators.
func (p *parser) is(texts ...string) bool {
	t := p.tokens[p.at]
	return t.kind == operator && slices.Contains(texts, t.text)
}

func (p *parser) take(text string) bool {
	is := p.is(text)
	if is {
		p.at++
	}
	return is
}

func (p *parser) want(text string) {
	if !p.take(text) {
		p.fail("%q where %q is wanted", p.tokens[p.at].text, text)
	}
}

func (p *parser) name() string {
	if t := p.tokens[p.at]; t.kind != name && !p.is("if", "else", "in") { // names of tags and of tests
		p.fail("%q where a name is wanted", t.text)
	}
	return p.next().text
}

// deeper counts what is inside each other, or after each other as functions that call each other. Call its result at the end.
func (p *parser) deeper() func() {
	before := p.depth
	p.more()
	return func() { p.depth = before }
}

func (p *parser) more() {
	if p.depth++; p.depth > maxDepth {
		p.fail("more than %d blocks, or parts of an expression, inside each other", maxDepth)
	}
}

// body parses statements until one of these tags, whose name is read.
func (p *parser) body(until ...string) (list []stmt) {
	defer p.deeper()()
	for {
		switch t := p.next(); {
		case t.kind == text:
			list = append(list, func(e *env) { e.write(t.text) })
		case t.kind == end:
			if p.at--; len(until) > 0 {
				p.fail("the template ends without %s", until[len(until)-1])
			}
			return list
		case t.text == "{{":
			x := p.cond()
			p.want("}}")
			list = append(list, func(e *env) { e.write(e.str(x(e))) })
		default:
			tag := p.name()
			if slices.Contains(until, tag) {
				return list
			}
			list = append(list, p.statement(tag))
			p.want("%}")
		}
	}
}

// block parses the end of a tag, and a body.
func (p *parser) block(until ...string) []stmt {
	p.want("%}")
	return p.body(until...)
}

func (p *parser) statement(tag string) stmt {
	switch tag {
	case "if":
		return p.ifTag()
	case "for":
		return p.forTag()
	case "set":
		return p.setTag()
	case "generation":
		body := p.block("endgeneration")
		return func(e *env) {
			from := e.out.Len()
			e.do(body)
			e.spans = append(e.spans, [2]int{from, e.out.Len()})
		}
	}
	p.fail("the tag %q is not supported", tag)
	return nil
}

func (p *parser) ifTag() stmt {
	defer p.deeper()()
	test := p.cond()
	then, other := p.block("elif", "else", "endif"), []stmt(nil)
	switch p.tokens[p.at-1].text {
	case "elif":
		other = []stmt{p.ifTag()}
	case "else":
		other = p.block("endif")
	}
	return func(e *env) {
		if truth(test(e)) {
			e.do(then)
		} else {
			e.do(other)
		}
	}
}

func (p *parser) forTag() stmt {
	names := []string{p.name()}
	if p.take(",") {
		names = append(names, p.name())
	}
	p.want("in")
	over, only := p.binary(0), expr(func(*env) any { return true })
	if p.take("if") {
		only = p.cond()
	}
	body := p.block("endfor")
	return func(e *env) { e.loop(names, over, only, body) }
}

func (p *parser) setTag() stmt {
	of, attr := p.name(), ""
	if p.take(".") {
		attr = p.name()
	}
	p.want("=")
	value := p.cond()
	return func(e *env) {
		v := value(e)
		if n, ok := e.lookup(of).(namespace); attr == "" {
			e.set(of, v)
		} else if ok {
			n[attr] = v
		} else {
			fail("%s.%s is set, and %[1]s is no namespace", of, attr)
		}
	}
}

// cond parses x if test else y.
func (p *parser) cond() expr {
	defer p.deeper()()
	x := p.binary(0)
	if !p.take("if") {
		return x
	}
	test, other := p.binary(0), expr(func(*env) any { return undefined("the value without else") })
	if p.take("else") {
		other = p.cond()
	}
	return func(e *env) any {
		if truth(test(e)) {
			return x(e)
		}
		return other(e)
	}
}

// levels are the binary operators, those that bind least first.
var levels = [][]string{{"or"}, {"and"}, {"==", "!=", "<", "<=", ">", ">=", "in", "not in"}, {"+", "-"}, {"~"}, {"*", "/", "//", "%"}}

const comparison = 2 // the level behind not

func (p *parser) binary(level int) expr {
	if level == len(levels) {
		return p.filtered()
	}
	defer func(before int) { p.depth = before }(p.depth)
	if level == comparison && p.take("not") {
		p.more()
		x := p.binary(level)
		return func(e *env) any { return !truth(x(e)) }
	}
	x := p.binary(level + 1)
	for n := 0; p.is(levels[level]...); n++ {
		if p.more(); n > 0 && level == comparison {
			p.fail("comparisons one after the other are not supported")
		}
		op, left, right := p.next().text, x, p.binary(level+1)
		x = func(e *env) any { return e.binary(op, left, right) }
	}
	return x
}

// filtered parses a value with filters and tests.
func (p *parser) filtered() expr {
	x := p.negative()
	for {
		of := x
		switch p.more(); {
		case p.take("|"):
			f, a := p.builtin("filter", filters), p.arguments()
			x = func(e *env) any { return f.call(e, of(e), a(e)) }
		case p.take("is"):
			not := p.take("not")
			f, a := p.builtin("test", tests), p.arguments()
			x = func(e *env) any { return truth(f.call(e, of(e), a(e))) != not }
		default:
			return x
		}
	}
}

func (p *parser) builtin(what string, all map[string]builtin) builtin {
	n := p.name()
	b, ok := all[n]
	if !ok {
		p.fail("the %s %.100q is not supported", what, n)
	}
	b.name = n
	return b
}

func (p *parser) negative() expr {
	if !p.take("-") {
		return p.postfix()
	}
	defer p.deeper()()
	x := p.negative()
	return func(e *env) any { return e.arithmetic("-", 0, x(e)) }
}

// postfix parses a value with .name, [i] and calls behind it.
func (p *parser) postfix() expr {
	x := p.primary()
	for {
		of := x
		switch p.more(); {
		case p.take("."):
			attr := p.name()
			if !p.is("(") {
				x = func(e *env) any { return e.index(of(e), attr) }
				continue
			}
			a := p.arguments()
			x = func(e *env) any { return e.method(of(e), attr, a(e)) }
		case p.take("["):
			x = p.index(of)
		case p.is("("):
			p.fail("a call of what is no function's name is not supported")
		default:
			return x
		}
	}
}

var constants = map[string]any{"true": true, "True": true, "false": false, "False": false, "none": nil, "None": nil}

func (p *parser) primary() expr {
	switch t := p.next(); {
	case t.kind == str:
		return func(*env) any { return t.text }
	case t.kind == number:
		n, err := strconv.Atoi(t.text)
		if err != nil || n > maxInt {
			p.fail("the number %.40s is too large", t.text)
		}
		return func(*env) any { return n }
	case t.kind == name && p.is("("):
		p.at--
		f, a := p.builtin("function", functions), p.arguments()
		return func(e *env) any { return f.call(e, nil, a(e)) }
	case t.kind == name:
		if v, ok := constants[t.text]; ok {
			return func(*env) any { return v }
		}
		return func(e *env) any { return e.lookup(t.text) }
	case t.text == "(":
		x := p.cond()
		p.want(")")
		return x
	case t.text == "[":
		list := p.list("]")
		return func(e *env) any { return list(e).pos }
	default:
		p.fail("%q where a value is wanted", t.text)
		return nil
	}
}

// arguments parses those in brackets, if there are some.
func (p *parser) arguments() func(e *env) args {
	if !p.take("(") {
		return func(*env) args { return args{} }
	}
	return p.list(")")
}

// list parses values, and names with values, up to the closing mark.
func (p *parser) list(closing string) func(e *env) args {
	var list []expr
	var names []string // "" for those without
	for !p.take(closing) {
		n := ""
		if after := p.tokens[p.at+1]; p.tokens[p.at].kind == name && after.kind == operator && after.text == "=" && closing == ")" {
			n = p.next().text
			p.at++
		}
		if names, list = append(names, n), append(list, p.cond()); !p.take(",") {
			p.want(closing)
			break
		}
	}
	return func(e *env) (a args) {
		e.cost(32 * len(list))
		a = args{[]any{}, namespace{}}
		for i, x := range list {
			if n := names[i]; n != "" {
				a.named[n] = x(e)
			} else {
				a.pos = append(a.pos, x(e))
			}
		}
		return a
	}
}

// index parses the rest of x[i], x[from:to] and x[::-1].
func (p *parser) index(of expr) expr {
	var at [3]expr
	colons := 0
	for i := range at {
		at[i] = func(*env) any { return nil }
		if !p.is(":", "]") {
			at[i] = p.cond()
		}
		if !p.take(":") {
			break
		}
		colons++
	}
	p.want("]")
	return func(e *env) any {
		x, from := of(e), at[0](e)
		switch {
		case colons == 0:
			return e.index(x, from)
		case colons == 1:
			return e.slice(x, from, at[1](e), nil)
		}
		return e.slice(x, from, at[1](e), at[2](e))
	}
}

// kindOf names a value in errors.
func kindOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case undefined:
		return string(v) + ", which is undefined,"
	case string:
		return "a string"
	case bool, int, float64:
		return "a number"
	case []any:
		return "a list"
	case *Dict:
		return "a dict"
	}
	return "a function or namespace"
}
