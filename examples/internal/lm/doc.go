// Package lm has what examples/gpt and examples/moe have in common.
//
// options.go has the flags, layout.go those that divide a model over ranks, text.go the text and its tokens, summary.go the results.
package lm
