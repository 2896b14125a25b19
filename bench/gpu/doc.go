// Command gpu is the tests and benchmarks of CUDA in one file, for a machine with a GPU and without Go.
//
//	go run ./bench/gpu pack bin/ringo-gpu      # here: builds the file
//	bin/ringo-gpu                              # there: doctor, tests, then measurements beside PyTorch
//	bin/ringo-gpu test -run GEMM tensor/cuda   # one suite
//	bin/ringo-gpu bench copy gemm              # two sections
//
// The file is this program with an archive behind it: the ringo command and the test binary of every package whose tests
// import internal/cuda/emu. They run on the real driver there (RINGO_TEST_GPU=1) and on the emulator in `go test`.
//
// bench trains and measures by turns with torch_gpu.py, which is part of the file, and prints a table of both. A machine
// without PyTorch gets ours alone. scripts/gpu does all of it.
package main
