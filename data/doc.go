// Package data holds datasets, and a Loader that cuts them into batches for training.
//
//	train, test, err := data.MNIST("", tensor.Float32)
//	batches := data.NewLoader(train, data.Config{Batch: 64, Shuffle: true, Sharder: r.World})
//	for epoch := range 3 {
//		for i, b := range batches.Epoch(ctx, epoch) {
//			... // b.X is [rows, 784], b.Y is [rows]
//		}
//		if err := batches.Err(); err != nil { // before the ranks do anything together
//			return err
//		}
//	}
//
// # Order
//
// Batch always means the global batch, over all ranks. Global batch b of an epoch holds the samples perm[b*Batch : (b+1)*Batch]. The
// permutation depends only on the seed and the epoch. Each rank takes a contiguous part of the batch. So in every step, n ranks together
// see the samples that one rank would see, and every sample once in an epoch. The last batch of an epoch may be smaller. No sample is
// dropped, unless [Config].DropLast is set. If the last batch has fewer rows than there are ranks, some ranks get a batch of no rows, so
// that all ranks take the same number of steps. A loss on a rank's part must be divided by Batch.Global, the number of rows of all ranks,
// and summed over the ranks. The losses of package ops do this division themselves: the batch's tensors know their places in the global
// batch.
//
// Each rank takes its part of a batch in order, and ranks have equally many rows, or one differs by a row. The first batch of epoch 0 is
// divided in another way: the first rank has a row more, and the last one less, where all have 8 rows or more. So a program that divides
// by its own number of rows has another number on these ranks, and package ddp or fsdp refuses it in the first step; with equally many rows
// nothing would show it. A program that needs equally many, such as one that keeps a state for each row, numbers its epochs from 1.
//
// Samples that belong together, such as answers to one question that are compared with each other, follow each other in the dataset, and
// [Config].Group says how many they are: they are shuffled as one, and are never on two ranks.
//
// # Memory
//
// A Loader prepares two batches ahead, in its own goroutine, and owns the memory of three batches. A batch is valid until the next
// iteration. After the first steps, a step allocates nothing. If the device has its own memory ([Config].Device), the goroutine copies
// batches to it from page-locked memory, on another queue than the one that computes. The loop waits for the device only if the loop
// is three batches ahead.
//
// # Datasets
//
// Implement [Dataset] for your own data. [NewTensors] makes one from rows in memory, [CSV] and [JSONL] from a file of numbers, and
// [NewText] from the tokens of a text, whose lines [Lines] reads. Packages data/images and data/parquet read images and Parquet files. An
// error of a Dataset stops the loop, and [Loader.Err] names the dataset and the sample. [MNIST] reads the real images; if they cannot be
// found, it returns an error. [Synthetic] makes images of the same shape from a seed.
//
// [Split] divides a dataset by chance, [SplitByClass] with the same classes in each part. [Filter] and [Readable] leave samples out. All
// return a [Subset]. With [Config].Weights, samples are drawn by weights, such as those of [Balance].
package data

// What prepares samples may compute with tensors outside of tapes.
import _ "github.com/ringo-ml/ringo/tensor/cpu"
