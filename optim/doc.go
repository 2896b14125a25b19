// Package optim holds the optimizers SGD, Adam, AdamW, Muon and Adafactor, learning rate schedules, clipping and loss scaling.
//
//	params := nn.Init(model, dev, tensor.Float32, 1)
//	opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 3e-4, WeightDecay: 0.1, Clip: 1,
//		Schedule: schedule.Warmup(100, schedule.Cosine(0.1, 900)),
//		Groups:   []optim.Group{{Match: optim.Vectors}}}) // no decay of biases and norms
//	for batch := range batches {
//		tape.Backward(loss(tape, batch))
//		if err := opt.Step(); err != nil {
//			return err
//		}
//		tape.Reset()
//	}
//
// Package schedule has the schedules. The formulas are PyTorch's, and results agree with it up to rounding. One kernel updates all
// parameters of a group together, and a step allocates nothing. There is no ZeroGrad: after a step, the next Backward overwrites the
// gradients. A parameter that got no gradient since the last step is not changed, as in PyTorch if grad is None.
//
// An optimizer updates Param.Local: the parameter, or this rank's shard of it. So it does not depend on parallelism, except for the norm
// that clipping needs. Set Config's Norm as the parallel package says (see Norm): a norm over only a part of the model is an error. Moments
// are on the parameter's device, in its type. A parameter of 16-bit floats has float32 moments and a float32 master copy, and Local is the
// rounded master.
//
// To resume a run, set the parameters' values, and call [Optimizer.SetState], the loader's SetState and the tape's. ckpt.Load does all of
// this except the loader's SetState. Without the tape's state, dropout would use the masks of the first steps again.
//
// [NewMuon] is for the matrices inside a model, and AdamW for the rest:
//
//	opt := optim.NewMuon(params, optim.MuonConfig{Matrices: nn.Matrices(model, model.Head.W), LR: 3e-4, WeightDecay: 0.1,
//		AdjustLR: optim.MatchRMSAdamW, AdamW: optim.AdamWConfig{LR: 3e-4, WeightDecay: 0.1}})
//
// On several ranks, Ranks is their group (r.World without a pipeline). For each matrix one rank does the work, with the bits of one rank.
//
// [NewAdafactor] is for little memory: of a matrix it keeps a number for each row and each column, where AdamW keeps two for each element.
// It is here in place of an AdamW with moments of 8 bits because these numbers need no rounding, no kernels and no files of their own.
//
// An [EMA] keeps exponential moving averages of the parameters, for evaluation.
//
// A step whose loss or gradients are not finite is an error that names the parameter, and changes nothing. Nonfinite, or a Scaler, makes
// the optimizer skip such steps.
//
// For those who read the code: optimizer.go has Step. Its parts, in their order: checkStep (frozen.go has the checks, grads.go what
// RINGO_GRADS writes, settings.go what ranks compare), gradScale (clip.go; nonfinite.go and scaler.go say whether the step is done), apply
// (half.go casts, rules.go and config.go have the kernels of SGD and Adam, muon.go and adafactor.go rules of whole parameters, shared.go
// what these two have in common, ema.go the averages) and countStep. state.go is for checkpoints. Below internal, gradnorm has the norm,
// held which rank counts what, master the masters and averages, and orthogonal Muon's iteration.
package optim
