// Package join is for ranks that have data of their own, such as different files, and not equally many batches: PyTorch's Join. The
// global batch of a step is what the ranks have then, in rank order. A rank that ran out takes part with a batch of no rows, until all
// ranks ran out: so losses, gradients and counts are those of all data on one rank.
//
//	batches := join.New(r.World, data.NewLoader(mine, data.Config{Batch: 32}))
//	for _, b := range batches.Epoch(ctx, epoch) {
//		loss := nn.CrossEntropy(model.Forward(tape.Input(b.X)), b.Y)
//		...
//	}
//	return batches.Err()
//
// It knows nothing of gradients: ddp, fsdp and the others take its batches as those of a data.Loader. It costs a small all-gather on host
// memory before each step. Batches of the ranks have one shape but for their rows. Unlike those of a data.Loader with a Sharder, the first
// batches have as many rows as the others: where that is the same number on all ranks, a loss that divides by a rank's own rows is not an
// error there, but a warning after two steps. The place of a loader in its epoch (State) is another one on each rank: a checkpoint within
// an epoch needs those of all (dist.AllGatherObject).
package join
