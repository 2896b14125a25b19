// Device memory. Every allocation has pages of its own between guard pages, at
// an address that is never used again; it is filled with NaN.
#include "core.h"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>

namespace {
constexpr uint64_t Page = 4096, Guard = 64 << 10, Align = 256, ArenaBytes = 1ull << 40;
constexpr int Fill = 0xff, Canary = 0xa5;

// Block is an allocation; its pages are [pages, pages+room), the bytes
// [at, at+size) of them were asked for, and the rest is filled with canaries.
struct Block {
  Addr pages;
  uint64_t room;
  Addr at;
  uint64_t size;
  int device;
  bool freed;
  uint64_t before() const { return at - pages; }
  Addr end() const { return at + size; }
  uint64_t behind() const { return pages + room - end(); }
};
std::map<Addr, Block> blocks;   // by the address given out
std::map<Addr, Block> places;   // by pages, freed ones too, for messages
std::map<Addr, uint64_t> pinned;
struct Arena { Addr base = 0, next = 0; } arenas[MaxDevices];

Block* find(Addr p, uint64_t n) {
  auto i = blocks.upper_bound(p);
  if (i == blocks.begin()) return nullptr;
  --i;
  return p + n <= i->first + i->second.size && p + n >= p ? &i->second : nullptr;
}
}  // namespace

int device_of(Addr p) {
  for (int d = 0; d < MaxDevices; d++)
    if (arenas[d].base && p >= arenas[d].base && p < arenas[d].base + ArenaBytes) return d;
  return -1;
}
bool is_memory(Addr p, uint64_t n) { return find(p, n); }
bool is_pinned(Addr p, uint64_t n) {
  auto i = pinned.upper_bound(p);
  if (i == pinned.begin()) return false;
  --i;
  return p + n <= i->first + i->second;
}
API int emu_is_memory(uint64_t p, uint64_t n) {
  Lock l;
  return is_memory(p, n);
}

// nearest is the allocation, freed ones too, that an address belongs to or is
// closest to.
static const Block* nearest(Addr p) {
  auto after = places.upper_bound(p), before = after;
  if (before != places.begin()) --before;
  if (before == places.end()) return nullptr;
  if (after == places.end()) return &before->second;
  Addr end = before->second.pages + before->second.room;
  return p < end || p - end < after->first - p ? &before->second : &after->second;
}

std::string describe(Addr p) {
  char text[200];
  const Block* b = nearest(p);
  if (device_of(p) < 0 || !b) {
    snprintf(text, sizeof text, "address %#llx, which is not device memory", (unsigned long long)p);
    return text;
  }
  auto say = [&](const char* format, uint64_t distance) {
    snprintf(text, sizeof text, format, (unsigned long long)distance, b->freed ? "freed memory" : "memory", (unsigned long long)b->size);
  };
  if (p < b->at) say("%llu bytes before the start of %s of %llu bytes", b->at - p);
  else if (p < b->end()) say("byte %llu of %s of %llu bytes", p - b->at);
  else say("%llu bytes after the end of %s of %llu bytes", p - b->end());
  return text;
}

// with_canaries are the blocks that have canaries behind them. Most have none, and a look at each would take long.
static std::vector<const Block*> with_canaries;

// intact says whether n canaries are what they were, and repairs them: damage is
// reported once.
static bool intact(Addr at, uint64_t n) {
  static const std::vector<char> canaries(Page, (char)Canary);
  if (!memcmp((void*)at, canaries.data(), n)) return true;
  memset((void*)at, Canary, n);
  return false;
}
static std::string damage(const Block& b) { return "bytes just outside of memory of " + std::to_string(b.size) + " bytes were written"; }
// damaged looks behind all blocks, as it does so after each kernel; what lies before
// a block is looked at when that is freed: it would take most of the tests' time.
std::string damaged() {
  for (const Block* b : with_canaries)
    if (!intact(b->end(), b->behind())) return damage(*b);
  return "";
}

static bool reserve(Arena& a) {
  if (a.base) return true;
  void* p = mmap(0, ArenaBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return false;
  a.base = (Addr)p;
  a.next = a.base + Guard;
  return true;
}

// blank gives pages from at on access, filled with NaN. Large memory is mapped from a file of NaN, so that pages that nobody uses cost
// nothing. The kernel limits the number of mappings of a process (vm.max_map_count, 65530): so they are long, and the file grows to the
// longest.
static bool blank(Addr at, uint64_t n) {
  constexpr uint64_t large = 256 << 10, piece = 64 << 20;
  if (n < large) {
    if (mprotect((void*)at, n, PROT_READ | PROT_WRITE)) return false;
    memset((void*)at, Fill, n);
    return true;
  }
  static const int file = memfd_create("emulated memory", MFD_CLOEXEC);
  static const std::vector<char> nan(1 << 20, (char)Fill);
  static uint64_t filled = 0;
  for (; filled < std::min(n, piece); filled += nan.size())
    if (pwrite(file, nan.data(), nan.size(), filled) != (ssize_t)nan.size()) return false;
  for (Addr end = at + n; at < end; at += piece)
    if (mmap((void*)at, std::min(piece, end - at), PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_NORESERVE, file, 0) == MAP_FAILED)
      return false;
  return true;
}

API Result cuMemAlloc_v2(Addr* out, size_t n) {
  Lock l;
  int d;
  if (Result r = usable(&d)) return r;
  if (Result r = unsafe()) return r;
  if (!n) return InvalidValue;
  if (++S.allocs == S.config.fail_alloc || S.devices[d].used + n > S.config.memory) return OutOfMemory;
  Arena& a = arenas[d];
  Block b = {0, (n + Page - 1) / Page * Page, 0, n, d, false};
  if (!reserve(a) || a.next + b.room + Guard > a.base + ArenaBytes) return OutOfMemory;
  b.pages = a.next;
  a.next += b.room + Guard;
  if (!blank(b.pages, b.room)) return OutOfMemory;
  b.at = S.config.left ? b.pages : b.pages + b.room - (n + Align - 1) / Align * Align;
  memset((void*)b.pages, Canary, b.before());
  memset((void*)b.end(), Canary, b.behind());
  S.devices[d].used += n;
  blocks[b.at] = places[b.pages] = b;
  if (b.behind()) with_canaries.push_back(&blocks[b.at]);
  *out = b.at;
  return Ok;
}
API Result cuMemFree_v2(Addr p) {
  Lock l;
  int d;
  if (Result r = usable(&d)) return r;
  if (Result r = unsafe()) return r;
  auto i = blocks.find(p);
  if (i == blocks.end()) return InvalidValue;
  wait_device(l, i->second.device);
  i = blocks.find(p);
  if (i == blocks.end()) return InvalidValue;
  Block b = i->second;
  bool whole = (int)intact(b.pages, b.before()) & intact(b.end(), b.behind());
  with_canaries.erase(std::remove(with_canaries.begin(), with_canaries.end(), &i->second), with_canaries.end());
  blocks.erase(i);
  places[b.pages].freed = true;
  S.devices[b.device].used -= b.size;
  mmap((void*)b.pages, b.room, PROT_NONE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (whole) return S.devices[d].error;
  S.devices[b.device].error = IllegalAddress;
  S.devices[b.device].detail = damage(b);
  return IllegalAddress;
}
API Result cuMemGetInfo_v2(size_t* f, size_t* t) {
  Lock l;
  int d;
  if (Result r = usable(&d)) return r;
  *t = S.config.memory;
  *f = *t - S.devices[d].used;
  return Ok;
}
API Result cuPointerGetAttribute(void* v, int attribute, Addr p) {
  enum { MemoryType = 2, DeviceOrdinal = 9, InHost = 1, InDevice = 2 };
  Lock l;
  Block* b = find(p, 1);
  if (!b && !is_pinned(p, 1)) return InvalidValue;
  if (attribute == MemoryType) *(int*)v = b ? InDevice : InHost;
  else if (attribute == DeviceOrdinal) *(int*)v = b ? b->device : 0;
  else return InvalidValue;
  return Ok;
}
API Result cuMemHostAlloc(void** p, size_t n, unsigned) {
  Lock l;
  int d;
  if (Result r = usable(&d)) return r;
  if (Result r = unsafe()) return r;
  if (!n || posix_memalign(p, Page, n)) return n ? OutOfMemory : InvalidValue;
  memset(*p, Fill, n);
  pinned[(Addr)*p] = n;
  return Ok;
}
API Result cuMemFreeHost(void* p) {
  Lock l;
  int d;
  if (Result r = usable(&d)) return r;
  if (Result r = unsafe()) return r;
  for (int i = 0; i < MaxDevices; i++) wait_device(l, i);
  if (!pinned.erase((Addr)p)) return InvalidValue;
  free(p);
  return Ok;
}

int leaked_memory(std::string& out) {
  for (auto& b : blocks)
    out += std::to_string(b.second.size) + " bytes of device " + std::to_string(b.second.device) + "\n";
  for (auto& b : pinned) out += std::to_string(b.second) + " bytes of pinned host memory\n";
  return (int)(blocks.size() + pinned.size());
}

// cuTensorMapEncodeTiled checks what is documented, and writes down its arguments as struct EmuMap (hopper.h).
API Result cuTensorMapEncodeTiled(uint64_t* map, int type, unsigned rank, Addr p, const uint64_t* dims, const uint64_t* strides,
                                  const unsigned* box, const unsigned* steps, int interleave, int swizzle, int l2, int fill) {
  constexpr int Float16 = 6, BFloat16 = 9, Swizzle128 = 3;
  if ((uint64_t)map % 64 || p % 16 || (rank != 3 && rank != 4) || (type != Float16 && type != BFloat16)) return InvalidValue;
  if (interleave || swizzle != Swizzle128 || fill) return InvalidValue;
  for (unsigned i = 0; i < rank; i++)
    if (!dims[i] || dims[i] >> 32 || !box[i] || box[i] > 256 || !steps[i] || steps[i] > 8 ||
        (i && (strides[i - 1] % 16 || strides[i - 1] >> 40)))
      return InvalidValue;
  if (box[0] * 2 > 128) return InvalidValue;
  bool four = rank == 4;
  uint64_t words[16] = {p, (uint64_t)type, rank, dims[0], dims[1], dims[2], four ? dims[3] : 0, strides[0], strides[1],
                        four ? strides[2] : 0, box[0], box[1], box[2], four ? box[3] : 0, (uint64_t)swizzle, (uint64_t)l2};
  std::copy(words, words + 16, map);
  return Ok;
}
