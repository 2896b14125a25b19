// Package cuda is NVIDIA's driver, compiler and device memory for the rest of the
// module, without cgo, and without a CUDA toolkit at build time. It opens libcuda,
// NVRTC and NVML at run time through internal/dl. If one is missing, the error says
// so in one sentence.
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
// A CUDA context is current on a thread, and every call needs the one of its
// device. So a goroutine that uses a device first locks its OS thread with
// Device.Lock.
//
// # Memory
//
// Ptr is an address on the device, which Go code cannot read. A Pool gives out
// memory in the order of a stream, without a call of the driver. Stream.Upload and
// Download copy from and to the host; if the host's memory is pinned (NewHost), the
// host does not wait. Stats counts these copies, and each time the host waits. In
// steady state a training step does neither, and launches, copies, events and pools
// then allocate nothing on the Go heap.
//
// # Kernels
//
// A kernel is the text of a .cu file. ringo.cuh (Prelude), which has 16-bit floats,
// is put before it; no other header is needed. NVRTC compiles it for the device's
// architecture when it is first used, at the same time for goroutines that need
// different code. The code is cached in the user's cache folder (RINGO_CUDA_CACHE).
//
// # Errors
//
// An Error has the call, the device and CUDA's text. CUDA reports an error inside a
// kernel at some later call, and from then on at every call: such an error lists
// the last launches. With RINGO_CUDA_DEBUG=1, streams wait after every launch, so
// the call that fails is the one with the error. Pools then get each block from the
// driver, so tools like compute-sanitizer can check its bounds.
//
// # Without a GPU
//
// The tests run on internal/cuda/emu, a driver and compiler built by g++.
// RINGO_CUDA_LIB, RINGO_NVRTC_LIB and RINGO_NVML_LIB name the libraries to open;
// this package knows nothing else about the emulator.
package cuda
