// Package ddp trains one model on several ranks that each hold all of it: distributed data parallel (Li et al. 2020,
// "PyTorch Distributed: Experiences on Accelerating Data Parallel Training").
//
// Every rank computes the gradients of its part of the global batch, and the ranks add them up. Attach makes all ranks
// start from rank 0's values, lays the gradients out in buckets, and from then on the ordinary loop of one rank
//
//	loss := nn.CrossEntropy(model.Forward(tape.Input(b.X)), b.Y)
//	tape.Backward(loss)
//	err := opt.Step()
//	tape.Reset()
//
// trains on all of them: while Backward still works on the first layers, the buckets of the last layers are being
// all-reduced, and Backward returns when all of them are.
//
// Gradients are summed, not averaged: a loss divides by the rows of the GLOBAL batch (package data says how many there
// are, see tensor.Rows), so that the sum over ranks is the gradient that one rank would compute, also when the ranks'
// parts differ in size. A loss of one's own ends with tensor.GlobalMean in place of Mean,
// which would divide by the rows of this rank only.
//
// All ranks take the same number of steps: one that has no rows in a batch runs the step on a batch of no rows (the loader
// makes one). A parameter that the loss does not use is an error, unless Config.AllowUnused is set. All ranks hold all
// gradients after Backward, so clipping needs no Norm.
//
// Parameters that only a part of the ranks share, such as experts, have their gradients summed over that part:
// Config.Over. A loss that would make gradients wrong, and a batch that does not say its rows, are refused
// (docs/TYPES.md).
//
// Naive does the same with one all-reduce per parameter after Backward. It is the oracle that Attach is tested against,
// and the place to start reading.
package ddp
