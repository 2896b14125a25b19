// Package ckpt saves and loads sharded checkpoints of a model and its optimizer, on any number of ranks. A checkpoint that was saved
// with one layout can be loaded with any other.
//
// To save:
//
//	saver := ckpt.NewSaver(r.World, "checkpoints", ckpt.Config{Keep: 3})
//	st := ckpt.State{Step: step, Params: params, Optimizer: opt, Tape: tape, Extra: map[string]any{"loader": loader.State()}}
//	err := saver.Save(ctx, st)
//
// To resume:
//
//	path, err := ckpt.Latest("checkpoints")
//	var at data.State
//	st := ckpt.State{Params: params, Optimizer: opt, Tape: tape, Extra: map[string]any{"loader": &at}}
//	report, err := ckpt.Load(ctx, r.World, path, &st, ckpt.LoadConfig{})
//	err = loader.SetState(at)
//
// Save and Load are collective: all ranks of the group call them. One rank that trains alone needs no Saver, and no group:
//
//	err := ckpt.SaveFile(ctx, "last.safetensors", st)
//	report, err := ckpt.LoadFile(ctx, "last.safetensors", &st, ckpt.LoadConfig{})
//
// # The folder
//
// A checkpoint is a folder that every Hugging Face reader can load:
//
//   - Safetensors files (package safetensors) with whole tensors, and model.safetensors.index.json. Each rank writes its shards
//     (tensor.Shard) at their places in these files, so nothing in them depends on the layout.
//   - Files with the optimizer's state.
//   - ringo.json with the rest: step, states, the shape of every tensor, how tensor parallelism divides it, and a SHA-256 of every
//     piece that a rank wrote, of every header, of the index and of itself. So every byte of the folder has a hash.
//
// SaveFile writes the same in one safetensors file: the optimizer's state beside the parameters, and what ringo.json says as the
// value of "ringo" in the file's metadata.
//
// If the model is an nn.Storer, a parameter may be several tensors of these files, or a part of one. A matrix whose field has the tag
// option "transposed" (package nn) is stored as [in, out]. It is transposed when it is saved or loaded, one tensor at a time.
//
// # Saving
//
// A checkpoint is complete or absent. It is written to a folder with a temporary name, and files and folder are flushed to the disk. When
// all ranks agree, the folder is renamed, and the new name is flushed. So after a crash at any moment, all older checkpoints are
// there, and perhaps the new one. An incomplete folder has a name that is never read. The next save removes it.
//
// If several ranks hold the same values, one of them writes, and they share the work: replicas, copies of shards, keys that tensor
// parallelism replicates, an embedding that two stages of a pipeline hold.
//
// A save in the background (Config.Async) ends before dist.Run returns. Its error is Run's error.
//
// Save refuses a checkpoint if ranks disagree on the step, on extra state, on the operations that they have called on the group, or
// on the bits of a parameter that all of them hold. Such a run is wrong already, and the last good checkpoint must stay.
//
// One run saves into a directory at a time. A save holds a lock on the file .lock there, which ends with the process, and is refused
// while another one holds it. Where the file system has no locks, as NFS without its lock daemon, a save removes nothing that it has
// not made: what a crash left behind stays, remove it yourself. Some mounts lock on each host alone: there, jobs on several hosts must
// not share a directory.
//
// # Loading
//
// Every rank reads the byte ranges that it needs, and verifies them, with every layout. A rank hashes the pieces that it reads
// as a whole. A piece that several ranks need in parts is read once more, by one rank. So the ranks together read a file at most twice. A wrong
// bit in any file that they read is an error on all ranks. There is one limit: if the disk returns other bytes to one rank in one of
// two readings, it may not be found. Checkpoints of older versions have the hashes, too. Folders without ringo.json have none
// (Report.Unverified).
//
// Names, shapes and types must fit exactly. One error lists everything that does not fit, unless LoadConfig.Partial allows it. For
// files of other programs, LoadConfig has Cast, Prefix, and patterns of names that may be missing or unexpected.
//
// With Partial the optimizer may be another one than before. A parameter gets its step count and all its moments, or neither
// (Report.Anew): with the count of moments that it has not, AdamW would not correct their bias. The learning rate is the checkpoint's;
// if the program had set another one, Report.Replaced says so.
//
// Files from anybody are safe to read. Each length is compared with the file's size before it is used, and no name in a file leads out
// of the folder. Links are refused, except those of Hugging Face's cache: from snapshots/REVISION/NAME to ../../blobs/HASH.
//
// If the newest checkpoint is damaged, nothing goes on from another one by itself: Latest and Load return an error that names the
// checkpoint before it whose lists and headers are sound. To go on from that one, verify it (its data may be damaged too), and give the
// folder of the damaged one another name, such as damaged-300.
//
// Load fills Param.Local. A package that keeps gathered copies must be told: after Load, call Changed of an fsdp.Sharding.
//
// # Other formats
//
// Convert also makes a checkpoint of what PyTorch saved (package torch). Package peft exchanges LoRA adapters. The command "ringo ckpt"
// lists, verifies, compares and converts checkpoints without a job.
package ckpt
