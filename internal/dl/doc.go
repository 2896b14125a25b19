// Package dl opens shared libraries at run time and calls their functions without cgo. So a binary built with CGO_ENABLED=0 can use CUDA,
// NVRTC, cuBLASLt, NCCL and MPI if they are installed, and runs without them if they are not.
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
// A Query looks in the usual places: the path in its environment variable, the loader's own search, the folders of a CUDA toolkit, and
// the folders of NVIDIA's wheels that pip has installed. The error says what was tried, and the loader's message for each.
//
// Arguments are only integers and pointers. Call4 and Call12 allocate nothing. C functions with floating-point or struct arguments need
// their own wrapper.
//
// Linux and macOS use purego (then the binary is linked dynamically to the C library); Windows uses LoadLibrary. With -tags nodl, and on
// other systems, every Open returns an error that says so. A Linux binary with -tags nodl is really static.
package dl
