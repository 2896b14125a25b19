// Package ckpt saves and loads sharded checkpoints: of a model and its optimizer on any number of ranks, from one layout to
// any other.
//
//	saver := ckpt.NewSaver(r.World, "checkpoints", ckpt.Config{Keep: 3})
//	st := ckpt.State{Step: step, Params: params, Optimizer: opt, Tape: tape, Extra: map[string]any{"loader": loader.State()}}
//	err := saver.Save(ctx, st)
//
//	path, err := ckpt.Latest("checkpoints")
//	var at data.State
//	st := ckpt.State{Params: params, Optimizer: opt, Tape: tape, Extra: map[string]any{"loader": &at}}
//	report, err := ckpt.Load(ctx, r.World, path, &st, ckpt.LoadConfig{})
//	err = loader.SetState(at)
//
// # The folder
//
// A checkpoint is a folder that every Hugging Face reader loads: safetensors files (package safetensors) that hold whole
// tensors, and model.safetensors.index.json. Each rank writes its boxes and flat ranges (tensor.Shard) at their places in
// these files, so that nothing in them depends on the layout. Where a model is an nn.Storer, a parameter may be several tensors of
// these files, or a part of one. A matrix whose field has the tag option "transposed" (package
// nn) lies there as [in, out] and is transposed on its way, one tensor at a time. The optimizer's state lies in files of its
// own beside the model's. ringo.json has the rest: step, states, the shape of every tensor, how tensor parallelism cuts it,
// and a SHA-256 of every piece that a rank wrote, of every header, of the index and of itself.
// No byte of the folder is without a hash.
//
// # Nothing is lost
//
// A checkpoint is complete or absent. It is written in a folder with a temporary name; files and folder are flushed; when
// all ranks agree, the folder is renamed, and the new name is flushed. So a crash at any moment leaves the checkpoints that
// were there, or one more. What it leaves half written has a name that is never read and is removed by the next save.
//
// What several ranks hold, one of them writes, and the work is shared: replicas, copies of shards, keys that tensor parallelism
// replicates, an embedding that two stages of a pipeline have.
//
// A save in the background (Config.Async) is over when dist.Run returns, and its error is Run's.
//
// A checkpoint whose ranks disagree is refused: on the step, on extra state, on what they have called on the group, or on
// the bits of a parameter that all of them hold. Such a run is broken already, and its last good checkpoint is worth more.
//
// # Loading
//
// Every rank reads the byte ranges that it needs, and what is loaded is verified, on every layout: a rank hashes the pieces
// that it reads as a whole, and pieces that are cut otherwise now are read once more, each by one rank. So the ranks together
// read a file twice at most. A wrong bit in any file of the checkpoint that they read is an error on all ranks. What is read
// twice is what the disk gave twice: a rank whose own way to the disk changes bytes in one of two readings is not found. Checkpoints
// of older versions have the hashes that this needs; folders without ringo.json have none (Report.Unverified). Names, shapes and
// types must fit exactly, and one error lists all that do not, unless LoadConfig.Partial says otherwise. For files of others there are
// Cast, Prefix and patterns of what may be missing or unexpected. Files may come from anybody: no length is believed before it was
// compared with the file's size, and no name in them leads out of the folder. Links are refused, but those of Hugging Face's cache: from
// snapshots/REVISION/NAME to ../../blobs/HASH.
//
// Load fills Param.Local. A package that keeps gathered copies of it must be told: after Load, call Changed of an
// fsdp.Sharding.
//
// Convert also makes a checkpoint of what PyTorch saved (package torch).
//
// The command "ringo ckpt" lists, verifies, compares and converts checkpoints without starting a job.
package ckpt
