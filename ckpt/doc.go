// Package ckpt saves and loads sharded checkpoints of a model and its optimizer, on any number of ranks. A checkpoint that
// was saved with one layout can be loaded with any other layout.
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
//	report, err := ckpt.Load(ctx, r.World, path, &st, ckpt.LoadConfig{}) // stages of a pipeline: LoadConfig{Strategy: ckpt.Owned}
//	err = loader.SetState(at)
//
// Save and Load are collective: all ranks of the group call them. A program with one rank needs no Saver and no group:
//
//	err := ckpt.SaveFile(ctx, "last.safetensors", st)
//	report, err := ckpt.LoadFile(ctx, "last.safetensors", &st, ckpt.LoadConfig{})
//
// # The folder
//
// A checkpoint is a folder that Hugging Face's libraries can load. It contains:
//
//   - Safetensors files (package safetensors) with whole tensors, and model.safetensors.index.json. Each rank writes its
//     shards (tensor.Param.Placement) at their places in these files, so the files do not depend on the layout.
//   - Safetensors files with the optimizer's state.
//   - ringo.json with everything else: the step, other state, the shape of every tensor, and how tensor parallelism cuts it.
//     It also has the SHA-256 of every piece that a rank wrote, of every header, of the index and of itself. So every byte
//     of the folder has a hash.
//
// SaveFile writes the same to one safetensors file. The optimizer's tensors are beside the parameters, and the content of
// ringo.json is in the file's metadata, under the key "ringo".
//
// If the model is an nn.Storer, a parameter may be stored as several tensors, or as a part of one. A matrix whose field has
// the tag option "transposed" (package nn) is stored as [in, out]. Save and Load transpose it, one tensor at a time.
//
// # Saving
//
// A checkpoint is complete or absent. Save writes it to a folder with a temporary name, and flushes the files and the folder
// to the disk. When all ranks have succeeded, it renames the folder and flushes the new name. So a crash at any moment keeps
// all older checkpoints. An incomplete folder keeps its temporary name and is never read; the next save removes it.
//
// If several ranks hold the same values, one of them writes these values, and the ranks share the work. This holds for
// replicas, copies of shards, keys that tensor parallelism replicates, and an embedding on two pipeline stages.
//
// A save in the background (Config.Async) ends before dist.Run returns. Run returns its error.
//
// Save returns an error if ranks differ in the step, in extra state, in the operations that they have called on the group,
// or in the bits of a parameter that all of them hold. Such a run is already wrong, and the last good checkpoint must stay.
//
// Save returns an error if a parameter or the optimizer's state is NaN or infinite, or if a device has stopped the training
// (optim.Stop), unless State.Nonfinite is set. Buffers, such as masks, may be infinite.
//
// Only one run at a time may save to a directory. A save locks the file .lock in the directory; the lock ends with the
// process. A save returns an error while another save holds the lock. Some file systems have no locks, such as NFS without
// its lock daemon. There, a save removes only its own files, and you must remove what a crash left behind. Some network
// mounts lock on each host alone: there, jobs on several hosts must not share a directory.
//
// # Loading
//
// Every rank reads the byte ranges that it needs and verifies them, with every layout. A rank hashes the pieces that it
// reads completely. If several ranks read parts of a piece, one rank reads the piece once more and hashes it. So all ranks
// together read a file at most twice. A wrong bit in any file that they read is an error on all ranks, with one exception:
// if the disk returns different bytes in the two readings, the error may be missed. Folders without ringo.json have no
// hashes (Report.Unverified).
//
// Names, shapes and types must match exactly. Otherwise one error lists all differences, unless LoadConfig.Partial is set.
// For files of other programs, LoadConfig has Cast, Rename, and patterns for names that may be missing or unexpected.
//
// With Partial, the optimizer may differ from the one that was saved. A parameter gets its step count and all its moments,
// or none of them (Report.Anew): with a step count but no moments, AdamW's bias correction would be wrong. The learning rate
// comes from the checkpoint; if it replaces another one, Report.Replaced says so.
//
// It is safe to read files from untrusted sources. Each length is compared with the size of the file before it is used, and
// no name in a file can lead out of the folder. Links are refused, except those of Hugging Face's cache: from
// snapshots/REVISION/NAME to ../../blobs/HASH.
//
// If the newest checkpoint is damaged, Latest and Load do not silently use an older one. They return an error that names
// the last checkpoint before it whose lists and headers are sound. To resume from that one, verify it first, because its
// data may be damaged too. Then rename the damaged folder, for example to damaged-300; -resume=step-N of package train does so.
//
// Load fills Param.Local, and tells the parameters' owner (Param.Changed): fsdp gathers them anew.
//
// # Other formats
//
// Package inspect lists, verifies, compares and converts checkpoints without a job, and so does the command "ringo ckpt".
// It can also convert PyTorch's checkpoints (package torch). Package peft exchanges LoRA adapters.
//
// # Words
//
// A source is a tensor of the State on one rank. It is stored as items: one, or one or more for each segment (tensor.Param.SetStored). An
// extent is what the same ranks hold of a tensor. One of them writes it. In ringo.json it is a piece, with a hash. A job is an item with
// this rank's pieces. A rule is a layout.Division ("tp" in ringo.json).
//
// # Files
//
// Package internal/storage is the format, internal/shard says which elements a rank holds, and internal/disk is the file
// system. Here are the ranks:
//
//   - state.go: State, and its tensors as items; segment.go: a parameter that is stored as several tensors.
//     base.go: Base, what adapters were trained with.
//   - save.go: Saver, one save from its beginning to its end; background.go: while training continues.
//   - local.go: what this rank holds; coordinate.go: the ranks plan together; plan.go: the plan that rank 0 makes;
//     extent.go: which rank writes what several hold; rule.go: Rules of parameters and of their segments; wire.go: how plans are sent.
//   - staging.go: copies of tensors in host memory; write.go: a rank's pieces; commit.go: temporary and final names, and
//     what ranks must agree on between them.
//   - load.go: Load; catalog.go: what a checkpoint has; match.go: whether it fits the State; integrity.go: pieces that
//     several ranks read. latest.go: Latest.
//   - file.go: SaveFile and LoadFile.
package ckpt
