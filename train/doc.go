// Package train has what a training script needs around its own loop: flags, signals, progress, values in files and pictures, and
// checkpoints to resume from. The loop and the step stay in the script:
//
//	o := train.Flags(flag.CommandLine)
//	flag.Parse()
//	train.Exit(o.Run(dist.Config{Ranks: 2}, func(ctx context.Context, r *dist.Rank) error {
//		// model, params, opt, tape, loader as ever
//		loop, err := train.Start(ctx, r, o, ckpt.State{Params: params, Optimizer: opt, Tape: tape})
//		if err != nil {
//			return err
//		}
//		for _, b := range loop.Batches(loader, steps) {
//			// forward on b.X and b.Y
//			loop.Sum("loss", loss) // this rank's part of it
//			// Backward, opt.Step, tape.Reset
//		}
//		return loop.Close()
//	}))
//
// All ranks do the same: Start, each step, Sum, Log, Flush and Close are collective. Values stay on the device until the loop reads those
// of all ranks, about twice a second. A script that reads the loss in every step waits for every step. At the same time the ranks agree
// about signals: after the first SIGINT, SIGTERM or SIGHUP the running step is the last one, Close saves, and Exit prints it. A
// signal that comes more than a second later kills the process.
//
// Evaluate has the loop measure a value at intervals, such as an accuracy. Summary says what a training did and what it cost, for people
// and as JSON. Measure names the groups whose bytes and waits it counts.
//
// A step whose loss or gradients are not finite ends the training, before it changes anything, with an error that names the step, the
// loss, the parameter, the rank and the samples. Options.Nonfinite skips such steps.
//
// `ringo compare` compares the norms of the gradients on two layouts, parameter by parameter, and the losses that a Loop knows.
package train
