// Package tensorboard writes values for TensorBoard: event files, which `tensorboard --logdir DIR` shows.
//
// The flag -tensorboard of train.Flags does it. In a script of its own flags:
//
//	if r.World.Rank() == 0 {
//		w, err := tensorboard.Create(dir)
//		// …
//		loop.To(w) // a train.Loop
//	}
//
// A file is a sequence of records (length, checksum, bytes, checksum), as TensorFlow's TFRecord, each a message Event of
// tensorflow/core/util/event.proto: a time, a step, and scalars by name.
package tensorboard
