// Package jinja runs the chat templates of Hugging Face's models, and computes what transformers does: a subset of Jinja with trim_blocks,
// lstrip_blocks and generation blocks, which has what the templates of Qwen, Llama, Mistral, Phi, Gemma and SmolLM use. What is not there,
// such as macros, is an error that names it.
//
//	t, err := jinja.Parse("{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}\n{% endfor %}")
//	text, spans, err := t.Render(map[string]any{"messages": messages}, time.Now())
//
// Templates come from strangers. One cannot read anything but its variables. Its steps and the bytes that it makes are counted, and there
// are at most MaxCost of both together; expressions and values have a largest depth.
//
//	lex.go      text into tokens, and the spaces around tags
//	parse.go    statements and expressions, which become functions
//	eval.go     what these functions do: variables, loops, operators, x.name, x[i]
//	builtin.go  filters, tests, methods and functions
//	value.go    what Python's values do: text, truth, equality, JSON
package jinja
