// Package plan predicts what training takes before anything is started: the memory of a rank by kind, as a device counts it
// (tensor.Memory), and the bytes that ranks send in a step, as groups count them (dist.Stats). `ringo plan` prints it.
//
//	c := plan.Config{Layout: plan.Layout{FSDP: 8}, Stage: 3, Params: tensor.BFloat16}
//	m, err := plan.Transformer{Layers: 12, Dim: 768, Heads: 12, Vocab: 50257, Batch: 64, Seq: 1024}.Model(c)
//	p, err := plan.New(m, c)
//	fmt.Println(p)
//
// # What is exact
//
// Parameters, gradients, optimizer state and gathered units are what packages ddp, fsdp and optim allocate, to the byte, on
// the rank with the largest part. So are the bytes sent, summed over all ranks, where all-reduces are direct or rings; votes
// and the norm of clipping, some hundred bytes a step, are not among them. Buffers for communication are those that the
// packages allocate, without those of engines (sockets, rings between processes); a reduction that is over at once saves the second one.
//
// Activations are those of the transformer of examples/fsdp, which is GPT-2's: what Forward keeps without checkpointing, and
// at the peak, early in Backward, what its last layers need besides. Only rounding to blocks that were free is not foreseen.
//
// With tensor parallelism (package tp), parameters, gradients and bytes sent are exact, too, for GPT-2 of models/gpt; activations are within a few
// percent, with and without sequence parallelism.
//
// The same holds for GPT-2 with experts in place of MLPs (package moe, dropless), if each expert is chosen as often: what ranks of ep exchange is
// exact then. Experts are cut over the ranks of fsdp, the rest of the model over those of fsdp and ep. Experts with tensor parallelism are not planned.
//
// # ZeRO
//
// With values in c bytes, gradients in g, and S bytes of the optimizer (8 for AdamW, 12 with float32 masters), a parameter
// takes on each of N ranks (Rajbhandari et al. 2020)
//
//	stage 1: c + g + S/N    stage 2: c + (g + S)/N    stage 3: (c + g + S)/N
//
// A frozen parameter takes c, cut in stage 3, and in 16 bits its part of the masters. Trained and frozen ones are cut apart,
// so that each rank has 1/N of the optimizer's state whatever is frozen.
//
// In 16 bits, stage 3 is better than that: the masters are rounded where they are gathered, and a rank keeps no 16-bit copy of
// its part: (g + S)/N.
package plan
