// Package emu is a CUDA machine for tests: a driver and an NVRTC made of C++
// that g++ compiles when a test starts. Kernels are compiled by g++ too.
package emu
