// Package cuda is the CUDA driver, NVRTC and device memory, opened at run time
// through internal/dl: no cgo and no CUDA toolkit at build time.
package cuda
