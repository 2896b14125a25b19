// Package train holds what a training script needs around its own loop: flags, signals, progress, metrics, pictures, and
// checkpoints to go on from. The loop and the step stay the script's:
//
//	o := train.Flags(flag.CommandLine)
//	flag.Parse()
//	train.Exit(o.Run(dist.Config{Ranks: 2}, func(ctx context.Context, r *dist.Rank) error {
//		// model, params, opt, tape, loader as ever
//		loop, err := train.Start(ctx, r, o, ckpt.State{Params: params, Optimizer: opt, Tape: tape})
//		if err != nil {
//			return err
//		}
//		for range loop.Batches(loader, steps) {
//			// forward, Backward, opt.Step, tape.Reset
//			loop.Sum("loss", loss) // this rank's part of it
//		}
//		return loop.Close()
//	}))
//
// All ranks do the same: Start, every step, Sum, Log, Flush and Close are collective.
//
// Values stay on the device until the loop reads those of all ranks, about twice a second; a script that reads a loss in
// every step waits for every step. At the same time the ranks hear of a signal: the first SIGINT, SIGTERM or SIGHUP ends the
// loop after a step, and Close saves; the second one kills.
//
// With RINGO_GRADS=FILE in the environment, every step of the optimizer that Start was given appends a line of JSON to the file: the norm of
// each parameter's gradient over the whole job, before clipping, and the step's value of "loss" so far. `ringo compare` does that with two layouts.
//
//	options.go     Options, Flags, Run, Exit
//	loop.go        Loop: Start, Steps, Batches, Close; checkpoint.go: save and resume
//	values.go      Sum, Log, Flush, Writer; package metrics has the JSON and CSV files, package tensorboard event files
//	grads.go       RINGO_GRADS
//	progress.go    a bar on a terminal, a line every few seconds elsewhere
package train
