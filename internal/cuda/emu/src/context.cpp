// Devices, contexts and errors.
#include "core.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <atomic>

State S;

// Contexts are handles of a device each; every thread has a stack of them.
static constexpr uintptr_t ContextBase = 0x1000;
static thread_local int stack[16], depth;

int current() { return depth ? stack[depth - 1] : -1; }

Result usable(int* device) {
  *device = current();
  if (*device < 0) return InvalidContext;
  return S.devices[*device].error;
}

int device_of_context(void* ctx) {
  uintptr_t d = (uintptr_t)ctx - ContextBase;
  return d < MaxDevices ? (int)d : -1;
}

static EmuConfig config() {
  Lock l;
  return S.config;
}

// EMU_DEVICES is for programs that take the emulator for a GPU, without Start.
static std::atomic<bool> initialized;
API Result cuInit(unsigned flags) {
  if (flags) return InvalidValue;
  install_handler();
  Lock l;
  if (const char* n = getenv("EMU_DEVICES"); n && !initialized) S.config.devices = atoi(n);
  if (!S.config.devices) return NoDevice;
  initialized = true;
  return Ok;
}
static Result device_exists(int d) { return !initialized ? NotInitialized : d < 0 || d >= (int)config().devices ? InvalidDevice : Ok; }

API Result cuDriverGetVersion(int* v) { *v = (int)config().version; return Ok; }
API Result cuDeviceGetCount(int* n) {
  *n = (int)config().devices;
  return initialized ? Ok : NotInitialized;
}
API Result cuDeviceGetName(char* s, int n, int d) {
  snprintf(s, n, "CPU emulator %d", d);
  return device_exists(d);
}
API Result cuDeviceTotalMem_v2(size_t* n, int d) {
  *n = config().memory;
  return device_exists(d);
}
API Result cuDeviceGetPCIBusId(char* s, int n, int d) {
  constexpr int Length = 13;  // with its end
  if (n < Length) return InvalidValue;
  snprintf(s, n, "0000:%02x:00.0", d + 1);
  return device_exists(d);
}
API Result cuDeviceGetAttribute(int* v, int a, int d) {
  static const std::map<int, int> values = {{16, 4}, {38, 4 << 20}, {75, 9}, {76, 0}, {97, (int)MaxShared}};
  auto i = values.find(a);
  if (a != 88 && i == values.end()) return InvalidValue;  // one that nobody needed so far
  *v = a == 88 ? (int)config().reaches : i->second;
  return device_exists(d);
}
API Result cuDeviceCanAccessPeer(int* can, int a, int b) {
  *can = a != b && !config().apart;
  Result r = device_exists(a);
  return r ? r : device_exists(b);
}

API Result cuDevicePrimaryCtxRetain(void** ctx, int d) {
  *ctx = (void*)(ContextBase + d);
  return device_exists(d);
}
API Result cuCtxPushCurrent_v2(void* ctx) {
  int d = device_of_context(ctx);
  if (d < 0 || depth == 16) return InvalidContext;
  stack[depth++] = d;
  return Ok;
}
API Result cuCtxPopCurrent_v2(void** ctx) {
  if (!depth) return InvalidContext;
  *ctx = (void*)(ContextBase + stack[--depth]);
  return Ok;
}
API Result cuCtxGetCurrent(void** ctx) {
  *ctx = depth ? (void*)(ContextBase + stack[depth - 1]) : nullptr;
  return Ok;
}
API Result cuCtxGetDevice(int* d) {
  *d = current();
  return *d < 0 ? InvalidContext : Ok;
}
API Result cuCtxSynchronize() {
  Lock l;
  int d;
  if (Result r = usable(&d)) return r;
  if (Result r = unsafe()) return r;
  wait_device(l, d);
  return S.devices[d].error;
}
API Result cuCtxEnablePeerAccess(void* peer, unsigned flags) {
  Lock l;
  int d, p = device_of_context(peer);
  if (Result r = usable(&d)) return r;
  if (flags) return InvalidValue;
  if (S.config.apart) return PeerUnsupported;
  if (p < 0 || p == d) return InvalidContext;
  if (S.devices[d].peers >> p & 1) return PeerEnabled;
  S.devices[d].peers |= 1ull << p;
  return Ok;
}

static const std::map<Result, std::pair<const char*, const char*>> errors = {
    {Ok, {"CUDA_SUCCESS", "no error"}},
    {InvalidValue, {"CUDA_ERROR_INVALID_VALUE", "invalid argument"}},
    {OutOfMemory, {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory"}},
    {NoDevice, {"CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"}},
    {InvalidDevice, {"CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"}},
    {InvalidImage, {"CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"}},
    {InvalidContext, {"CUDA_ERROR_INVALID_CONTEXT", "invalid device context"}},
    {InvalidHandle, {"CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"}},
    {IllegalState, {"CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"}},
    {NotFound, {"CUDA_ERROR_NOT_FOUND", "named symbol not found"}},
    {NotReady, {"CUDA_ERROR_NOT_READY", "device not ready"}},
    {IllegalAddress, {"CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"}},
    {LaunchTimeout, {"CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"}},
    {PeerEnabled, {"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"}},
    {PeerUnsupported, {"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these two devices"}},
    {Misaligned, {"CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"}},
    {LaunchFailed, {"CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"}},
    {NotSupported, {"CUDA_ERROR_NOT_SUPPORTED", "operation not supported"}},
    {CaptureUnsupported, {"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"}},
    {CaptureInvalidated, {"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"}},
    {CaptureMerge, {"CUDA_ERROR_STREAM_CAPTURE_MERGE", "operation would result in a merge of separate capture sequences"}},
    {CaptureUnmatched, {"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "capture was not ended in the same stream as it began"}},
    {CaptureUnjoined, {"CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"}},
    {CaptureIsolation, {"CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "dependency created on uncaptured work in another stream"}},
    {CaptureWrongThread, {"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "attempt to terminate a thread-local capture sequence from another thread"}},
    {NotInitialized, {"CUDA_ERROR_NOT_INITIALIZED", "initialization error"}},
    {CapturedEvent, {"CUDA_ERROR_CAPTURED_EVENT", "operation not permitted on an event last recorded in a capturing stream"}},
};
API Result cuGetErrorName(Result r, const char** s) {
  auto i = errors.find(r);
  *s = i == errors.end() ? nullptr : i->second.first;
  return *s ? Ok : InvalidValue;
}
// cuGetErrorString adds what the emulator knows about a sticky error.
API Result cuGetErrorString(Result r, const char** s) {
  auto i = errors.find(r);
  *s = i == errors.end() ? nullptr : i->second.second;
  if (!*s) return InvalidValue;
  Lock l;
  for (auto& d : S.devices)
    if (d.error == r && r != Ok) {
      static thread_local char text[1024];
      snprintf(text, sizeof text, "%s: %s", i->second.second, d.detail.c_str());
      *s = text;
    }
  return Ok;
}

API void emu_reset(const EmuConfig* c) {
  emu_block("", 0);
  Lock l;
  for (auto& s : S.streams) s.second->held = false;
  for (int d = 0; d < MaxDevices; d++) wait_device(l, d);
  S.config = *c;
  S.allocs = S.launches = 0;
  for (auto& d : S.devices) d.error = Ok, d.detail.clear();
  if (c->no_peers)
    for (auto& d : S.devices) d.peers = 0;
  while (!S.captures.empty()) end_capture(*std::shared_ptr<Capture>(*S.captures.begin()));
}
API int emu_leaks(char* out, uint64_t n) {
  Lock l;
  std::string text;
  int count = leaked_memory(text);
  auto add = [&](size_t k, const char* what) {
    if (k) text += std::to_string(k) + " " + what + "\n", count += (int)k;
  };
  add(S.streams.size(), "streams");
  add(S.events.size(), "events");
  add(S.graphs.size() + S.execs.size(), "graphs");
  snprintf(out, n, "%s", text.c_str());
  return count;
}
