// Package fsdp trains a model whose optimizer state, gradients and parameters are sharded over ranks: ZeRO (Rajbhandari et
// al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models") and fully sharded data parallel (Zhao
// et al. 2023, "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel"). Use it when the model does not fit on one rank.
//
// Call New, then Unit or Keep for the parts of the model, then Attach, before the optimizer is made:
//
//	s := fsdp.New(fsdp.Config{Shard: r.World})
//	for _, b := range model.Blocks {
//		s.Unit(b)
//	}
//	s.Keep(model.Tok, model.Norm, model.Head)
//	params, err := s.Attach(model)
//	opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 3e-4, Clip: 1, Norm: s})
//
// The training loop is that of one rank, and the model is not wrapped. As in package ddp, gradients are summed over the ranks. So a
// loss divides by the rows of the GLOBAL batch, and all ranks take the same number of steps.
//
// Naive does the same without units: it saves the optimizer's state, as stage 1 does, and no time. Tests compare Attach with it.
//
// # Units
//
// A unit is a set of parameters that are gathered together, such as those of a transformer block. They lie in one flat buffer. Each
// rank owns a part of it. The parts differ by one element at most, without padding. Frozen parameters are divided apart from
// the others, so that the optimizer's state is divided evenly whatever is frozen at Attach. Param.Local is this rank's part of a
// parameter: the optimizer updates it, and Param.Placement describes it. It may be empty.
//
//   - Stage 1 shards the optimizer's state. Ranks hold whole parameters and gradients. After the last microbatch each unit
//     is reduce-scattered, and the next forward pass gathers it.
//   - Stage 2 shards gradients, too. A unit is reduce-scattered as soon as its last gradient is there. Then its whole gradients
//     are freed.
//   - Stage 3 shards parameters, too. The first use of a parameter gathers its unit, starts to gather the next unit, and frees
//     the previous one. So N units take N gathers forward and N−1 backward (the last one is still there), and two whole
//     units are in memory at a time. A unit of Keep is never freed, and is gathered once a step.
//
// In stages 2 and 3 all ranks run the same microbatches, because each is communicated. So cut a rank's rows into so many parts, not into
// parts of so many rows: ranks may have unequally many, as in the last batch of an epoch and in the first one of a data.Loader.
// With dropout, or what mixes a microbatch's rows, such as the balance loss of experts, the result then depends on the number of ranks. For
// the result of one rank, make each microbatch a whole batch of the loader, of which each rank has its rows.
// With Config.OncePerStep only the whole step is communicated, as in stage 1. Then whole gradients, and in stage 3 whole values, are in
// memory from the first microbatch to the last.
//
// With Config.Host, stage 3 crosses hosts once a step, too, for less memory: each of h ranks of a host keeps 1/h of the units in the type
// they are used in, and later gatherings of the step stay within the host. With Config.Weights and Config.Grads, what is sent is quantized
// (ZeRO++, Wang et al. 2023). After 60 steps of this package's tests, losses are within 1% of those of exact values, with Grads within 2%.
//
// Param.Value has memory only while it is right: to read it otherwise panics with the parameter's name. That is so while a unit is freed,
// and in all stages from Attach, a step of an optimizer or Param.Changed to the next forward pass. Read and write Local, and read the whole
// with Full. Behind each change of Local call Changed, also where averages are swapped in or out: what stays gathered (stages 1 and 2,
// Keep) is else partly old, and no error says so. One rank in stages 1 and 2 has the whole, and can always read it.
//
// So parameters that one operation reads together (a weight and its bias) belong in one unit, or in units of Keep. Tied parameters belong
// in one unit. If their uses are far apart, make it with Keep.
//
// Several tapes may be alive, as in a pipeline, and their Backwards may run in any order, one after another. Each gathers
// what it needs. A Backward that does not come directly after its own forward pass gathers one unit more.
//
// # Memory
//
// Devices count memory by kind (tensor.Device.Memory):
//
//   - Parameters: values that stay. They are this rank's part; in stages 1 and 2 the whole.
//   - Gathered: in stage 3, whole parameters beyond this rank's part, units of Keep included.
//   - Gradients: this rank's part; in stage 1 the whole.
//   - Communication: whole gradients on their way to other ranks.
//
// Package plan predicts these numbers, and those of the optimizer. With Config.Offload, the values, gradients and state that the
// optimizer works with are in host memory. The device in Offload counts them.
//
// # Order of gathers
//
// All ranks must gather the same units in the same order. Ranks learn the order in the first step, and compare each
// unit before they gather it. From then on, every rank issues all gathers in this order and skips none. A rank that does not use a
// unit gathers it all the same and contributes zeros. At the end of Backward, the ranks compare what they used. If no rank
// used a unit, it has no gradient, and the optimizer does not change it.
//
// A unit that the first step left out finds its place later.
//
// These are errors that name the unit: some ranks use it and others do not; a rank uses it at another place than before. A model whose
// order changes, on all ranks alike, needs Config.OncePerStep or stage 2, or keeps (Keep) what changes its place.
//
// A captured step (capture.New) repeats in each replay the gathers and comparisons of its recording. CheckEvery, Offload and Host cannot
// be captured. If a pipeline computes weight gradients later (tensor.DeferWeights), it uses units again for them: they must stay until
// then, by OncePerStep or Keep.
//
// # Files
//
//   - internal/naive: the same without units; read it first. config.go: Config. sharding.go: New, Unit and Keep.
//   - attach.go: Attach; unit.go: how a unit is divided; ranks.go: who shares it; memory.go: its memory.
//   - hooks.go: what a tape calls. Then internal/order says what to do (begin with its testdata/transcripts.txt), and perform.go does it,
//     with unshard.go and reduce.go.
//   - used.go, compare.go: what ranks compare at the end of a step.
//   - quantize.go: Format. internal/zeropp: what Config.Host, Weights and Grads add. offload.go: Config.Offload.
//   - state.go: Full and StateDict. internal/pool: memory that is lent.
package fsdp
