// Command gpu is the tests and benchmarks of CUDA in one file, for a machine with a GPU and without Go.
//
//	go run ./bench/gpu pack bin/ringo-gpu      # here: builds the file
//	bin/ringo-gpu                              # there: doctor, smoke, tests, then measurements beside PyTorch
//	bin/ringo-gpu smoke                        # driver, copies, compiler, a kernel, cuBLASLt, NCCL, training; a line each
//	bin/ringo-gpu test -run GEMM tensor/cuda   # one suite
//	bin/ringo-gpu bench copy gemm              # two sections
//
// The file is a small program that unpacks what lies behind it: this program, and the test binary of every package whose tests import
// internal/cuda/emu (package bundle). Of these tests, those that use the emulator run on the real driver there (RINGO_TEST_GPU=1), and
// on the emulator in `go test`. Tests of what only the emulator does, and of more GPUs than there are, are skipped and say so.
//
// Every step of smoke, every test, and every section by Ringo ends alone: what breaks, hangs or fails leaves the others as they are. What
// the doctor finds wrong is said, and ends nothing where there is a device. The test of a kernel that CUDA stopped runs once more under
// compute-sanitizer, where that is installed, and tests of kernels on tensor cores do under its racecheck. What failed, with the lines
// that matter, and the tables of measurements and of targets come at the end, in less than 12,000 characters; everything that was
// printed is in the folder -logs, or $OUT: tests.log, rows.log, bench.log and torch.log.
//
// bench trains and measures by turns with torch_gpu.py, which is part of the file, and prints a table of both, and one of what
// is to be reached (targets.go) with the worst case of each. Times are the host's, of windows that begin and end with an idle
// device: the median of five of 100 ms, or ten calls, behind one that does not count. What fails or hangs costs its section,
// or its row, and the rows before it are kept; a Python that did is replaced. A machine without PyTorch gets ours alone.
// scripts/gpu does all of it.
//
// A case has rates only if its results are right: before the clock runs, samples are compared with what the host computes from the same
// operands (checks.go), losses of the small network with those on the CPU, and those of language models with guessing, ln(50304) ≈ 10.8.
// PyTorch gets the weights and tokens of the models: where its first loss, or that after 20 steps, differs by more than 1%, Ringo's
// rates of the section are left out.
//
// # The first run on a GPU
//
// Nothing of this has run on a GPU yet. What is estimated, for an H100 with 16 cores and PyTorch from wheels:
//
//	doctor   20 s   reads cuBLASLt from the disk for the first time, 0.5 GB; one kernel through NVRTC
//	smoke    15 s   nine lines with times: the first that failed often explains those behind it
//	tests   120 s   100 tests, 6 at once, 1 s each for the driver and the context; 60 s of NVRTC, shared by a cache on disk.
//	                PyTorch compiles GPT-2 beside them, for its cache on the disk: 60 to 100 s
//	bench   240 s   half of it PyTorch, in the order of what teaches most
//
// So one call of ten minutes does everything; -limit (9 min) ends it in order. The file is all that the machine needs:
//
//	scripts/gpu                                            # here: bin/ringo-gpu, 25 MiB at most
//	scp bin/ringo-gpu there: && ssh there 'OUT=$PWD/logs ./ringo-gpu' | tee gpu.txt
//
// In that call:
//
//  1. Read it from the top: doctor, then smoke, then the first suites (internal/cuda, internal/cuda/blas, tensor/cuda), on which the
//     others stand.
//  2. A failure of "test kernel NAME" by a number: the tolerance, or the order of additions, was the emulator's. Compare with
//     the CPU's by hand before loosening it. A failure by an error of CUDA: RINGO_CUDA_DEBUG=1 bin/ringo-gpu test -run NAME
//     tensor/cuda names the launch, compute-sanitizer the thread and the address.
//  3. A driver that answers otherwise than the emulator did (TestCaptureErrors, TestLaunchShapes): make the emulator answer like
//     it, and see which tests fail then.
//  4. Write the table into docs/BENCHMARKS.md, and what was wrong into the emulator, so that it finds the like next time.
//
// A rehearsal without a GPU takes the emulator for one. RINGO_LONG=1 go test -run TestRehearsal ./bench/gpu does it, with kernels that
// are wrong or never end, where Go is not found. By hand, set EMU_DEVICES=1, and RINGO_CUDA_LIB and its like, and EMU_SHIM, as emu.Start
// sets them; then bin/ringo-gpu -small -limit 30m.
package main
