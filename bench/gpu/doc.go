// Command gpu is the tests and benchmarks of CUDA in one file, for a machine with a GPU and without Go.
//
//	go run ./bench/gpu pack bin/ringo-gpu      # here: builds the file
//	bin/ringo-gpu                              # there: doctor, smoke, tests, then measurements beside PyTorch
//	bin/ringo-gpu smoke                        # driver, copies, compiler, a kernel, cuBLASLt, NCCL, training; a line each
//	bin/ringo-gpu test -run GEMM tensor/cuda   # one suite
//	bin/ringo-gpu bench copy gemm              # two sections
//
// The file is this program with an archive behind it (a tar in one zstd stream): the test binary of every package whose tests
// import internal/cuda/emu. Of these tests, those that use the emulator run on the real driver there (RINGO_TEST_GPU=1), and on
// the emulator in `go test`. Tests of what only the emulator does, and of more GPUs than there are, are skipped and say so.
//
// Every test, and every section by Ringo, is a process of its own with a time limit: what breaks or hangs one leaves the others
// alone. The test of a kernel that CUDA stopped runs once more under compute-sanitizer, where that is installed. What failed,
// with the lines that matter, and the tables of measurements and of targets come at the end, in less than 12,000 characters;
// everything that was printed is in the folder -logs, or $OUT: tests.log, rows.log, bench.log and torch.log.
//
// bench trains and measures by turns with torch_gpu.py, which is part of the file, and prints a table of both, and one of what
// is to be reached (targets.go) with the worst case of each. Times are the host's, of windows that begin and end with an idle
// device: the median of five of 100 ms, or ten calls, behind one that does not count. What fails or hangs costs its section,
// or its row, and the rows before it are kept; a Python that did is replaced. A machine without PyTorch gets ours alone.
// scripts/gpu does all of it.
//
// # The first run on a GPU
//
// Nothing of this has run on a GPU yet. What is estimated, for an H100 with 16 cores and PyTorch from wheels:
//
//	doctor   20 s   reads cuBLASLt from the disk for the first time, 0.5 GB; one kernel through NVRTC
//	smoke    15 s   nine lines with times: the first that failed explains everything behind it
//	tests   120 s   100 tests, 6 at once, 1 s each for the driver and the context; 60 s of NVRTC, shared by a cache on disk
//	bench   300 s   half of it PyTorch: 10 s to import, 60 to 100 s for torch.compile of GPT-2
//
// So one call of ten minutes does everything; -limit (9 min) ends it in order, and what there are targets for comes first. In
// that call:
//
//  1. bin/ringo-gpu -logs DIR. Read it from the top: doctor, then smoke, then the first suites (internal/cuda,
//     internal/cuda/blas, tensor/cuda), on which the others stand.
//  2. A failure of "test kernel NAME" by a number: the tolerance, or the order of additions, was the emulator's. Compare with
//     the CPU's by hand before loosening it. A failure by an error of CUDA: RINGO_CUDA_DEBUG=1 bin/ringo-gpu test -run NAME
//     tensor/cuda names the launch, compute-sanitizer the thread and the address.
//  3. A driver that answers otherwise than the emulator did (TestCaptureErrors, TestLaunchShapes): make the emulator answer like
//     it, and see which tests fail then.
//  4. Write the table into docs/BENCHMARKS.md, and what was wrong into the emulator, so that it finds the like next time.
//
// A rehearsal without a GPU takes the emulator for one: RINGO_TEST_GPU=1, EMU_DEVICES=1, and RINGO_CUDA_LIB and its like, and
// EMU_SHIM, as emu.Start sets them; then bin/ringo-gpu test.
package main
