// Package router chooses experts for tokens, for package moe: what a mixture of experts learns beside the experts.
//
//	r := router.New(64, 8, router.Config{Top: 2, Scoring: router.Chosen})
//	got := r.Forward(x) // x [tokens, 64]: got.Experts [tokens, 2], got.Weights [tokens, 2]
//
// A router multiplies a token by a matrix: a logit for each expert. Scoring makes scores of these, the experts with the largest scores are
// chosen, and their scores weigh what they give. Gradients flow through weights, not through the choice. Inside a Checkpoint the choice is kept,
// not made again.
package router
