// The loop of measureNCCL in C: caller LIBCUDA LIBNCCL DEVICE WINDOWS CALLS COUNT prints the seconds of each window.
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct { char bytes[128]; } Id;
typedef struct { size_t size; unsigned magic, version; int blocking, cga, min_ctas, max_ctas; char* net; int share; } Config;
enum { Float32 = 7, Sum = 0 };

static void* there(void* found) {
  if (!found) fprintf(stderr, "%s\n", dlerror()), exit(1);
  return found;
}
static void* get(void* library, const char* name) { return there(dlsym(library, name)); }
static void* library(const char* path) { return there(dlopen(path, RTLD_NOW)); }

#define MUST(call) do { int r_ = (call); if (r_) fprintf(stderr, "%s: %d\n", #call, r_), exit(1); } while (0)

int main(int argc, char** argv) {
  if (argc != 7) return fprintf(stderr, "6 arguments\n"), 1;
  void *cuda = library(argv[1]), *nccl = library(argv[2]);
  int device = atoi(argv[3]), windows = atoi(argv[4]);
  long calls = atol(argv[5]), count = atol(argv[6]);
  int (*init)(unsigned) = get(cuda, "cuInit"), (*retain)(void**, int) = get(cuda, "cuDevicePrimaryCtxRetain");
  int (*push)(void*) = get(cuda, "cuCtxPushCurrent_v2"), (*stream)(void**, unsigned, int) = get(cuda, "cuStreamCreateWithPriority");
  int (*memory)(void**, size_t) = get(cuda, "cuMemAlloc_v2"), (*sync)(void*) = get(cuda, "cuStreamSynchronize");
  int (*unique)(Id*) = get(nccl, "ncclGetUniqueId"), (*join)(void**, int, Id, int, Config*) = get(nccl, "ncclCommInitRankConfig");
  int (*destroy)(void*) = get(nccl, "ncclCommDestroy");
  int (*reduce)(void*, void*, size_t, int, int, void*, void*) = get(nccl, "ncclAllReduce");

  void *ctx, *s, *x, *comm;
  Id id;
  Config config = {sizeof config, 0xcafebeef, 21800, 1, INT_MIN, INT_MIN, INT_MIN, 0, INT_MIN};
  MUST(init(0));
  MUST(retain(&ctx, device));
  MUST(push(ctx));
  MUST(stream(&s, 1, 0));
  MUST(memory(&x, 256));
  MUST(unique(&id));
  MUST(join(&comm, 1, id, 0, &config));
  for (int w = 0; w <= windows; w++) {  // the first one warms up
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (long i = 0; i < calls; i++) MUST(reduce(x, x, count, Float32, Sum, comm, s));
    MUST(sync(s));
    clock_gettime(CLOCK_MONOTONIC, &b);
    if (w > 0) printf("%.9f\n", (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9);
  }
  MUST(destroy(comm));
  return 0;
}
