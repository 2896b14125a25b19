// Package data feeds training: datasets, and a Loader that cuts them into batches.
//
//	train, test, err := data.MNIST("", tensor.Float32)
//	batches := data.NewLoader(train, data.Config{Batch: 64, Shuffle: true, Sharder: r.World})
//	for epoch := range 3 {
//		for i, b := range batches.Epoch(ctx, epoch) {
//			... // b.X is [rows, 784], b.Y is [rows]
//		}
//	}
//	return batches.Err()
//
// # Order
//
// Batch always means the global batch, over all ranks. Global batch b of an epoch holds the samples perm[b*Batch :
// (b+1)*Batch], where the permutation depends on the seed and the epoch alone. Each rank takes a contiguous part of it,
// so n ranks see in every step exactly what one rank would see, and every sample once an epoch. Nothing is dropped, unless
// [Config].DropLast asks for it: the last batch of an epoch may be smaller, and where it has fewer rows than there are
// ranks, some ranks get a batch of no rows, so that all ranks take the same number of steps. A loss on a rank's part must
// be divided by Batch.Global, the rows of all ranks, and summed over the ranks. The losses of package tensor divide so by themselves, because the
// batch's tensors know their places in the global batch.
//
// # Memory
//
// A Loader prepares two batches ahead in a goroutine of its own and owns the memory of three. A batch is valid until
// the next iteration. In the steady state a step allocates nothing. To a device with memory of its own
// ([Config].Device) the goroutine copies batches from page-locked memory, on a queue beside the one that computes. The
// loop does not wait for its steps until it is three batches ahead of the device.
//
// # Datasets
//
// [Dataset] is what users implement for their own data. [NewTensors] makes one of rows in memory, [CSV] of a file of numbers, [NewText]
// of tokens. [MNIST] reads the real images and never makes any up; [Synthetic] is a made-up problem of the same shape, for those who ask
// for it. An error of a Dataset stops the loop; [Loader.Err] names the dataset and the sample. Nothing that is wrong is left out silently.
package data
