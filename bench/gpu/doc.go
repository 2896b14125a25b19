// Command gpu is the tests and benchmarks of CUDA in one file, for a machine with a GPU and without Go.
//
//	go run ./bench/gpu pack bin/ringo-gpu      # here: builds the file
//	bin/ringo-gpu                              # there: doctor, tests, then measurements beside PyTorch
//	bin/ringo-gpu test -run GEMM tensor/cuda   # one suite
//	bin/ringo-gpu-examples smoke               # trains three examples, with their times
//	bin/ringo-gpu bench copy gemm              # two sections
//
// The file is a small program that unpacks the archive at its end (package bundle): this program, and the test binary of every package
// whose tests import internal/cuda/emu. Of these it runs the tests that use the emulator. On the GPU they use the real driver
// (RINGO_TEST_GPU=1), in `go test` the emulator. Tests of things that only the emulator does, and tests that need more GPUs than there
// are, are skipped and say so. A second file has this program with some examples linked into it (overlay.go).
//
// Every test and every section with Ringo runs in its own process: if one crashes, hangs or fails, the others still run. Problems that the
// doctor finds are printed; they stop the run only if there is no device. If CUDA stopped a test's kernel, the test runs again under
// compute-sanitizer, if that is installed. Tests of kernels on tensor cores also run under its racecheck. At the end come the failures,
// with the lines that matter, and the tables of measurements and of targets, in less than 12,000 characters. All output is in the folder
// -logs, or $OUT: tests.log, rows.log, bench.log and torch.log.
//
// bench trains and measures in turn with torch_gpu.py, which is part of the file. It prints a table of both, and a table of the targets
// (targets.go) with the worst case of each. Times are the host's, for windows that begin and end with an idle device: the median of five
// windows of 100 ms, or of ten calls, after one that does not count. A failure costs its section or its row; rows before it are kept, and
// Python is restarted. Without PyTorch, only Ringo is measured. scripts/gpu does all of this.
//
// A case has rates only if its results are right. Before the measurement, samples are compared with results that the host computes from
// the same operands (package measure). Losses of the small networks are compared with those on the CPU. The first loss of language models
// must be that of random logits, ln(50304) + 768·0.02²/2 ≈ 10.98: more than that of guessing, 10.83. The loss after captured steps must be
// that after as many plain ones; only about that if algorithms of products were chosen by time (RINGO_CUDA_TUNE=1, rows "tuned"). PyTorch
// gets the weights and tokens of the models. If its first loss differs by more than 1%, Ringo's rates of the section are left out; so they
// are if the loss after some steps differs by that, or by a fifth of what it fell. These are 20 steps in float32, but 5 at a rate of 1e-5
// in bfloat16: after 20 steps at 3e-4 without a warm-up, its losses are chaotic, and PyTorch's own float32 and autocast differ by 9%.
//
// Tests and measurements ask for the kernels of compute capability 9.0 alone (RINGO_HOPPER=1), which users do not get by default: they have
// run on the emulator only. The sections attention and grouped have figures and checks of the others, too, as the variant RINGO_HOPPER=0,
// cross-entropy in rows has not; with that in the environment, everything runs without them: RINGO_HOPPER=0 bin/ringo-gpu test tensor/cuda.
//
// The sections stages and ring compare two ranks, with a GPU each, with one rank (package ranks). On a machine with one GPU, they say so.
//
// # A run on a GPU
//
// The first was on 2026-11-26, with 194 tests (docs/STATUS.md). Its checks of GPT-2's losses were others, so that it had no rates for it.
// These are estimates, for an H100 with 16 cores and PyTorch from wheels:
//
//	doctor   20 s   reads cuBLASLt from the disk for the first time, 0.5 GB; one kernel through NVRTC
//	tests   180 s   200 tests, 6 at once, 1 s each for the driver and the context; 60 s of NVRTC, shared by a cache on disk.
//	                PyTorch compiles GPT-2 at the same time, for its cache on the disk: 60 to 100 s
//	smoke    30 s   three examples, each with 4 to 5 s of NVRTC the first time
//	bench   270 s   half of it PyTorch; the sections that say most come first
//
// So one call of ten minutes does everything; -limit (9 min) ends it in order. The file is all that the machine needs:
//
//	scripts/gpu                                            # here: bin/ringo-gpu, 30 MiB at most
//	scp bin/ringo-gpu there: && ssh there 'OUT=$PWD/logs ./ringo-gpu' | tee gpu.txt
//
// After that call:
//
//  1. Read the output from the top: doctor, then the first suites (internal/cuda, internal/cuda/blas, tensor/cuda), on which the others
//     depend.
//  2. If "test kernel NAME" fails by a wrong number, the tolerance, or the order of additions, fitted only the emulator. Compare with the
//     CPU's result by hand before you increase the tolerance. If it fails by an error of CUDA, RINGO_CUDA_DEBUG=1 bin/ringo-gpu test -run
//     NAME tensor/cuda names the launch, and compute-sanitizer the thread and the address.
//  3. If the driver answers differently from the emulator (TestCaptureErrors, TestLaunchShapes), change the emulator, and see which tests
//     fail then.
//  4. Write the table into docs/BENCHMARKS.md, what ran into docs/STATUS.md. Make the emulator show the errors, to find such next time.
//
// In a rehearsal without a GPU, the emulator stands for one. RINGO_LONG=1 go test -run TestLongRehearsal ./bench/gpu does it, without Go
// in the path, and with kernels that are wrong or never end. By hand, set EMU_DEVICES=1, and RINGO_CUDA_LIB and so on, and EMU_SHIM, as
// emu.Start sets them; then run bin/ringo-gpu -small -limit 30m.
package main
