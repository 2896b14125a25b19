// Package dispatch sends tokens to experts and back, for package moe: the token dispatcher of a mixture of experts. Most programs
// use package moe instead.
//
// Each token has chosen top experts, so it takes top slots. A Dispatcher sorts slots by expert, sends them to the ranks of their experts,
// which compute, and sums the weighted results:
//
//	slots by expert ──counts──▶ depart ──all-to-all──▶ arrive ──by expert──▶ compute ▶ depart ──all-to-all──▶ arrive ▶ · weights ──sum──▶ y
//	                                └── meanwhile(0) ───┘                               └── meanwhile(1) ───┘
//
// The plan is made on the device, by sorting and counting. The host waits only once, in depart, for the counts: they are the sizes of what
// it sends. In the backward pass, arrive sends the gradients, so that they travel while the gradient of meanwhile is computed.
//
// With a capacity, every expert has the same number of places, for the slots of all ranks in the order of the batch. Slots beyond them are
// dropped. Ranks that have parts of the same rows tell each other how many slots of each row chose each expert. All ranks send rows for all
// places, most of them zeros, and nobody waits: an expert gets the sum of what arrives.
//
// dispatch.go has Plan and Run, functions.go what is sent (depart and arrive), capacity.go a limit of slots.
package dispatch
