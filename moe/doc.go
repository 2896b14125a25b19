// Package moe is a mixture of experts (Shazeer et al. 2017, "Outrageously Large Neural Networks: The Sparsely-Gated
// Mixture-of-Experts Layer"): a layer with many feed-forward networks, the experts, of which each token uses a few. Use it in place of
// an MLP.
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
// The router (package moe/router) gives each token a score for every expert, chooses Top experts, and weights their outputs. A token with
// two experts takes two slots. Slots are sorted by expert, and one grouped product computes all experts, each on its own rows. The results
// are put back in order, weighted and summed. All of this is planned where the layer computes, so the host never waits for the device. An
// expert without tokens computes on no rows, and so does a rank without tokens. Their gradients are zeros.
//
//	x ──Router──▶ experts, weights
//	└──sort by expert──▶ Down(SiLU(Gate·x) * Up·x), each expert its rows ──back──▶ · weights ──sum──▶ y
//
// No token is dropped (dropless), unless Config.Capacity limits the slots of an expert.
//
// # Experts on several ranks
//
// Expert parallelism divides the experts over ranks. Call Parallelize before ddp.Attach or fsdp's:
//
//	mesh, err := r.World.Mesh("dp=2,ep=4")
//	err = moe.Parallelize(moe.Ranks{Tokens: mesh.Group("dp", "ep"), Experts: mesh.Group("ep")}, l)
//	params, err := ddp.Attach(mesh.Group("dp", "ep"), m, ddp.Config{Over: moe.Over(mesh.Group("dp"), l)})
//
// Every rank has its own rows of the batch, and a part of the experts. Slots are sent to the ranks of their experts, and the results are
// sent back. All ranks of ep take part in every forward and backward pass, also those without tokens. The gradient of an expert is already
// that of the tokens of all ranks of ep. So it is summed only over ranks with the same experts (Over; with package fsdp,
// Unit(l.Experts).Over). All other parameters are summed over dp and ep. Losses are sums over all ranks, so nothing is divided.
//
//	slots by expert ──counts──▶ depart ──all-to-all──▶ arrive ──by expert──▶ experts ▶ depart ──all-to-all──▶ arrive ▶ · weights ──sum──▶ y
//	                                └── shared: gate, up ┘                              └── shared: down ───┘
//
// Forward waits once, for the counts. The shared expert computes while slots are sent, and its gradient while their gradients are. A layer
// sends 2·rows·features numbers forward and as many backward, where rows are those of slots whose expert is on another rank.
//
// With Config.Capacity every expert has a fixed number of rows on each of its ranks. All ranks send the same amount, and nobody waits for
// counts. The slots that have a place are chosen over all ranks, so the choice does not depend on the number of ranks. For this, each rank
// has room for the places of the whole batch, and a layer sends 2·capacity·tokens·top·features·(n-1)/n numbers forward, where tokens are
// those of all ranks.
//
// Ranks.Hidden divides the hidden features of each expert, too, over ranks with the same tokens (tensor parallelism). With sequence
// parallelism, each of these ranks routes its own tokens: Ranks.Gather gives the experts the tokens of all, and Ranks.Scatter gives each
// rank its own results.
//
// # Balance
//
// Without balancing, a router learns to choose few experts. There are two remedies. Config.Balance adds the loss of Switch Transformers
// (Fedus et al. 2021): the number of experts, times the sum over experts of the fraction of slots that chose it and its mean score. It is 1
// if all experts are chosen equally often. Config.Z adds the z-loss of ST-MoE (Zoph et al. 2022), which keeps logits small. Both are means
// over the tokens of the global batch, whatever ranks have them. Backward includes them; the printed loss does not.
//
// A Balancer needs no loss. After each step of the optimizer it changes a bias that is used only to choose experts. Its Step also returns
// how often each expert was chosen.
//
// # Precision
//
// Scores, weights and the weighted sum are in float32 if the model has 16 bits.
//
// # Files
//
// layer.go has the forward pass. It calls package router, then package dispatch. parallel.go divides a layer, loss.go has the balance loss
// and the z-loss, balance.go the Balancer.
package moe
