// Fragments are as the PTX ISA has them ("Matrix Fragments for mma.m16n8k16 with
// floating point type", "ldmatrix").
#include "mma.h"

namespace emu {
static void aligned_at(const void* p, unsigned bytes, const char* what, int line) {
  if ((uintptr_t)p % bytes) fail(Misaligned, "line %d: misaligned address %p of %s", line, p, what);
}
static void shared_at(const void* p, unsigned bytes, const char* what, int line) {
  if (!is_shared(p, bytes)) fail(IllegalAddress, "line %d: address %p of %s is not in shared memory", line, p, what);
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

// Product is a lane's part. Elements of one register are beside each other in a, and in a column of b.
struct Product { const unsigned* a; unsigned b[2]; float* d; bool f16; };
typedef float Eight __attribute__((vector_size(32)));
template <bool F16> static inline __attribute__((always_inline)) void multiply_as(void* const* lanes) {
  uint16_t ha[16][16], hb[8][16];
  float a[16][16], d[16][8];
  Eight b[16];
  for (int l = 0; l < 32; l++) {
    const Product& p = *(const Product*)lanes[l];
    int g = l / 4, t = l % 4 * 2;
    memcpy(&ha[g][t], &p.a[0], 4), memcpy(&ha[g + 8][t], &p.a[1], 4);
    memcpy(&ha[g][t + 8], &p.a[2], 4), memcpy(&ha[g + 8][t + 8], &p.a[3], 4);
    memcpy(&hb[g][t], &p.b[0], 4), memcpy(&hb[g][t + 8], &p.b[1], 4);
    memcpy(&d[g][t], p.d, 8), memcpy(&d[g + 8][t], p.d + 2, 8);
  }
  for (int i = 0; i < 16; i++)
    for (int k = 0; k < 16; k++) a[i][k] = half_float(ha[i][k], F16);
  for (int k = 0; k < 16; k++)
    for (int j = 0; j < 8; j++) b[k][j] = half_float(hb[j][k], F16);
  for (int i = 0; i < 16; i++) {
    Eight sum;
    memcpy(&sum, d[i], sizeof sum);
#pragma GCC unroll 1
    for (int k = 0; k < 16; k++) sum += a[i][k] * b[k];
    memcpy(d[i], &sum, sizeof sum);
  }
  for (int l = 0; l < 32; l++) {
    float* to = ((const Product*)lanes[l])->d;
    int g = l / 4, t = l % 4 * 2;
    memcpy(to, &d[g][t], 8), memcpy(to + 2, &d[g + 8][t], 8);
  }
}
__attribute__((target_clones("avx2", "default"))) static void multiply(void* const* lanes) {
  return ((const Product*)lanes[0])->f16 ? multiply_as<true>(lanes) : multiply_as<false>(lanes);
}

struct Tiles { const unsigned char* row; unsigned* r; bool trans; };
static void load_tiles(void* const* lanes) {
  uint16_t m[4][8][8];
  for (int l = 0; l < 32; l++) memcpy(m[l / 8][l % 8], ((const Tiles*)lanes[l])->row, 16);
  for (int l = 0; l < 32; l++) {
    const Tiles& t = *(const Tiles*)lanes[l];
    int row = l / 4, col = l % 4 * 2;
    for (int i = 0; i < 4; i++)
      t.r[i] = t.trans ? m[i][col][row] | (unsigned)m[i][col + 1][row] << 16 : m[i][row][col] | (unsigned)m[i][row][col + 1] << 16;
  }
}
// banks fails where rows of a matrix share banks of shared memory, which costs a
// GPU time.
static void banks(void* const* lanes) {
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
static Copies& my_copies() {
  Copies& c = copies[cur->tid];
  if (c.block != blocks_run) c.block = blocks_run, c.n = c.group = 0;
  return c;
}
}  // namespace emu

void emu_mma(float* d, const unsigned* a, unsigned b0, unsigned b1, bool f16, int line) {
  emu::Product p = {a, {b0, b1}, d, f16};
  emu::together(&p, emu::multiply, line);
}
void emu_ldmatrix(unsigned* r, const void* row, bool trans, int line) {
  emu::aligned_at(row, 16, "a row of ldmatrix", line);
  emu::shared_at(row, 16, "a row of ldmatrix", line);
  emu::Tiles t = {(const unsigned char*)row, r, trans};
  if (emu::launch->banks) emu::together(&t, emu::banks, line);
  emu::together(&t, emu::load_tiles, line);
}
void emu_copy(void* to, const void* from, int size, int real, int line) {
  if ((size != 4 && size != 8 && size != 16) || real < 0 || real > size)
    emu::fail(emu::LaunchFailed, "line %d: there is no copy of %d of %d bytes", line, real, size);
  emu::aligned_at(to, size, "a copy's end", line);
  emu::aligned_at(from, size, "a copy's source", line);
  emu::shared_at(to, size, "a copy's end", line);
  if (emu::is_shared(from, 1)) emu::fail(emu::IllegalAddress, "line %d: a copy's source is in shared memory", line);
  emu::Copies& c = emu::my_copies();
  if (c.n == emu::MaxCopies) emu::fail(emu::LaunchFailed, "line %d: the emulator has room for %d copies of a thread", line, emu::MaxCopies);
  memset(to, 0xff, size);
  c.list[c.n++] = {to, from, size, real, c.group};
}
void emu_copies_commit() { emu::my_copies().group++; }
void emu_copies_wait(unsigned but) {
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
