// Package cuda is a tensor.Device on a CUDA GPU.
//
//	dev, err := cuda.NewDevice(0)
//	tape := tensor.NewTape(dev)
//
// The driver, the compiler NVRTC and cuBLASLt are found at run time. If one of them is missing, NewDevice returns an error that says
// which one, and how to get it. `ringo doctor` says the same.
//
// # Kernels
//
// The operations are kernels in plain CUDA C++, in kernels/*.cu. A file is compiled for one element type at a time, at the
// first launch that needs it (see internal/cuda: the code is cached on disk). The first kernel of a layer begins to compile what a
// step of training needs, on all processors but one (compileAhead). A cell of the table is made by [newKernel]: the
// kernel's file and name, the element type, and a function that fills the parameters and launches. Tables are a map per
// group of operations, merged in table.go. An empty cell is an error that names operation, type and device.
//
// Matrix products are cuBLASLt's (see internal/cuda/blas), in full float32 (never TensorFloat-32) and with float32 sums for
// 16-bit types. If cuBLASLt can fuse what follows a product, it is in the same call: bias, ReLU, for 16-bit types GELU (tanh)
// and its gradient, an addition to the product (residual connections) and the gradient of a bias. Grouped products
// are kernels that read the groups' sizes on the device, so the host does not wait for them. Grouped products and attention use tensor
// cores for 16-bit floats, with rows of a multiple of 8 elements and heads of 16, 32, ..., 128 features. For other types and
// widths they are plain kernels (groupsOnTensorCores and onTensorCores have all conditions). On compute capability 9.0, RINGO_HOPPER=1 asks
// for kernels of its own instructions (wgmma, bulk copies, tensor maps): of grouped products, of attention with heads of 48 to 128 features
// (onHopper), and of cross-entropy with rows of 32 KiB or more.
//
// Convolutions and their gradients are products whose elements are found while they are loaded, on tensor cores for 16-bit
// floats. Large ones of 16 bits first write pictures and weights again, with channels last, where a study found that faster
// (channelsLast says where). The memory for it, of up to 64 MiB half as much again, is kept for later kernels. A convolution
// that would need more than 1 GiB for it does without. So does one for which the device had no memory, then and later; its sums
// have another order.
//
// With RINGO_CUDA_TUNE=1 the first product of a shape times cuBLASLt's eight best algorithms, and the fastest is used from then on,
// in later runs too: the choice is kept beside the cached code. It may add in another order. So let all hosts of a job share the
// folder (RINGO_CUDA_CACHE) if their ranks must compute the same bits.
//
// Results do not depend on timing, on the number of multiprocessors or on atomic operations: sums have a fixed order.
// Elementwise operations, casts, dropout and optimizers have the bits of the CPU's kernels if these only add, multiply,
// divide and take square roots (the code is compiled without fused multiply-add). Sums have another order than the CPU's.
//
// # Graphs
//
// A step that capture.New records is a CUDA graph, or one graph for each part between collectives. A replay is one launch, and a
// call for each kernel whose arguments changed, such as the optimizer's. The graph keeps its memory until it is closed.
//
// # Threads
//
// CUDA's contexts belong to OS threads. The first launch by a goroutine binds it to its thread and makes the device's
// context current there; it stays bound. [Device.Bind] does that at a chosen time: ranks of package dist are bound from their
// beginning to their end. The other methods may be called by any goroutine.
//
// # Errors
//
// A kernel fails some time after its launch. The device is then lost: every later launch panics with the same
// *tensor.Failure, and every Sync returns it. It names the last launches. With RINGO_CUDA_DEBUG=1 the host waits after each launch, so
// that the error names the launch that failed. An index out of range is found in the kernel, which skips that element. The next
// Sync returns an error that names the operation and the index.
package cuda
