// Package router chooses experts for tokens, for package moe. A router is the part of a mixture of experts that learns which tokens go
// to which experts.
//
//	r := router.New(64, 8, router.Config{Top: 2, Scoring: router.Chosen})
//	got := r.Forward(x) // x [tokens, 64]: got.Experts [tokens, 2], got.Weights [tokens, 2]
//
// A router multiplies a token by a matrix, which gives a logit for each expert. Scoring turns logits into scores. The experts with the
// largest scores are chosen, and their scores are the weights of their outputs. Gradients flow through the weights, not through the choice.
// Inside a Checkpoint, the choice of the forward pass is kept and not made again.
package router
