// Package capture launches training steps of fixed shapes as a whole, without the host's work for each operation, like CUDA graphs and
// torch.cuda.graph. On a device that can record (a tensor.Grapher, such as a CUDA GPU), the function of a [Step] runs twice, is recorded
// the third time, and is replayed from then on. Other devices always run the function: the results are the same. A step with collectives
// becomes several launches, one between two collectives: in each replay the host starts the collectives and waits for them, as the function
// does. Ranks need not record at the same time.
//
//	step := capture.New(dev, func(in ...tensor.Tensor) error {
//		loss := nn.CrossEntropy(model.Forward(tape.Input(in[0])), in[1])
//		tape.Backward(loss)
//		tensor.Copy(last, loss) // to read it later
//		err := opt.Step()
//		tape.Reset()
//		return err
//	})
//	defer step.Close()
//	err := step.Run(batch.X, batch.Y)
//
// A replay launches the same work again, on the same memory. The Go code of the function does not run. Only the values that a step changes
// on the host and that the device needs are updated: the step number of a tape's random keys, the learning rate and the step count of an
// optimizer. All other values that the function computes on the host keep their value from the recording. Tensors that the function leaves
// on a tape do not exist after Run: copy results to tensors outside, and read these after Run. The function must use the gradients that it
// makes. Freeze or Unfreeze of a parameter between replays is an error.
//
// The function must not wait for the device: no Item, no optim.Scaler, no collective on host memory, no tensor.Ctx.HostInts (which a
// mixture of experts without a capacity needs). It must wait for all collectives that it starts. Its third run must not need more device
// memory than the first two. What breaks these rules is a Failure that says so, and the step cannot be used any more. This is so, too, when
// a collective fails in a replay: Run returns its error.
//
// With RINGO_DEBUG=1 the function always runs.
//
// What a replay does is a tensor.Recording: operations and collectives add to it while the function is recorded.
package capture
