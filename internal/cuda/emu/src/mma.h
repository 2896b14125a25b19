// What kernels do by inline PTX for sm_80 and later: matrices in the registers of
// a warp, and copies that run beside it. Fragments are as the PTX ISA has them
// ("Matrix Fragments for mma.m16n8k16 with floating point type", "ldmatrix").
#pragma once
#include "fiber.h"

namespace emu {
// together lets a warp do something at once: the last lane to come calls fn with
// what each lane brought. It is exchange, faster.
static inline void together(void* mine, void (*fn)(void* const* lanes), int line) {
  Warp& w = warps[cur->tid >> 5];
  unsigned lane = cur->tid & 31;
  if (w.alive != ~0u) fail(LaunchFailed, "line %d: an instruction of the whole warp, and not all of its 32 threads are there,", line);
  w.in[lane] = (uint64_t)(uintptr_t)mine;
  w.want[lane] = ~0u;
  w.line[lane] = line;
  w.kind[lane] = Joint;
  w.lane[lane] = cur;
  w.waiting |= 1u << lane;
  if (w.waiting != ~0u) return yield(InWarp);
  for (unsigned i = 0; i < 32; i++)
    if (w.kind[i] != Joint || w.line[i] != line) fail(LaunchFailed, "lanes of a warp meet in lines %d and %d,", w.line[i], line);
  fn((void* const*)w.in);
  for (unsigned i = 0; i < 32; i++)
    if (w.lane[i] != cur) w.lane[i]->st = Ready;
  w.waiting = 0;
}

static inline float half_float(uint16_t h, bool f16) {
  uint32_t u = (uint32_t)h << 16;
  float r;
  if (f16) {
    uint32_t m = (h & 0x7fffu) << 13;
    memcpy(&r, &m, 4);
    r *= 0x1p112f;  // the exponent's bias, also of numbers below 2^-14
    memcpy(&u, &r, 4);
    if (m >= 0x7c00u << 13) u = m | 0x7f800000;
    u |= (uint32_t)(h & 0x8000) << 16;
  }
  memcpy(&r, &u, 4);
  return r;
}

// Product is a lane's part of d += a b, a [16,16], b [16,8].
struct Product { const unsigned* a; unsigned b[2]; float* d; bool f16; };
static inline void multiply(void* const* lanes) {
  float a[16][16], b[16][8], d[16][8];
  for (int l = 0; l < 32; l++) {
    const Product& p = *(const Product*)lanes[l];
    int g = l / 4, t = l % 4 * 2;
    for (int e = 0; e < 2; e++) {
      auto part = [&](unsigned v) { return half_float((uint16_t)(v >> 16 * e), p.f16); };
      a[g][t + e] = part(p.a[0]), a[g + 8][t + e] = part(p.a[1]);
      a[g][t + 8 + e] = part(p.a[2]), a[g + 8][t + 8 + e] = part(p.a[3]);
      b[t + e][g] = part(p.b[0]), b[t + 8 + e][g] = part(p.b[1]);
      d[g][t + e] = p.d[e], d[g + 8][t + e] = p.d[2 + e];
    }
  }
  for (int i = 0; i < 16; i++)
    for (int k = 0; k < 16; k++)
      for (int j = 0; j < 8; j++) d[i][j] += a[i][k] * b[k][j];
  for (int l = 0; l < 32; l++) {
    float* to = ((const Product*)lanes[l])->d;
    int g = l / 4, t = l % 4 * 2;
    for (int e = 0; e < 2; e++) to[e] = d[g][t + e], to[2 + e] = d[g + 8][t + e];
  }
}

// Tiles is a lane's part of four 8x8 matrices of 16-bit elements: lane 8m + r has
// the address of row r of matrix m, and gets elements of each.
struct Tiles { const unsigned char* row; unsigned* r; bool trans; };
static inline void load_tiles(void* const* lanes) {
  uint16_t m[4][8][8];
  for (int l = 0; l < 32; l++) memcpy(m[l / 8][l % 8], ((const Tiles*)lanes[l])->row, 16);
  for (int l = 0; l < 32; l++) {
    const Tiles& t = *(const Tiles*)lanes[l];
    int row = l / 4, col = l % 4 * 2;
    for (int i = 0; i < 4; i++)
      t.r[i] = t.trans ? m[i][col][row] | (unsigned)m[i][col + 1][row] << 16 : m[i][row][col] | (unsigned)m[i][row][col + 1] << 16;
  }
}
static inline void aligned_at(const void* p, unsigned bytes, const char* what, int line) {
  if ((uintptr_t)p % bytes) fail(Misaligned, "line %d: misaligned address %p of %s", line, p, what);
}
// banks fails where rows of a matrix share banks of shared memory, which costs a
// GPU time.
static inline void banks(void* const* lanes) {
  for (int m = 0; m < 4; m++) {
    unsigned seen = 0;
    for (int r = 0; r < 8; r++) seen |= 1u << (uintptr_t)((const Tiles*)lanes[8 * m + r])->row / 16 % 8;
    if (seen != 255) fail(LaunchFailed, "rows of matrix %d share banks", m);
  }
}

// Copies that a thread began and has not waited for: the bytes come when it
// waits, and are NaN until then.
struct Copy { void* to; const void* from; int size, real; unsigned group; };
enum { MaxCopies = 128 };
static struct Copies { uint64_t block; unsigned n, group; Copy list[MaxCopies]; } copies[1024];
static inline Copies& my_copies() {
  Copies& c = copies[cur->tid];
  if (c.block != blocks_run) c.block = blocks_run, c.n = c.group = 0;
  return c;
}
}  // namespace emu

static inline void emu_mma(float* d, const unsigned* a, unsigned b0, unsigned b1, bool f16, int line) {
  emu::Product p = {a, {b0, b1}, d, f16};
  emu::together(&p, emu::multiply, line);
}
static inline void emu_ldmatrix(unsigned* r, const void* row, bool trans, int line) {
  emu::aligned_at(row, 16, "a row of ldmatrix", line);
  emu::Tiles t = {(const unsigned char*)row, r, trans};
  if (emu::launch->banks) emu::together(&t, emu::banks, line);
  emu::together(&t, emu::load_tiles, line);
}
// emu_copy copies `real` of `size` bytes and zeros behind them.
static inline void emu_copy(void* to, const void* from, int size, int real, int line) {
  emu::aligned_at(to, size, "a copy's end", line);
  emu::aligned_at(from, size, "a copy's source", line);
  emu::Copies& c = emu::my_copies();
  if (c.n == emu::MaxCopies) emu::fail(emu::LaunchFailed, "line %d: the emulator has room for %d copies of a thread", line, emu::MaxCopies);
  memset(to, 0xff, size);
  c.list[c.n++] = {to, from, size, real, c.group};
}
static inline void emu_copies_commit() { emu::my_copies().group++; }
static inline void emu_copies_wait(unsigned but) {
  emu::Copies& c = emu::my_copies();
  unsigned i = 0, kept = 0;
  for (; i < c.n; i++) {
    emu::Copy& k = c.list[i];
    if (k.group + but >= c.group) {
      c.list[kept++] = k;
      continue;
    }
    memcpy(k.to, k.from, k.real);
    memset((char*)k.to + k.real, 0, k.size - k.real);
  }
  c.n = kept;
}
