// Package moe is a mixture of experts (Shazeer et al. 2017, "Outrageously Large Neural Networks: The Sparsely-Gated
// Mixture-of-Experts Layer"): a layer with many feed-forward networks, the experts, of which each token meets a few.
//
//	l := moe.NewLayer(moe.Config{
//		Features: 64, Hidden: 128, Experts: 8,
//		Router:  moe.RouterConfig{Top: 2, Scoring: moe.Chosen},
//		Balance: 0.01,
//	})
//	y := l.Forward(x) // [..., 64], as x
//
// # A step
//
// The Router gives each token a score for every expert, chooses Top of them, and weights what they give. A token that chose two
// experts is two slots. Slots are sorted by expert, so that one grouped product has each expert multiply its rows, and are brought back into
// their order, weighted and added up. All of it is planned where the layer computes: nothing waits for the device. An expert without
// tokens takes part with no rows, and so does a rank without tokens; their gradients are zeros.
//
//	x ──Router──▶ experts, weights
//	└──sort by expert──▶ Down(SiLU(Gate·x) * Up·x), each expert its rows ──back──▶ · weights ──sum──▶ y
//
// Every token is computed (dropless).
//
// # Balance
//
// Left alone, a router learns to choose few experts. Config.Balance adds the loss of Switch Transformers (Fedus et al. 2021): the
// number of experts, times the sum over experts of the part of slots that chose it and its mean score. It is 1 where all experts are
// chosen alike. Config.Z adds the z-loss of ST-MoE (Zoph et al. 2022), which keeps logits small. Both are means over the tokens of
// the global batch, and part of Backward without being part of the loss that is printed.
//
// # Precision
//
// Scores, weights and the weighted sum are in float32 where the model has 16 bits.
//
// # What is not there
//
// Experts are not divided over ranks: with ddp or fsdp every rank computes its own tokens with all experts. A balance loss of tokens
// on several ranks is refused, since its counts are those of one rank.
package moe
