// Package cuda is NVIDIA's driver, compiler and device memory for the rest of the
// module: no cgo, and no CUDA toolkit at build time. It opens libcuda, NVRTC and
// NVML at run time through internal/dl, and says in one sentence what is missing
// where one is not there.
//
//	d, err := cuda.Load()                       // once per process
//	dev, err := d.Open(0)                       // the device and its primary context
//	err = dev.Lock(); defer dev.Unlock()        // contexts belong to OS threads
//	s, err := dev.NewStream("compute", 0)
//	m, err := dev.Module(cuda.Source{Name: "add.cu", Text: text})
//	add, err := m.Func("add")
//	pool := dev.NewPool("activations")
//	z, err := pool.Alloc(s, 4*n)
//	args := cuda.NewArgs().Ptr(x).Ptr(y).Ptr(z).I32(n)
//	err = s.Launch(add, cuda.Dim{X: blocks}, cuda.Dim{X: 256}, 0, args)
//
// # Threads
//
// A CUDA context is current on a thread. Every call needs its device's, so a
// goroutine that works with a device locks its OS thread by Device.Lock first.
//
// # Memory
//
// Ptr is an address on the device, which Go code cannot read. A Pool gives memory
// out in the order of a stream without asking the driver; Stream.Upload and
// Download copy from and to the host, beside it when the host's memory is pinned
// (NewHost). Stats counts those copies, and each time the host waits: a steady
// training step does neither, and launches, copies, events and pools allocate
// nothing on the Go heap then.
//
// # Kernels
//
// A kernel is the text of a .cu file. ringo.cuh (Prelude), with 16-bit floats, is
// put before it; no other header is needed. NVRTC compiles it for the device's
// architecture when it is first used, and the code is kept in the user's cache
// folder (RINGO_CUDA_CACHE).
//
// # Errors
//
// An Error names the call, the device and CUDA's words. CUDA reports what goes
// wrong inside a kernel at some later call, and from then on at every call: such
// an error lists the last launches. With RINGO_CUDA_DEBUG=1 streams wait after
// every launch, so that the call that fails is the one that did it, and pools give
// each block memory of its own, which tools like compute-sanitizer can guard.
//
// # Without a GPU
//
// The tests run on internal/cuda/emu, a driver and compiler built by g++.
// RINGO_CUDA_LIB, RINGO_NVRTC_LIB and RINGO_NVML_LIB name the libraries to open;
// that is all this package knows about it.
package cuda
