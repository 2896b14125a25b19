// As the PTX ISA has it: "mbarrier", "cp.async.bulk", "bar", "Asynchronous warpgroup level matrix instructions", "Proxies".
#include "hopper.h"
#include "mma.h"

namespace emu {
// Addresses: a kilobyte is the system's, then come the static bytes (of all kernels of the module), and the dynamic ones from a multiple of
// 16 on.
enum { Reserved = 1024, MaxBytes = Reserved + (48 << 10) + 32 + 232448 };
static inline unsigned statics() { return Reserved + (unsigned)(__stop_emu_shared - __start_emu_shared + 15) / 16 * 16; }
static inline unsigned dynamics() { return statics() + 16; }
static inline unsigned char* bytes_at(unsigned at) {
  return at < statics() ? __start_emu_shared + (at - Reserved) : launch->dynamic + (at - dynamics());
}
static inline bool inside(unsigned at, unsigned bytes) {
  unsigned from = at < statics() ? Reserved : dynamics(), to = at < statics() ? statics() : dynamics() + launch->shared;
  return at >= from && at <= to && bytes <= to - at;
}

// What threads stored and the asynchronous proxy may not see yet: of 16 bytes, the last thread, and how many fences it had done.
static uint32_t stored[MaxBytes / 16], fences[1024];
static bool any_stored;
static uint32_t stamp(unsigned thread) { return (fences[thread] + 1) << 10 | thread; }
static void note_store(unsigned at) { stored[at / 16] = stamp(cur->tid), any_stored = true; }
static inline bool unseen(unsigned at) { return stored[at / 16] && stored[at / 16] == stamp(stored[at / 16] & 1023); }

// Mbarrier is its eight bytes. arrivals: that are missing in this phase; bytes: that are expected, and did not come yet.
struct Mbarrier { uint16_t valid, n, arrivals; uint16_t phase : 1, low : 15; };
static int32_t expected[MaxBytes / 8];  // the bytes, which have no room there
enum { Valid = 0x4d42, MostArrivals = 1 << 14, MostBytes = 1 << 20 };
static unsigned unfenced;  // barriers that were made, and not by emu_mbarriers_ready for the copy engine

static Mbarrier* mbarrier_at(unsigned b, int line) {
  auto m = (Mbarrier*)emu_shared(b, 8, "an mbarrier", line);
  if (b % 8) fail(Misaligned, "line %d: misaligned mbarrier %#x", line, b);
  if (m->valid != Valid) fail(LaunchFailed, "line %d: there is no mbarrier at %#x", line, b);
  return m;
}
// advance_phase ends the phase if nothing is missing.
static void advance_phase(unsigned b, Mbarrier* m) {
  if (m->arrivals || expected[b / 8]) return;
  m->arrivals = m->n;
  m->phase ^= 1;
  wake_on(m);
}

// Named barriers: who has come, how many are to come.
static struct Named { unsigned come, threads; } named[16];

// Registers of each thread, at first as many as the threads of a block can have alike, and those that are given back.
static struct { uint64_t block; unsigned n; } registers[1024];
static unsigned registers_free;

// Pending is a copy under way.
struct Pending { unsigned to, bytes, bar; const unsigned char* from; EmuMap map; int at[4]; uint3 thread; };
enum { MaxPending = 256 };
static Pending pending[MaxPending];
static unsigned npending;

static Pending& add_copy(unsigned to, unsigned bytes, unsigned bar, unsigned align, int line) {
  mbarrier_at(bar, line);
  emu_shared(to, bytes, "a copy's end", line);
  if (unfenced) fail(LaunchFailed, "line %d: a copy's mbarrier was made without fence.mbarrier_init", line);
  if (to % align) fail(Misaligned, "line %d: misaligned address %#x of a copy's end", line, to);
  for (unsigned i = 0; i < bytes; i += 16)
    if (unseen(to + i)) fail(LaunchFailed, "line %d: a copy to where a thread stored without fence.proxy.async", line);
  if (npending == MaxPending) fail(LaunchFailed, "line %d: the emulator has room for %d copies under way", line, MaxPending);
  memset(bytes_at(to), 0xff, bytes);
  Pending& p = pending[npending++];
  p = {to, bytes, bar, nullptr, {}, {}, threadIdx};
  return p;
}
static inline unsigned swizzled(unsigned at) { return at ^ (at >> 3 & 0x70); }

// copy_rows copies a box of rows of 128 bytes, swizzled. What lies outside of the tensor is 0.
static void copy_rows(const Pending& p) {
  const EmuMap& m = p.map;
  unsigned to = p.to;
  auto in = [&](int i, unsigned k) { return p.at[i] + (int64_t)k >= 0 && p.at[i] + (int64_t)k < (int64_t)m.dims[i]; };
  for (unsigned w = 0; w < m.box[3]; w++)
    for (unsigned z = 0; z < m.box[2]; z++)
      for (unsigned y = 0; y < m.box[1]; y++)
        for (unsigned x = 0; x < 64; x += 8, to += 16) {
          uint16_t v[8] = {};
          auto from = (const unsigned char*)m.address;
          if (in(1, y) && in(2, z) && in(3, w)) {
            from += (p.at[1] + (int64_t)y) * (int64_t)m.strides[0] + (p.at[2] + (int64_t)z) * (int64_t)m.strides[1];
            from += (p.at[3] + (int64_t)w) * (int64_t)m.strides[2] + (p.at[0] + (int64_t)x) * 2;
            if (in(0, x) && in(0, x + 7)) memcpy(v, from, 16);
            else
              for (int i = 0; i < 8; i++)
                if (in(0, x + i)) memcpy(v + i, from + 2 * i, 2);
          }
          memcpy(bytes_at(swizzled(to)), v, 16);
        }
}
static bool land() {
  if (!npending) return false;
  unsigned i = launch->reverse ? npending - 1 : 0;
  Pending p = pending[i];
  memmove(pending + i, pending + i + 1, (--npending - i) * sizeof p);
  threadIdx = p.thread;
  if (p.from) memcpy(bytes_at(p.to), p.from, p.bytes);
  else copy_rows(p);
  auto m = (Mbarrier*)bytes_at(p.bar);
  if (m->valid != Valid) return broken("the mbarrier %#x of a copy is gone", p.bar), true;
  expected[p.bar / 8] -= (int)p.bytes;
  if (expected[p.bar / 8] < 0 && !m->arrivals) return broken("mbarrier %#x gets more bytes than it expects", p.bar), true;
  advance_phase(p.bar, m);
  return true;
}
static void at_begin() {
  npending = unfenced = registers_free = 0;
  memset(named, 0, sizeof named);
  if (any_stored) memset(stored, 0, sizeof stored), any_stored = false;
  if (dynamics() + launch->shared > MaxBytes)
    broken("the emulator has room for %d bytes of static shared memory in a module, and 232448 of a launch", 48 << 10);
}
static void at_end() {
  if (npending) broken("%u copies to shared memory are under way at the end", npending);
  for (unsigned i = 0; i < 16; i++)
    if (named[i].come) broken("%u threads have come to barrier %u, and no others do until the end", named[i].come, i);
}

// Products that a thread has queued and not waited for.
struct Product64 { float* d; uint64_t at[2]; unsigned a[4], n, group; int line; bool registers, add, f16; uint8_t across; };
enum { MaxProducts = 64 };
static struct Products { uint64_t block; unsigned n, group, but; bool fenced; Product64 list[MaxProducts]; } products[1024];
static Products& my_products() {
  Products& q = products[cur->tid];
  if (q.block != blocks_run) q.block = blocks_run, q.n = q.group = 0, q.fenced = false;
  return q;
}

// descriptor says where a matrix is that is swizzled by 128 bytes: eight elements of row r (or column) from k on, or, across, of k
// from r on.
struct Descriptor {
  unsigned start, lead, stride;
  bool across;
  Descriptor(uint64_t d, bool a) : start((d & 0x3fff) << 4), lead((d >> 16 & 0x3fff) << 4), stride((d >> 32 & 0x3fff) << 4), across(a) {}
  unsigned at(unsigned r, unsigned k) const {
    if (across) return swizzled(start + r / 64 * lead + k / 8 * stride + k % 8 * 128 + r % 64 * 2);
    return swizzled(start + r / 8 * stride + r % 8 * 128 + k * 2);
  }
};
static bool load8(uint16_t (&v)[8], unsigned at, const char** wrong) {
  if (!inside(at, 16)) return *wrong = "outside of shared memory", false;
  if (unseen(at)) return *wrong = "that a thread stored without fence.proxy.async", false;
  return memcpy(v, bytes_at(at), 16), true;
}
// load_matrix loads n rows, or columns, of 16: to[k][r]. first is the first one.
template <bool F16> static inline __attribute__((always_inline)) bool load_matrix(float* to, unsigned pitch, Descriptor d, unsigned first, unsigned n,
                                                                                    const char** wrong) {
  uint16_t v[8];
  for (unsigned r = 0; r < n; r += d.across ? 8 : 1)
    for (unsigned k = 0; k < 16; k += d.across ? 1 : 8) {
      if (!load8(v, d.at(first + r, k), wrong)) return false;
      float f[8];
      for (int i = 0; i < 8; i++) f[i] = half_float(v[i], F16);
      for (int i = 0; i < 8; i++) to[d.across ? k * pitch + r + i : (k + i) * pitch + r] = f[i];
    }
  return true;
}
// warp_product is a warp's 16 rows of product i of its lanes.
template <bool F16> static inline __attribute__((always_inline)) bool warp_product(void* const* lanes, unsigned i, const char** wrong) {
  const Product64& p = ((Products*)lanes[0])->list[i];
  static float a[16][16], b[16][256], d[16][256];  // [k][row], [k][column], [row][column]
  if (!load_matrix<F16>(b[0], 256, Descriptor(p.at[1], p.across & 2), 0, p.n, wrong)) return false;
  if (!p.registers && !load_matrix<F16>(a[0], 16, Descriptor(p.at[0], p.across & 1), cur->tid / 32 % 4 * 16, 16, wrong)) return false;
  for (unsigned l = 0; l < 32; l++) {
    const Product64& q = ((Products*)lanes[l])->list[i];
    for (unsigned r = 0; p.registers && r < 4; r++)
      for (unsigned e = 0; e < 2; e++) a[r / 2 * 8 + l % 4 * 2 + e][l / 4 + r % 2 * 8] = half_float((uint16_t)(q.a[r] >> 16 * e), F16);
    for (unsigned j = 0; j < p.n / 8; j++)
      for (unsigned h = 0; h < 2; h++)
        for (unsigned e = 0; e < 2; e++) d[l / 4 + 8 * h][8 * j + l % 4 * 2 + e] = p.add ? q.d[4 * j + 2 * h + e] : 0;
  }
  for (unsigned r = 0; r < 16; r++)
    for (unsigned k = 0; k < 16; k++)
      for (unsigned j = 0; j < p.n; j++) d[r][j] += a[k][r] * b[k][j];
  for (unsigned l = 0; l < 32; l++) {
    float* to = ((Products*)lanes[l])->list[i].d;
    for (unsigned j = 0; j < p.n / 8; j++)
      for (unsigned h = 0; h < 2; h++) memcpy(to + 4 * j + 2 * h, &d[l / 4 + 8 * h][8 * j + l % 4 * 2], 8);
  }
  return true;
}
__attribute__((target_clones("avx2", "default"))) static bool multiply64(void* const* lanes, unsigned i, const char** wrong) {
  return ((Products*)lanes[0])->list[i].f16 ? warp_product<true>(lanes, i, wrong) : warp_product<false>(lanes, i, wrong);
}

// run_products computes the products of the groups that a warp waits for.
static void run_products(void* const* lanes) {
  Products& q = *(Products*)lanes[0];
  unsigned done = 0;
  while (done < q.n && q.list[done].group + q.but < q.group) done++;
  for (unsigned i = 0; i < done; i++) {
    const Product64& p = q.list[i];
    for (unsigned l = 1; l < 32; l++) {
      const Products& o = *(Products*)lanes[l];
      const Product64& r = o.list[i];
      if (o.n != q.n || r.group != p.group || r.line != p.line || r.at[0] != p.at[0] || r.at[1] != p.at[1] || r.add != p.add)
        fail(LaunchFailed, "lines %d and %d: lanes of a warp have different products", p.line, r.line);
    }
    const char* wrong;
    if (!multiply64(lanes, i, &wrong)) fail(LaunchFailed, "line %d: wgmma reads what is %s", p.line, wrong);
  }
  for (unsigned l = 0; l < 32; l++) {
    Products& o = *(Products*)lanes[l];
    memmove(o.list, o.list + done, (o.n - done) * sizeof *o.list);
    o.n -= done;
  }
}
}  // namespace emu
using namespace emu;

unsigned emu_shared_address(const void* at) {
  auto p = (const unsigned char*)at;
  if (p >= __start_emu_shared && p < __stop_emu_shared) return Reserved + (unsigned)(p - __start_emu_shared);
  if (p < launch->dynamic || p > launch->dynamic + launch->shared) fail(IllegalAddress, "address %p is not in shared memory", at);
  return dynamics() + (unsigned)(p - launch->dynamic);
}
void* emu_shared(unsigned at, unsigned bytes, const char* what, int line) {
  if (!inside(at, bytes)) fail(IllegalAddress, "line %d: address %#x of %s is not in shared memory", line, at, what);
  return bytes_at(at);
}

void emu_mbarrier_init(unsigned b, unsigned n, int line) {
  auto m = (Mbarrier*)emu_shared(b, 8, "an mbarrier", line);
  if (b % 8) fail(Misaligned, "line %d: misaligned mbarrier %#x", line, b);
  if (!n || n > MostArrivals) fail(LaunchFailed, "line %d: an mbarrier of %u arrivals", line, n);
  *m = {Valid, (uint16_t)n, (uint16_t)n, 0, 0};
  expected[b / 8] = 0;
  unfenced++;
}
void emu_mbarriers_ready() { unfenced = 0; }
void emu_mbarrier_arrive(unsigned b, unsigned bytes, int line) {
  Mbarrier* m = mbarrier_at(b, line);
  if (!m->arrivals) fail(LaunchFailed, "line %d: more threads arrive at mbarrier %#x than the %u of its phase", line, b, m->n);
  expected[b / 8] += (int)bytes;
  if (expected[b / 8] >= MostBytes) fail(LaunchFailed, "line %d: mbarrier %#x expects more than %d bytes", line, b, MostBytes - 1);
  m->arrivals--;
  if (!m->arrivals && expected[b / 8] < 0) fail(LaunchFailed, "line %d: mbarrier %#x gets more bytes than it expects", line, b);
  advance_phase(b, m);
}
void emu_mbarrier_wait(unsigned b, unsigned parity, int line) {
  while (mbarrier_at(b, line)->phase == (parity & 1)) wait_on(bytes_at(b), line);
}
void emu_bar(unsigned number, unsigned threads, bool sync, int line) {
  if (number < 1 || number > 15 || threads % 32 || !threads) fail(LaunchFailed, "line %d: there is no barrier %u of %u threads", line, number, threads);
  Named& b = named[number];
  if (b.come && b.threads != threads) fail(LaunchFailed, "line %d: threads come to barrier %u as one of %u and of %u threads", line, number, b.threads, threads);
  b.threads = threads;
  if (++b.come == threads) return b.come = 0, wake_on(&b);
  if (sync) wait_on(&b, line);
}

void emu_registers(unsigned n, bool more, int line) {
  auto& mine = registers[cur->tid];
  if (mine.block != blocks_run) mine = {blocks_run, nthreads < 256 ? 256 : 65536 / nthreads / 8 * 8};
  if (n % 8 || n < 24 || n > 256 || (more ? n < mine.n : n > mine.n)) fail(LaunchFailed, "line %d: setmaxnreg from %u to %u registers", line, mine.n, n);
  while (more && registers_free < n - mine.n) wait_on(registers, line);
  registers_free += mine.n - n;
  mine.n = n;
  if (!more) wake_on(registers);
}

void emu_copy_box(unsigned to, const void* map, int x, int y, int z, int w, unsigned rank, unsigned bar, int line) {
  EmuMap m;
  memcpy(&m, map, sizeof m);
  if (m.rank != rank) fail(LaunchFailed, "line %d: a map of %llu dimensions is read as one of %u", line, (unsigned long long)m.rank, rank);
  if (rank == 3) m.dims[3] = m.box[3] = 1, m.strides[2] = 0;
  if (m.box[0] != 64) fail(LaunchFailed, "line %d: the emulator knows boxes of 64 columns, not of %llu", line, (unsigned long long)m.box[0]);
  Pending& p = add_copy(to, 128 * (unsigned)(m.box[1] * m.box[2] * m.box[3]), bar, 128, line);
  p.map = m;
  p.at[0] = x, p.at[1] = y, p.at[2] = z, p.at[3] = w;
}
void emu_copy_bytes(unsigned to, const void* from, unsigned bytes, unsigned bar, int line) {
  if (!bytes || bytes % 16) fail(LaunchFailed, "line %d: there is no copy of %u bytes", line, bytes);
  aligned_at(from, 16, "a copy's source", line);
  add_copy(to, bytes, bar, 16, line).from = (const unsigned char*)from;
}

void emu_store16(unsigned at, const unsigned* v, int line) {
  if (at % 16) fail(Misaligned, "line %d: misaligned address %#x", line, at);
  memcpy(emu_shared(at, 16, "a store", line), v, 16);
  note_store(at);
}
namespace emu {
struct Rows { unsigned char* row; const unsigned* r; };
static void store_tiles(void* const* lanes) {
  for (int l = 0; l < 32; l++)
    for (int m = 0; m < 4; m++) memcpy(((const Rows*)lanes[8 * m + l / 4])->row + l % 4 * 4, ((const Rows*)lanes[l])->r + m, 4);
}
}  // namespace emu
void emu_store_matrices(unsigned row, const unsigned* r, int line) {
  if (row % 16) fail(Misaligned, "line %d: misaligned address %#x of a row of stmatrix", line, row);
  Rows t = {(unsigned char*)emu_shared(row, 16, "a row of stmatrix", line), r};
  note_store(row);
  if (launch->banks) together(&t, banks, line);
  together(&t, store_tiles, line);
}
void emu_see_stores() { fences[cur->tid]++; }

void emu_wgmma(float* d, unsigned n, const unsigned* a, uint64_t at_a, uint64_t at_b, int across, bool add, bool f16, int line) {
  constexpr uint64_t swizzle128 = 1ull << 62, known = 0x3fff | 0x3fffull << 16 | 0x3fffull << 32;
  Products& q = my_products();
  if (!q.fenced) fail(LaunchFailed, "line %d: wgmma without wgmma.fence", line);
  if (n % 8 || n > 256 || (at_b & ~known) != swizzle128 || (!a && (at_a & ~known) != swizzle128))
    fail(LaunchFailed, "line %d: the emulator has no wgmma of %u columns with descriptors %#llx and %#llx", line, n, (unsigned long long)at_a,
         (unsigned long long)at_b);
  if (q.n == MaxProducts) fail(LaunchFailed, "line %d: the emulator has room for %d products of a thread", line, MaxProducts);
  Product64& p = q.list[q.n++];
  p = {d, {at_a, at_b}, {}, n, q.group, line, a != nullptr, add, f16, (uint8_t)across};
  if (a) memcpy(p.a, a, sizeof p.a);
}
void emu_wgmma_fence() { my_products().fenced = true; }
void emu_wgmma_commit() { my_products().group++; }
void emu_wgmma_wait(unsigned but, int line) {
  Products& q = my_products();
  q.but = but, q.fenced = false;
  together(&q, run_products, line);
}
