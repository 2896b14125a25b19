// Package decode writes text with a model that predicts the next token. It draws tokens with temperature, top-k and top-p, and keeps the
// keys and values of the tokens that the model has seen.
//
//	m := decode.Model{Vocab: 256, Positions: 128, Layers: 4, Next: next}
//	for id := range m.Generate(dev, prompt, decode.Sampling{Tokens: 100, Temperature: 0.8, Seed: 1}) { ... }
//
// gpt.Model.Generate of package models/gpt uses it.
//
//	cache.go   Cache: keys and values of all layers
//	decode.go  Model and Generate
//	sample.go  Sampling: how the next token is drawn
package decode
