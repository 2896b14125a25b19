// Package dispatch brings tokens to experts and back, for package moe: the token dispatcher of a mixture of experts.
//
// Each token chose top experts: it is as many slots. A Dispatcher sorts slots by expert, sends them to the ranks of their experts, which
// compute, and adds up what comes back:
//
//	slots by expert ──counts──▶ depart ──all-to-all──▶ arrive ──by expert──▶ compute ▶ depart ──all-to-all──▶ arrive ▶ · weights ──sum──▶ y
//	                                └── meanwhile(0) ───┘                               └── meanwhile(1) ───┘
//
// Where they go is planned where they are, by sorting and counting; nothing waits but depart, once, for the counts, which are the sizes of what
// it sends. In backward, gradients go the same ways: arrive sends them, so that they travel while the gradient of meanwhile is computed.
//
// With a capacity every expert has as many places, for the slots of all ranks in their order, and slots behind them are dropped. All
// ranks send rows for all places, most of which are zeros, and nobody waits: the sum of what comes is what an expert gets.
package dispatch
