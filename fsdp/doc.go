// Package fsdp trains a model whose optimizer state, gradients and parameters are cut over ranks: ZeRO (Rajbhandari et
// al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models") and fully sharded data parallel (Zhao
// et al. 2023, "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel").
//
//	s := fsdp.New(fsdp.Config{Shard: r.World})
//	for _, b := range model.Blocks {
//		s.Unit(b)
//	}
//	s.Keep(model.Tok, model.Norm, model.Head)
//	params, err := s.Attach(model)
//	opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 3e-4, Clip: 1, Norm: s})
//
// Naive does the same without units, overlap and savings. It is the oracle that Attach is tested against, and where to start
// reading.
//
// The training loop is that of one rank, and so is the model: nothing is wrapped. As in package ddp, gradients are summed
// over ranks, so a loss divides by the rows of the GLOBAL batch, and all ranks take the same number of steps.
//
// # Units
//
// A unit is what is gathered together: the parameters of a transformer block, say. They lie in one flat buffer, of which
// each rank owns a part; parts differ by one element at most, and nothing is padded. Frozen parameters are cut by themselves, so
// that each rank has its share of the optimizer's state whatever is frozen at Attach. Param.Local is this rank's part of a
// parameter, which the optimizer updates and Param.Shard describes. It may be empty.
//
//   - Stage 1 cuts the optimizer's state. Ranks hold whole parameters and gradients. After the last microbatch each unit
//     is reduce-scattered, and the next forward pass gathers it.
//   - Stage 2 cuts gradients too: a unit is reduce-scattered as soon as its last gradient is there, and the whole gradients
//     are given up.
//   - Stage 3 cuts everything. The first use of a parameter gathers its unit, starts to gather the next one and gives up the
//     previous one. So N units take N gathers forward and N−1 backward (the last one is still there), and two whole units
//     are in memory at a time. A unit of Keep stays from forward to backward, and is gathered once.
//
// A parameter whose unit was given up cannot be used by mistake: it has no memory, and reading it panics with its name. So
// what an operation reads together (a weight and its bias) belongs in one unit, or in kept ones. Tied parameters belong in
// one unit, a kept one if their uses are far apart.
//
// Several tapes may be live, as in a pipeline, and their Backwards may run in any order, one after another: each gathers
// what it needs, and a Backward that is not preceded by its own forward pass gathers one unit more.
//
// Devices count all of this (tensor.Device.Memory). Values that stay are Parameters: this rank's part, and in stages 1 and 2 the
// whole. In stage 3, what is whole beyond this rank's part is Gathered, kept units included. This rank's gradients are Gradients;
// whole ones on their way to other ranks are Communication. Package plan predicts these numbers, and those of the optimizer. With
// Config.Offload what the optimizer works with is in host memory, and counted by the device that Offload is.
//
// # Order
//
// All ranks must gather the same units in the same order. The order is learned in the first step, where ranks compare each
// unit before they gather it. From then on every rank issues all gathers in this order, and skips none: a rank that does not
// use a unit gathers it all the same and contributes zeros. At the end of Backward the ranks compare what they used. A unit
// that no rank used has no gradient, and the optimizer leaves it alone. One that some ranks used and others did not is an
// error that names it; so is one that is used at another place than before.
// A captured step (tensor.Capture) gathers and compares in each replay what it did when it was recorded; CheckEvery and Offload are not for it.
// Where a pipeline puts weight gradients off (tensor.DeferWeights), units are used again for them: make these with Keep.
package fsdp
