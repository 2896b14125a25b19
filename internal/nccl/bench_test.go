package nccl_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/nccl"
)

// caller is the same loop as BenchmarkCall in C: it prints nanoseconds a call.
const caller = `
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
typedef struct { char b[128]; } Id;
typedef struct { size_t size; unsigned magic, version; int blocking, cga, min, max; char* net; int share, pad; } Config;
int main(int argc, char** argv) {
  void* h = dlopen(argv[1], RTLD_NOW);
  void* cuda = dlopen(getenv("RINGO_CUDA_LIB"), RTLD_NOW);
  int (*retain)(void**, int) = dlsym(cuda, "cuDevicePrimaryCtxRetain"), (*push)(void*) = dlsym(cuda, "cuCtxPushCurrent_v2");
  int (*id)(Id*) = dlsym(h, "ncclGetUniqueId"), (*init)(void**, int, Id, int, Config*) = dlsym(h, "ncclCommInitRankConfig");
  int (*reduce)(void*, void*, size_t, int, int, void*, void*) = dlsym(h, "ncclAllReduce");
  void *ctx, *comm;
  Id i;
  Config c = {48, 0xcafebeef, 21800, 1, 1 << 31, 1 << 31, 1 << 31, 0, 1 << 31, 0};
  if (retain(&ctx, 0) || push(ctx) || id(&i) || init(&comm, 1, i, 0, &c)) return 1;
  long n = atol(argv[2]);
  struct timespec a, b;
  clock_gettime(CLOCK_MONOTONIC, &a);
  for (long k = 0; k < n; k++) if (reduce(0, 0, 0, 7, 0, comm, 0)) return 2;
  clock_gettime(CLOCK_MONOTONIC, &b);
  printf("%f", ((b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec)) / n);
}`

// BenchmarkCall is the host's part of one ncclAllReduce of one rank, through this package and from C, with the emulated
// library and nothing to move: what reaching NCCL without cgo costs.
func BenchmarkCall(b *testing.B) {
	driver := emu.Start(b, emu.Config{})
	lib, err := nccl.Load()
	require.NoError(b, err)
	dev, err := driver.Open(0)
	require.NoError(b, err)
	require.NoError(b, dev.Lock())
	defer dev.Unlock()
	id, err := lib.UniqueID()
	require.NoError(b, err)
	comm, res := lib.Init(1, &id, 0)
	require.NoError(b, lib.Err("ncclCommInitRankConfig", res))
	defer comm.Destroy()
	b.Run("go", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if res := comm.AllReduce(0, 0, 0, nccl.Float32, nccl.Sum, 0); res != nccl.Success {
				b.Fatal(lib.Err("ncclAllReduce", res))
			}
		}
	})
	b.Run("c", func(b *testing.B) {
		dir := b.TempDir()
		source, program := filepath.Join(dir, "caller.c"), filepath.Join(dir, "caller")
		require.NoError(b, os.WriteFile(source, []byte(caller), 0o644))
		out, err := exec.Command("gcc", "-O2", "-o", program, source, "-ldl").CombinedOutput()
		require.NoError(b, err, string(out))
		var ns float64
		for b.Loop() {
			out, err := exec.Command(program, os.Getenv("RINGO_NCCL_LIB"), "1000000").Output()
			require.NoError(b, err)
			_, err = fmt.Sscan(string(out), &ns)
			require.NoError(b, err)
		}
		b.ReportMetric(ns, "ns/call")
	})
}
