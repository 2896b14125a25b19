// NVML's stand-in: four devices, 0 and 1 joined by two NVLinks, 2 and 3 behind
// one PCIe switch, the pairs apart from each other.
#include <stdio.h>
#include <atomic>
#define API extern "C" __attribute__((visibility("default")))
typedef int Result;
enum { Ok, Uninitialized = 1, InvalidArgument = 2, NotSupported = 3, InsufficientSize = 7, Count = 4 };
struct Memory { unsigned long long total, free, used; };
struct Pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };

static char devices[Count];
static int index_of(void* d) { return (int)((char*)d - devices); }

static std::atomic<int> users;  // of nvmlInit
static Result text(char* s, unsigned n, const char* format, int i) {
  if (!users) return Uninitialized;
  return snprintf(s, n, format, i) < (int)n ? Ok : InsufficientSize;
}

API Result nvmlInit_v2() { return users++, Ok; }
API Result nvmlShutdown() { return users ? users--, Ok : Uninitialized; }
API const char* nvmlErrorString(Result r) {
  return r == Uninitialized ? "Uninitialized" : r == NotSupported ? "Not Supported" : r == InsufficientSize ? "Insufficient Size" : "Invalid Argument";
}
API Result nvmlSystemGetDriverVersion(char* s, unsigned n) { return text(s, n, "580.65.06", 0); }
API Result nvmlDeviceGetCount_v2(unsigned* n) { *n = Count; return users ? Ok : Uninitialized; }
API Result nvmlDeviceGetHandleByIndex_v2(unsigned i, void** d) {
  if (!users) return Uninitialized;
  if (i >= Count) return InvalidArgument;
  *d = &devices[i];
  return Ok;
}
API Result nvmlDeviceGetName(void* d, char* s, unsigned n) { return text(s, n, "CPU emulator %d", index_of(d)); }
API Result nvmlDeviceGetUUID(void* d, char* s, unsigned n) { return text(s, n, "GPU-%08d", index_of(d)); }
API Result nvmlDeviceGetMemoryInfo(void*, Memory* m) {
  *m = {4ull << 30, 3ull << 30, 1ull << 30};
  return Ok;
}
static Pci pci(int i) {
  Pci p = {"", 0, (unsigned)i + 1, 0, 0, 0, ""};
  snprintf(p.bus_id, sizeof p.bus_id, "00000000:%02X:00.0", i + 1);
  return p;
}
API Result nvmlDeviceGetPciInfo_v3(void* d, Pci* p) { *p = pci(index_of(d)); return Ok; }
API Result nvmlDeviceGetTopologyCommonAncestor(void* a, void* b, int* level) {
  int i = index_of(a), j = index_of(b);
  *level = i == j ? 0 : i / 2 == j / 2 ? 10 : 50;
  return Ok;
}
API Result nvmlDeviceGetNvLinkState(void* d, unsigned link, unsigned* active) {
  if (index_of(d) > 1) return NotSupported;
  *active = link < 2;
  return Ok;
}
API Result nvmlDeviceGetNvLinkRemotePciInfo_v2(void* d, unsigned link, Pci* p) {
  if (index_of(d) > 1 || link > 1) return InvalidArgument;
  *p = pci(1 - index_of(d));
  return Ok;
}
