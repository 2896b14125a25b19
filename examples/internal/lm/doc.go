// Package lm trains language models on a text: what examples/gpt and examples/moe have in common.
//
// options.go has the flags, layout.go divides the model over ranks, mixture.go puts experts into it and watches them, trainer.go has a
// training step and the loss on the rest of the text, report.go says what came of it, model.go and text.go open models and texts.
package lm
