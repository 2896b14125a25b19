// Package join is for ranks that have data of their own, such as different files, and not equally many batches (PyTorch's Join). In each
// step, the batches of all ranks, in rank order, are the global batch. A rank that has no more data takes part with batches of no rows,
// until all ranks have none. So losses, gradients and counts are those of all data on one rank.
//
//	batches := join.New(r.World, data.NewLoader(mine, data.Config{Batch: 32}))
//	for _, b := range batches.Epoch(ctx, epoch) {
//		loss := nn.CrossEntropy(model.Forward(tape.Input(b.X)), b.Y)
//		...
//	}
//	return batches.Err()
//
// It knows nothing of gradients: ddp, fsdp and the others take its batches as those of a data.Loader. It costs a small all-gather on host
// memory before each step. Batches may differ in their number of rows alone. Unlike those of a data.Loader with a Sharder, the first
// batches have as many rows as the others. If this number is the same on all ranks, a loss that divides by a rank's own rows is no error,
// but only a warning after two steps. Each rank's loader has its own place in its epoch (State): a checkpoint within an epoch needs the
// places of all (dist.AllGatherObject).
package join
