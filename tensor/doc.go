// Package tensor holds tensors, the operations on them, and the tape that differentiates these.
//
// # A training step
//
// A [Tape] records the operations of one step and owns their memory:
//
//	tape := tensor.NewTape(dev)
//	for _, batch := range batches {
//		y := tensor.Linear(tape.Input(batch.X), tape.Use(weight), tape.Use(bias))
//		loss := tensor.MSE(y, batch.Y)
//		tape.Backward(loss)      // gradients are in weight.Grad and bias.Grad
//		err := opt.Step()        // package optim
//		tape.Reset()             // all step memory is used again
//	}
//
// There is no tape in the background. An operation runs at once, on the tape of its operands; at least one of them must
// be on a tape, put there by [Tape.Input] (a batch) or [Tape.Use] (a parameter). After the first steps, a step allocates
// nothing on the Go heap.
//
// # Handles
//
// A [Tensor] is a handle of 16 bytes, passed by value. The zero Tensor means "none". Memory is contiguous, in row-major
// order; only matrices may have a leading stride. So [Tensor.Slice] of rows or columns and [Tensor.Reshape] copy
// nothing. A handle to step memory is valid until [Tape.Reset], or until Backward has differentiated the operation that
// made it; after [Tape.Keep] it is valid until Reset in any case. Using it later panics: it never shows another
// tensor's memory. [Floats] and [Tensor.Item] copy values out, [Data] shares memory with a Go slice.
//
// The element types are Float32, Float64, BFloat16, Float16, Int32, Int64, Uint8 and Bool; operands of an operation
// have the same one (see [Tensor.Cast]). 16-bit floats are computed in float32, and each result is rounded once. Losses
// of 16-bit floats are Float32. Where the CPU has instructions for bfloat16, MatMul and Linear use them: sums are
// float32, and numbers below 2**-126 count as zeros.
//
// # Memory
//
// Backward frees activations as it goes. [Tape.Scope] frees what no gradient rule will read at the end of a part of the
// model, [Tape.Checkpoint] keeps only the result of a part and runs it again in Backward, and [NoGrad] makes a tape for
// inference. All other step memory lives until Reset. A loop without Reset uses more and more memory, in inference too.
// Several tapes may be alive at the same time, as in pipelines. A tape belongs to one goroutine; several goroutines may
// run one model at the same time if each has a device and a NoGrad tape of its own.
//
// # Parameters
//
// A [Param] is a leaf. It is made with a shape only; [Param.Make] gives it values, a function of the seed, its name and
// the index of each element. Backward writes Param.Grad: the first time it overwrites, then it adds, until the optimizer
// calls [Param.Consume]. To accumulate over k microbatches, pass [More] to all Backwards but the last, and Scale(1/k) to
// all if each loss is the mean of its own microbatch. A Backward onto a gradient that nobody consumed is an error.
// Parallel packages attach [Hooks] to parameters: they may move the value, provide the memory of the gradient, and start
// a collective when it is ready.
//
// # Devices
//
// A [Device] is memory, queues of work and a [Table] of kernels, one for each operation and element type. An empty cell
// is an error, never a fallback. [NewCPU] makes a CPU device with a number of threads; no result depends on that number, to
// the bit. With RINGO_DEBUG=1 in the environment, each kernel is compared with a plain reference, and freed memory is filled
// with NaN.
//
// A device may have memory that Go code cannot touch ([Device].Host is false), and work that is done later. Then
// nothing of a training step waits for it: operations, Backward, clipping and the optimizer only launch. The only calls
// that wait are those that bring a result to the host ([Tensor.Item], [Floats], [ToHost], [Copy]) or need one there:
// [Ctx.HostInts], the optimizer's Scaler. An index out of range becomes an error of the next of these calls. Inputs in
// host memory are copied in the order of the device's queue, and may change after Reset. Package tensortest has the
// conformance suite of devices. [Capture] makes a step of fixed shapes one launch, or a few where ranks communicate, where
// the device can.
//
// A device counts its memory by kind, now and at the most: [Device.Memory]. [NewFor] says what memory is for; of
// parameters, gradients and step memory this is known. Package plan predicts the numbers.
//
// # Failures
//
// Misuse of shapes, types and handles panics with a *[Failure], which names the operation and the shapes, and so does a
// collective that fails inside Forward or Backward. [Try] makes an error of it; dist.Run does, too. After a Failure the
// tape must be Reset. Files, devices and networks return errors.
//
// # Randomness
//
// Random numbers are a function of a key and an index ([RandomBits]); there is no hidden state. The mask of
// [Tensor.Dropout] depends on the tape's [Seed], the step, the microbatch, the layer's name and the place of the element in
// the global batch, which the [Rows] of the Input tell: a batch that is shared out over ranks has the same mask as on one.
// Losses divide by the rows of the global batch, so that their sum over ranks is the loss of the whole.
//
// # New operations
//
// [Register] adds an operation with its kernels and its gradient rule; it is then like a built-in one, in tracing,
// checking and memory. Where composing existing operations is enough, or the work is not a kernel (a collective), a
// [Function] with a Forward and a Backward is called by [Tape.Apply]. The examples show both.
//
// # Where to look
//
// A model needs Tape, Tensor and Param. Operations are methods of Tensor, and functions that return one. Further names are for those
// who write other things:
//
//   - a device: Device, Queue, Table, Kernel, Args with Operand, Memory;
//   - an engine of collectives: Raw, Fence, Pending;
//   - a package that shares parameters out: Hooks, Shard, Raw, Exec;
//   - an operation: Function with Ctx and Types, or Register with OpSpec, VJP and Node.
package tensor
