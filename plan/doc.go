// Package plan predicts what a training needs before it is started: the memory of a rank by kind, as a device counts it (memory.Counter),
// and the bytes that ranks send in a step, as groups count them (dist.Stats). `ringo plan` prints the same numbers.
//
//	c := plan.Config{Layout: plan.Layout{FSDP: 8}, Stage: 3, Params: tensor.BFloat16}
//	m, err := plan.Transformer{Layers: 12, Dim: 768, Heads: 12, Vocab: 50257, Batch: 64, Seq: 1024}.Model(c)
//	p, err := plan.New(m, c)
//	fmt.Println(p)
//
// # What is exact
//
// Exact to the byte, on the rank with the largest part: parameters, gradients, optimizer state and gathered units, as packages ddp, fsdp
// and optim allocate them.
//
// Exact, summed over all ranks: the bytes sent, if all-reduces use algorithm direct or ring. Votes and the norm for clipping are not
// counted; they are a few hundred bytes in each step.
//
// Communication buffers are those that the packages allocate, without the buffers of engines (sockets, shared memory between processes).
// A reduction that ends at once needs one buffer less.
//
// With ZeRO++ (copies in hosts, quantized values and gradients) bytes are exact. Those that stay in a host are counted apart (axis host).
// Formulas leave out the scales of blocks that are not full.
//
// Activations are those of the transformer of examples/fsdp, which is GPT-2: what Forward keeps without checkpointing, and what the last
// layers need at the peak, early in Backward. Not predicted are the rounding to free blocks, and the row that the first rank has more
// in the first batch of a data.Loader.
//
// With tensor parallelism (package tp), parameters, gradients and bytes sent are exact for GPT-2 of models/gpt. Activations are within a
// few percent, with and without sequence parallelism.
//
// With ranks that have other positions (package cp: ring, cp, or both), bytes are exact, and activations within a few percent, for GPT-2 of
// models/gpt. These ranks share what fsdp cuts, as in models/gpt/parallel, also of experts.
//
// In a pipeline (package pp), also with fsdp (OncePerStep), tp or experts, a rank's parameters, gradients and bytes are exact. Its
// activations are those of the microbatches that its schedule holds, within a few percent, or 15 with put-off weight gradients.
//
// The same holds for GPT-2 with experts in place of MLPs (package moe, dropless), if all experts are chosen equally often. Then the bytes
// between ranks of ep are exact, too. Experts are sharded over the ranks of fsdp, the rest of the model over those of fsdp and ep.
// Beside tensor parallelism they are planned without sequence parallelism.
//
// # ZeRO
//
// With values in c bytes, gradients in g, and S bytes of the optimizer (8 for AdamW, 12 with float32 masters), a parameter takes on each
// of N ranks (Rajbhandari et al. 2020)
//
//	stage 1: c + g + S/N    stage 2: c + (g + S)/N    stage 3: (c + g + S)/N
//
// A frozen parameter takes c (c/N in stage 3), and in 16 bits its part of the masters. Trained and frozen parameters are divided
// separately, so each rank has 1/N of the optimizer's state, whatever is frozen.
//
// In 16 bits, stage 3 needs less: masters are rounded when they are gathered, and a rank keeps no 16-bit copy of its part. This makes (g
// + S)/N.
//
// # Files
//
// plan.go has New, Config and Plan. memory.go and traffic.go say what ddp, fsdp and the optimizer need and send, for any units;
// quantized.go adds ZeRO++. transformer.go makes such units of a Transformer, with its activations. tensor.go (tp), context.go (ring and
// cp), experts.go (ep) and pipeline.go (pp) say what each axis changes. layout.go reads layouts, string.go prints plans.
//
// There are two models of activations, because layers of examples/fsdp and of models/gpt keep different tensors. ddp and fsdp alone are
// planned as examples/fsdp, all else as models/gpt: these are the programs that tests compare with the plans. transformer.go has both, but
// for tp (tensor.go) and experts (experts.go).
package plan
