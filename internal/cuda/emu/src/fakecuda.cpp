// libcuda.so.1 stand-in: device memory = host memory, "cubin" = the bytes of a .so built by fakenvrtc.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <mutex>
#include <map>
#include <string>
#define API extern "C" __attribute__((visibility("default")))
typedef int R; typedef uint64_t P;
static std::mutex mu; static std::map<P, size_t> allocs; static int ndev() { const char* e = getenv("EMU_DEVICES"); return e ? atoi(e) : 2; }
static thread_local void* ctx;
API R cuInit(unsigned) { return 0; }
API R cuDriverGetVersion(int* v) { *v = 13000; return 0; }
API R cuDeviceGetCount(int* n) { *n = ndev(); return 0; }
API R cuDeviceGet(int* d, int i) { if (i < 0 || i >= ndev()) return 101; *d = i; return 0; }
API R cuDeviceGetName(char* s, int n, int d) { snprintf(s, n, "CPU emulator %d", d); return 0; }
API R cuDeviceTotalMem_v2(size_t* n, int) { *n = (size_t)4 << 30; return 0; }
API R cuDeviceGetAttribute(int* v, int a, int) {
  switch (a) { case 75: *v = 9; break; case 76: *v = 0; break; case 16: *v = 4; break; case 1: *v = 1024; break; case 10: *v = 32; break; case 97: *v = 232448; break; default: *v = 0; } return 0; }
API R cuDevicePrimaryCtxRetain(void** c, int d) { *c = (void*)(uintptr_t)(0x1000 + d); return 0; }
API R cuDevicePrimaryCtxRelease_v2(int) { return 0; }
API R cuCtxSetCurrent(void* c) { ctx = c; return 0; }
API R cuCtxGetCurrent(void** c) { *c = ctx; return 0; }
API R cuCtxSynchronize() { return 0; }
API R cuMemAlloc_v2(P* p, size_t n) {
  if (!ctx) return 201; if (!n) return 1;
  void* q = aligned_alloc(256, (n + 255) & ~(size_t)255); if (!q) return 2;
  memset(q, 0xff, n); *p = (P)q; std::lock_guard<std::mutex> l(mu); allocs[*p] = n; return 0; }
API R cuMemFree_v2(P p) { std::lock_guard<std::mutex> l(mu); if (!allocs.erase(p)) return 1; free((void*)p); return 0; }
static bool in(P p, size_t n) { std::lock_guard<std::mutex> l(mu); auto i = allocs.upper_bound(p); if (i == allocs.begin()) return false; --i; return p + n <= i->first + i->second; }
API R cuMemcpyHtoD_v2(P d, const void* s, size_t n) { if (!in(d, n)) return 1; memcpy((void*)d, s, n); return 0; }
API R cuMemcpyDtoH_v2(void* d, P s, size_t n) { if (!in(s, n)) return 1; memcpy(d, (void*)s, n); return 0; }
API R cuMemcpyDtoD_v2(P d, P s, size_t n) { if (!in(d, n) || !in(s, n)) return 1; memmove((void*)d, (void*)s, n); return 0; }
API R cuMemcpyHtoDAsync_v2(P d, const void* s, size_t n, void*) { return cuMemcpyHtoD_v2(d, s, n); }
API R cuMemcpyDtoHAsync_v2(void* d, P s, size_t n, void*) { return cuMemcpyDtoH_v2(d, s, n); }
API R cuMemsetD8_v2(P d, unsigned char v, size_t n) { if (!in(d, n)) return 1; memset((void*)d, v, n); return 0; }
API R cuMemGetInfo_v2(size_t* f, size_t* t) { *t = (size_t)4 << 30; *f = *t; std::lock_guard<std::mutex> l(mu); for (auto& a : allocs) *f -= a.second; return 0; }
API R cuStreamCreate(void** s, unsigned) { *s = malloc(1); return 0; }
API R cuStreamSynchronize(void*) { return 0; }
API R cuStreamDestroy_v2(void* s) { free(s); return 0; }
API R cuEventCreate(void** e, unsigned) { *e = malloc(1); return 0; }
API R cuEventRecord(void*, void*) { return 0; }
API R cuEventSynchronize(void*) { return 0; }
API R cuStreamWaitEvent(void*, void*, unsigned) { return 0; }
API R cuEventDestroy_v2(void* e) { free(e); return 0; }
API R cuModuleLoadDataEx(void** m, const void* img, unsigned, int*, void**) {
  if (memcmp(img, "EMUCUBIN", 8)) return 200;
  uint64_t n; memcpy(&n, (const char*)img + 8, 8);
  char path[] = "/tmp/ringo-emu-XXXXXX"; int fd = mkstemp(path); if (fd < 0) return 200; const char* p = (const char*)img + 16;
  while (n) { ssize_t k = write(fd, p, n); if (k <= 0) return 200; p += k; n -= k; }
  *m = dlopen(path, RTLD_NOW | RTLD_LOCAL); close(fd); unlink(path);
  if (!*m) { fprintf(stderr, "fakecuda: %s\n", dlerror()); return 200; } return 0; }
API R cuModuleLoadData(void** m, const void* img) { return cuModuleLoadDataEx(m, img, 0, 0, 0); }
API R cuModuleUnload(void* m) { dlclose(m); return 0; }
API R cuModuleGetFunction(void** f, void* m, const char* name) { *f = dlsym(m, (std::string("emu_launch_") + name).c_str()); return *f ? 0 : 500; }
API R cuFuncSetAttribute(void*, int, int) { return 0; }
API R cuLaunchKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned sh, void*, void** params, void**) {
  if (!ctx) return 201; unsigned g[3] = {gx, gy, gz}, b[3] = {bx, by, bz};
  return ((int (*)(const unsigned*, const unsigned*, unsigned, void**))f)(g, b, sh, params); }
API R cuGetErrorName(R r, const char** s) { *s = r == 0 ? "CUDA_SUCCESS" : r == 719 ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR"; return 0; }

API R cuGetErrorString(R r, const char** s) { *s = "an error of the emulator"; return 0; }
API R cuDeviceGetPCIBusId(char* s, int n, int d) { snprintf(s, n, "0000:%02x:00.0", d + 1); return 0; }
API R cuDeviceCanAccessPeer(int* c, int, int) { *c = 1; return 0; }
static thread_local void* stack_[64]; static thread_local int depth_;
API R cuCtxPushCurrent_v2(void* c) { if (depth_ == 64) return 1; stack_[depth_++] = ctx; ctx = c; return 0; }
API R cuCtxPopCurrent_v2(void** c) { if (!depth_) return 201; *c = ctx; ctx = stack_[--depth_]; return 0; }
API R cuCtxEnablePeerAccess(void*, unsigned) { return 0; }
API R cuPointerGetAttribute(void* v, int, P p) { if (!in(p, 1)) return 1; *(int*)v = 0; return 0; }
API R cuMemHostAlloc(void** p, size_t n, unsigned) { *p = malloc(n); return 0; }
API R cuMemFreeHost(void* p) { free(p); return 0; }
API R cuMemcpyDtoDAsync_v2(P d, P s, size_t n, void*) { return cuMemcpyDtoD_v2(d, s, n); }
API R cuMemcpyPeerAsync(P d, void*, P s, void*, size_t n, void*) { return cuMemcpyDtoD_v2(d, s, n); }
API R cuMemsetD8Async(P d, unsigned char v, size_t n, void*) { return cuMemsetD8_v2(d, v, n); }
API R cuMemsetD32Async(P d, unsigned v, size_t n, void*) { if (!in(d, 4 * n)) return 1; for (size_t i = 0; i < n; i++) ((unsigned*)d)[i] = v; return 0; }
API R cuStreamCreateWithPriority(void** s, unsigned f, int) { return cuStreamCreate(s, f); }
API R cuStreamQuery(void*) { return 0; }
API R cuStreamBeginCapture_v2(void*, int) { return 801; }
API R cuStreamEndCapture(void*, void**) { return 801; }
API R cuEventQuery(void*) { return 0; }
API R cuEventElapsedTime(float* ms, void*, void*) { *ms = 0; return 0; }
API R cuFuncGetAttribute(int* v, int, void*) { *v = 0; return 0; }
API R cuGraphInstantiateWithFlags(void**, void*, uint64_t) { return 801; }
API R cuGraphGetNodes(void*, void**, size_t*) { return 801; }
API R cuGraphLaunch(void*, void*) { return 801; }
API R cuGraphDestroy(void*) { return 0; }
API R cuGraphExecDestroy(void*) { return 0; }
API R cuOccupancyMaxActiveBlocksPerMultiprocessor(int* n, void*, int, size_t) { *n = 2; return 0; }
