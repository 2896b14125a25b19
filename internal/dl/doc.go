// Package dl opens shared libraries at run time and calls their functions
// without cgo: how a binary built with CGO_ENABLED=0 reaches CUDA, NVRTC,
// cuBLASLt, NCCL and MPI where they are installed, and runs without them where
// they are not.
//
//	lib, err := dl.Query{
//		What:  "NVRTC, the CUDA compiler",
//		Env:   "RINGO_NVRTC_LIB",
//		Names: []string{"libnvrtc.so.13", "libnvrtc.so.12"},
//		Wheels: []string{"cu13/lib", "cuda_nvrtc/lib"},
//	}.Open()
//	version, err := lib.Sym("nvrtcVersion")     // an address, resolved once
//	rc := dl.Call(version, uintptr(unsafe.Pointer(&major)), uintptr(unsafe.Pointer(&minor)))
//
// A Query looks where such libraries are: the path in its environment variable,
// the loader's own search, the folders of a CUDA toolkit, and the folders into
// which pip unpacks NVIDIA's wheels. What was tried, and the loader's words
// about each, are in the error.
//
// Calls pass integers and pointers only; Call4 and Call12 allocate nothing. C
// functions with floating-point or struct arguments need a wrapper of their own.
//
// Linux and macOS go through purego (the binary is then linked to the C library
// dynamically), Windows through LoadLibrary. With -tags nodl, and on systems
// without either, every Open is an error that says so; such a Linux binary is
// truly static.
package dl
