// Package ddp trains one model on several ranks, each of which holds a full copy of it: distributed data parallel (Li et al. 2020,
// "PyTorch Distributed: Experiences on Accelerating Data Parallel Training"). Use it when the model, its gradients and the optimizer's
// state fit on one rank. Otherwise see package fsdp.
//
// Call Attach once, before the optimizer is made. It takes the place of nn.Init:
//
//	params, err := ddp.Attach(r.World, model, ddp.Config{})
//	opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 3e-4})
//
// Afterwards all ranks have rank 0's values. The training loop stays that of one rank:
//
//	loss := nn.CrossEntropy(model.Forward(tape.Input(b.X)), b.Y)
//	tape.Backward(loss)
//	err := opt.Step()
//	tape.Reset()
//
// Every rank computes the gradients of its part of the global batch, and Backward sums them over the ranks. Gradients lie in
// buckets. A bucket is all-reduced as soon as it and all buckets before it are complete, while Backward still computes the gradients of
// earlier layers. Backward returns when all buckets are reduced.
//
// # Losses
//
// Gradients are summed, not averaged. So a loss must divide by the rows of the GLOBAL batch. Then the sum over the ranks is the
// gradient that one rank would compute, even if the ranks have different numbers of rows. The losses of packages nn and tensor/ops do
// this by themselves, with batches of a data.Loader (see tensor.Rows). A loss of your own ends with tensor.GlobalMean. Mean would
// divide by the rows of this rank only.
//
// Clipping needs no Norm in the optimizer's configuration, because every rank has all gradients after Backward.
//
// # Rules
//
// All ranks take the same number of steps. A rank without rows in a batch runs the step on a batch of no rows, which the loader
// makes. If each rank has data of its own, and not equally much, package dist/join makes global batches of it. If only some ranks share
// a parameter, as with experts, Config.Over says which ones.
//
// These are errors: a parameter that the loss does not use (unless Config.AllowUnused is set), a loss that would make gradients
// wrong, and a batch that does not say its rows. docs/TYPES.md explains the last two.
//
// Naive does the same with one all-reduce for each parameter after Backward. Tests compare Attach with it. It is short: start
// reading there. Then attach.go has Attach and what ranks compare once, reducer.go what a tape calls, bucket.go how a bucket is sent and
// the hooks, check.go which values are compared after Backward (dist.StepCheck says in which steps, and compares what they were fed).
package ddp
