// Package moe is a mixture of experts (Shazeer et al. 2017, "Outrageously Large Neural Networks: The Sparsely-Gated
// Mixture-of-Experts Layer"): a layer with many feed-forward networks, the experts, of which each token meets a few.
//
//	l := moe.NewLayer(moe.Config{
//		Features: 64, Hidden: 128, Experts: 8,
//		Router:  router.Config{Top: 2, Scoring: router.Chosen},
//		Balance: 0.01,
//	})
//	y := l.Forward(x) // [..., 64], as x
//
// # A step
//
// The router (package moe/router) gives each token a score for every expert, chooses Top of them, and weights what they give. A token that chose two
// experts is two slots. Slots are sorted by expert, so that one grouped product has each expert multiply its rows, and are brought back into
// their order, weighted and added up. All of it is planned where the layer computes: nothing waits for the device. An expert without
// tokens takes part with no rows, and so does a rank without tokens; their gradients are zeros.
//
//	x ──Router──▶ experts, weights
//	└──sort by expert──▶ Down(SiLU(Gate·x) * Up·x), each expert its rows ──back──▶ · weights ──sum──▶ y
//
// Every token is computed (dropless), unless Config.Capacity limits what an expert takes.
//
// # Experts on several ranks
//
//	mesh, err := r.World.Mesh("dp=2,ep=4")
//	err = moe.Parallelize(moe.Ranks{Tokens: mesh.Group("dp", "ep"), Experts: mesh.Group("ep")}, l)
//	params, err := ddp.Attach(mesh.Group("dp", "ep"), m, ddp.Config{Over: moe.Over(mesh.Group("dp"), l)})
//
// Every rank has rows of its own, and of the stacked experts a part. Slots travel to the ranks of their experts and back; all ranks of ep meet
// here in every forward and backward pass, also those without tokens. The gradient of an expert is that of the tokens of all ranks
// of ep: only ranks with the same experts are summed (Over; with package fsdp, Unit(l.Experts).Over). All other parameters are summed over
// dp and ep. Losses are sums over all ranks, so nothing is divided.
//
//	slots by expert ──counts──▶ depart ──all-to-all──▶ arrive ──by expert──▶ experts ▶ depart ──all-to-all──▶ arrive ▶ · weights ──sum──▶ y
//	                                └── shared: gate, up ┘                              └── shared: down ───┘
//
// Forward waits once for the counts; the shared expert computes while slots travel, and its gradient while theirs do. A layer sends
// 2·rows·features numbers forward and as many backward, for the rows of slots whose expert is on another rank.
//
// With Config.Capacity every expert has as many rows on every rank that it is on, all ranks send the same, and nobody waits for counts. Which slots have
// a place is decided over all ranks, so that it does not depend on their number: this costs room for the whole batch's places on each, and a
// layer sends 2·capacity·tokens·top·features·(n-1)/n numbers forward, where tokens are those of all ranks.
//
// Ranks.Hidden divides each expert's hidden features as well, over ranks with the same tokens (tensor parallelism). With sequence parallelism
// beside it, each of them routes its own tokens, Ranks.Gather gives the experts those of all, and Ranks.Scatter leaves each its own of the results.
//
// # Balance
//
// Left alone, a router learns to choose few experts. Config.Balance adds the loss of Switch Transformers (Fedus et al. 2021): the
// number of experts, times the sum over experts of the part of slots that chose it and its mean score. It is 1 where all experts are
// chosen alike. Config.Z adds the z-loss of ST-MoE (Zoph et al. 2022), which keeps logits small. Both are means over the tokens of
// the global batch, whatever ranks have them, and part of Backward without being part of the loss that is printed.
//
// A Balancer does it without a loss: after each step of the optimizer it moves a bias that only chooses. Its Step also says how often each expert
// was chosen.
//
// # Precision
//
// Scores, weights and the weighted sum are in float32 where the model has 16 bits.
package moe
