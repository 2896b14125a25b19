// Package pp is pipeline parallelism: ranks have consecutive layers of a model, a stage each or several, and the
// microbatches of a step go through them, forward and backward.
//
// A schedule is a list of actions for each rank, in order: F is the forward pass of a stage and a microbatch, B the backward pass. A
// backward pass can be cut into I, the gradients of activations, for which the stage before waits, and W, those of weights, for which
// nobody does: W fills the time in which a rank would wait. Three ranks and four microbatches, in OneF1B (0F1 is microbatch 1 on stage 0):
//
//	0F0 0F1 0F2             0B0 0F3 0B1     0B2     0B3
//	    1F0 1F1     1B0 1F2 1B1 1F3     1B2     1B3
//	        2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3
//
// Check runs nothing. It tells whether a schedule is complete and cannot hang, how long it takes, and what ranks hold: memory is
// proportional to that.
//
//	s := pp.OneF1B(4, 8) // ranks, microbatches
//	rep, err := s.Check(pp.Costs{F: 1, I: 1, W: 1}, pp.Limit{Live: 4})
//
// "ringo viz schedule" draws one.
//
// # Training
//
// A Pipeline runs any schedule. Each rank divides its stages by tp and others, then attaches them together, with one owner of gradients:
//
//	mesh, err := r.World.Mesh("pp=4,dp=2")
//	stages, err := model.Stages([]int{3, 3, 3, 3}, mesh.Group("pp").Rank()) // models/gpt
//	params, err := ddp.Attach(mesh.Group("dp"), model, ddp.Config{})
//	opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 3e-4, Clip: 1, Norm: r.World})
//	tape := tensor.NewTape(r.Device, tensor.Seed(1))
//	p, err := pp.New(pp.Config{Group: mesh.Group("pp"), Schedule: pp.OneF1B(4, 8), Stages: map[int]pp.Stage{...},
//		Tape: tape, Params: params, Optimizer: opt})
//	for range steps {
//		loss, err := p.Step()
//		err = opt.Step()
//	}
//
// A Stage makes the output of its layers. It gets the input with its types, and its tape knows the rows of the batch. Only the first stage
// needs the microbatch's input, and only the last one its labels. The loss of a microbatch is divided by the rows, or the labels that
// count, of all microbatches and ranks: Rows.Total counts those of the step.
//
//   - Types of tensors (tensor.Types) do not see the pipeline: to them, its ranks hold the same. Stages exchange nothing but messages:
//     no Function of a stage communicates over these ranks.
//   - A microbatch has a tape from its forward to its backward pass. The tapes share memory.
//   - Messages are received in the order in which they are sent, two ahead. In the last backward pass of a rank, the gradient leaves before
//     those of weights are computed, and summed over other ranks.
//   - Parameters of one name on several ranks are tied, such as the table of tokens that is also the head. Step adds up their gradients
//     after all microbatches. With fsdp, such a parameter is a unit of its own. If it is frozen, it is so on all ranks. A weight that
//     layers share is tied only if nn.ParamsOf gives it one name on all ranks.
//   - Losses are scaled by the Scaler of the optimizer, if it has one.
//   - If Freeze or Unfreeze changes whether a stage is trained at all, make another Pipeline: its messages have other types.
//   - If all parameters of a rank are frozen, its optimizer takes part in the Norm and changes nothing. A rank whose stages have none, as
//     activations alone, does not call Attach, and gives such an optimizer, too: optim.NewAdamW(nil, optim.AdamWConfig{Norm: r.World}).
//   - A stage need not use its parameters in each microbatch, as with stochastic depth. With ddp, in a step it uses each of them at least
//     once, or Config.AllowUnused is set.
//   - With fsdp, set OncePerStep: then its units are gathered and reduced once a step, and not for each microbatch of each stage. With
//     fsdp's stage 3 (ZeRO-3) it must be so, or all units must be those of Keep: gradients of weights that are put off use them again.
//   - Microbatches may have different sizes. Before a step with other rows than the one before, such as a data.Loader's first and last
//     batch, all ranks of the pipeline call SetRows. For evaluation (ForwardOnly), make another Pipeline.
//   - Dropout and blocks that are computed again (tensor.Tape.Checkpoint) need nothing else. The masks of dropout depend on the number of
//     the microbatch, too.
//   - The loss of a microbatch is a sum over its rows, divided by those of the step. A mean over the microbatch, such as x.Mean(), makes
//     the loss too large by the number of microbatches, and so does a penalty of weights, which counts once in each: divide by that number.
//     Of a loss that is such a mean, Step warns. It is no error: the sum of these means may be what is meant.
//     What mixes rows, such as BatchNorm2d, the balance loss of experts or their Capacity, sees the rows of one microbatch.
//
// Checkpoints are those of other layouts: see package ckpt. Each rank saves its layers, and with the strategy Owned it reads them alone:
//
//	st := ckpt.State{Step: step, Params: params, Optimizer: opt, Tape: tape}
//	report, err := ckpt.Load(ctx, r.World, path, &st, ckpt.LoadConfig{Strategy: ckpt.Owned})
//
// New compares the schedules of the ranks. After steps 0, 1, 4, 16, 64 and so on, and every CheckEvery, ranks compare
// the norms of gradients, tied parameters, and whether the microbatches have all rows of the batch, each once: types cannot see these.
//
// # Files
//
//	schedule.go   Schedule, its actions and their messages; named.go, vee.go: the schedules with names; check.go: Check
//	pipeline.go   Pipeline: New and Step; pass.go: the passes of a microbatch; messages.go: what stages send; ties.go: tied parameters
package pp
