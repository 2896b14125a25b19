// Package tensor holds tensors, the operations on them, and the tape that differentiates these.
//
// # A training step
//
// A [Tape] records the operations of one step and owns their memory:
//
//	tape := tensor.NewTape(dev)
//	for _, batch := range batches {
//		y := tensor.Linear(tape.Input(batch.X), tape.Use(weight), tape.Use(bias))
//		loss := ops.MSE(y, batch.Y)
//		tape.Backward(loss)      // gradients are in weight.Grad and bias.Grad
//		err := opt.Step()        // package optim
//		tape.Reset()             // all step memory is used again
//	}
//
// There is no global tape. An operation runs at once, on the tape of its operands. At least one operand must be on a tape:
// [Tape.Input] puts a batch there, and [Tape.Use] a parameter. After the first steps, a step allocates nothing on the Go heap.
//
// # Handles
//
// A [Tensor] is a handle of 16 bytes, passed by value. The zero Tensor means "none". Memory is contiguous, in row-major
// order; only matrices may have a leading stride. So [Tensor.Slice] of rows or columns and [Tensor.Reshape] copy
// nothing. A handle to step memory is valid until [Tape.Reset], or until Backward has differentiated the operation that
// made it. After [Tape.Keep] it is valid until Reset in any case. A later use panics: a handle never shows another
// tensor's memory. [Floats] and [Tensor.Item] copy values out. [Data] shares memory with a Go slice.
//
// The element types are Float32, Float64, BFloat16, Float16, Int32, Int64, Uint8 and Bool; operands of an operation
// have the same one (see [Tensor.Cast]). 16-bit floats are computed in float32, and each result is rounded once. Losses
// of 16-bit floats are Float32. Where the CPU has instructions for bfloat16, MatMul, Linear and attention use them: sums
// are float32, and numbers below 2**-126 count as zeros. Attention then rounds probabilities, and gradients of scores,
// to bfloat16, too, before it multiplies them.
//
// # Memory
//
// Backward frees activations as it goes. [Tape.Scope] frees what no gradient rule will read at the end of a part of the
// model, [Tape.Checkpoint] keeps only the result of a part and runs it again in Backward, and [NoGrad] makes a tape for
// inference. All other step memory lives until Reset. A loop without Reset uses more and more memory, in inference too.
// Several tapes may be alive at the same time, as in pipelines. A tape belongs to one goroutine; several goroutines may
// run one model at the same time if each has a device and a NoGrad tape of its own.
//
// # Types over ranks
//
// On several ranks, a tensor of a tape has a [Kind] along each axis of the job (all together: [Types]). It says how the values of the ranks
// belong together. Each operation computes the kinds of its output, and refuses inputs that do not fit. docs/TYPES.md explains it.
//
// # Parameters
//
// A [Param] is a leaf. It is made with a shape only. [Param.Make] gives it values, which depend on the seed, its name and
// the index of each element. Backward writes Param.Grad: the first time it overwrites, then it adds, until the optimizer
// calls [Param.Consume]. To accumulate over k microbatches, pass [More] to all Backwards but the last, and Scale(1/k) to
// all of them if each loss is the mean of its own microbatch. After a Backward without More, the next one is an error until
// the optimizer has consumed the gradients. Parallel packages attach [Hooks] to parameters: these may move the value, provide the
// memory of the gradient, and start a collective when it is ready.
//
// # Devices
//
// A [Device] has memory, queues of work, and a [Table] of kernels, one for each operation and element type. A missing kernel
// is an error: there is no fallback. The CPU device is package cpu: cpu.New makes one. With RINGO_DEBUG=1 in the environment, each
// kernel is compared with a plain reference, and freed memory is filled with NaN.
//
// A device may have memory that Go code cannot read ([Device].Host is false), and may do its work later. Then
// a training step does not wait for it: operations, Backward, clipping and the optimizer only launch. The only calls
// that wait are those that bring a result to the host ([Tensor.Item], [Floats], [ToHost], [Copy]) or need one there
// ([Ctx.HostInts], the optimizer's Scaler). An index out of range becomes an error of the next of these calls. Inputs in
// host memory are copied in the order of the device's queue, and may change after Reset. Package tensortest has the
// conformance suite of devices. Package capture turns a step of fixed shapes into one launch, or into a few if ranks communicate, on
// devices that can do it.
//
// [Device.Memory] counts the memory of a device by its use (package memory), now and at the peak. [NewFor] says what new memory is for.
// Parameters, gradients and step memory are counted as such already. Package plan predicts the numbers.
//
// # Failures
//
// Wrong shapes, types and handles panic with a *[Failure], which names the operation and the shapes. A collective that fails inside
// Forward or Backward does the same. [Try] and dist.Run turn a Failure into an error. After a Failure the tape must be Reset.
// Functions that use files, devices and networks return errors.
//
// # Randomness
//
// Random numbers are a function of a key and an index ([RandomBits]), without hidden state. The mask of
// dropout (package ops) depends on the tape's [Seed], the step, the microbatch, the layer's name and the place of the element in
// the global batch. The [Rows] of the Input say this place, so a batch that is divided over ranks has the same mask as on one
// rank. Losses divide by the rows of the global batch, so that their sum over ranks is the loss of the whole batch.
//
// # New operations
//
// If existing operations are enough, or the work is not a kernel (a collective), write a [Function] with a Forward and a Backward, and
// call it with [Tape.Apply]. Otherwise [Register] adds an operation with its gradient rule, and cpu.Register its kernels. It is then like a
// built-in one in tracing, checking and memory. The examples show both. Package ops has the operations of layers; it is made of
// Register and what custom.go has for it.
//
// # Where to look
//
// A model needs Tape, Tensor and Param. Operations are methods of Tensor, and functions that return a Tensor. To write other things,
// look at:
//
//   - a device: Device, Queue, Table, Kernel, Args with Operand;
//   - an engine of collectives: Raw, Fence, Pending;
//   - a package that shares parameters out: Hooks, Shard, Raw, Exec;
//   - an operation: Function with Ctx and Types, or Register with OpSpec, VJP, Node and the methods of Op. Its kernels: cpu.Register,
//     cuda.Register.
//
// # Files
//
// Read tensor.go, tape.go, node.go, op.go, backward.go, param.go and leaf.go in this order: a call, its node, Backward, a parameter. The
// others:
//
//   - operations: builtin.go (their table), elementwise.go and elementwise_rules.go, shape.go, reduce.go, matmul.go, linear.go, fused.go,
//     detach.go, random.go, offtape.go (without a tape), custom.go and raw.go (what other packages need to write theirs);
//   - Functions: function.go; types.go (Typed), moves.go (Moves), byrows.go (ByRows), arriving.go (Fetcher), over.go (Late);
//   - variants of Backward: checkpoint.go (Scope, Once, Checkpoint), ends.go (Leaf, BackwardFrom, weight gradients that are put off),
//     second.go (second results), spent.go (what an earlier Backward has freed), over.go (gradients in the memory of logits);
//   - types over ranks: types.go, types_rules.go, types_error.go; places.go and places_ops.go (where the rows are);
//     rows.go (inputs, means, random numbers); place.go (parameters); origin.go (for other ranks);
//   - what ranks compare of a step: agreement.go, fed.go (inputs), factors.go and alike.go (numbers of the host), ownrows.go,
//     constants.go, portions.go, repeat.go;
//   - memory and devices: dtype.go, storage.go, stepmemory.go, device.go, exec.go (launches), host.go, transfer.go, recording.go (captured
//     steps); stored.go (parameters in files), failure.go.
package tensor
