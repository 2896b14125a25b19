// Package storage is the format of a checkpoint: it opens the folders and files that package ckpt describes, streams
// tensors from them, and creates new ones. It does not communicate, and does not know the State.
//
//   - manifest.go: ringo.json and the index.
//   - reader.go: Reader opens a checkpoint and checks everything except the data. stream.go reads and verifies the data.
//   - draft.go: Draft is a checkpoint that is being written.
//   - single.go: a checkpoint in one file. beside.go: small files beside the tensors.
//   - steps.go: the folders of a run, and what crashed saves left.
//   - ranks.go: which part of a tensor each rank of a layout loads.
//   - cast.go converts types, finite.go counts NaN and infinity, parallel.go divides work over goroutines.
package storage
