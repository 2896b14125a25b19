// Package lm trains language models on a text: the common part of examples/gpt and examples/moe.
//
// options.go has the flags, layout.go divides the model over ranks, mixture.go puts experts into it and records their load, trainer.go has
// a training step and the validation loss, report.go prints the results, model.go and text.go open models and texts.
package lm
