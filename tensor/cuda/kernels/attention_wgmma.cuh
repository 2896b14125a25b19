#include "mma.cuh"
#include "hopper.cuh"

// Attention on compute capability 9.0: what attention_wgmma.cu (forward), attention_wgmma_q.cu and attention_wgmma_kv.cu (gradients) share.
// T is a 16-bit float. HD is 64 or 128; heads with fewer features (p.hd) are as if the others were 0.
//
// A block has WGS warpgroups with 64 rows each, of its tile of BM rows: queries, or keys in the gradient of keys and values. One thread of
// another warpgroup copies the tile, and tiles of BN rows that the others go through, STAGES of them ahead. A block takes its tiles from a
// counter, the longest first; so results do not depend on who takes which. Heads are done in sections whose keys and values fit in L2.
// A tile in shared memory is [HD/64][rows][64 features], 128 bytes a row, swizzled by 128 bytes.

#ifndef STAGES
#define STAGES 2
#endif
#ifndef STAGES2
#define STAGES2 STAGES  // of the second of two kinds of tiles
#endif
#ifndef OWN
#define OWN 2  // own tiles in shared memory at a time
#endif
#ifndef TURNS
#define TURNS 1  // warpgroups take turns to queue their products
#endif
enum { BM = 64 * WGS, BN = BLOCK_N, OWN_BYTES = BM * HD * 2, TILE_BYTES = BN * HD * 2, THREADS = 128 * WGS + 128 };

#define LOG2E 1.44269504f

// Params are set by attention_wgmma.go.
struct Params {
  int steps, keys, heads, kv;        // kv: heads of keys
  int causal, offset, tiles, works;  // own tiles of a head, of all heads
  int group, all_heads;              // heads of a section; all heads: of queries, or of keys in their gradient
  float scale;
  int padded, hd;                    // rows of stats of a head; features
  u32 op;
  const i64* lengths;
  int* next;                         // two words, zero before and after a launch
  const i64 *qdocs, *kdocs;          // [batch, steps], [batch, keys]
  u64* bad;
  i64 qstep, kstep;                  // elements between rows of gradients
  // Dropout as of struct Heads (attention.cuh), where elems is a multiple of a head's elements, and all else of four.
  u64 key;
  u32 limit;
  float keep;
  i64 first, stride, elems;
};

// Work is a tile: its first row, head, sequence, and number of the head in the batch; the tiles from begin to end that it goes through, or
// keys up to end; how many keys count; and whether there is more work.
struct Work { int first, head, batch, number, begin, end, keys, more; };

__device__ __forceinline__ Work work_number(const Params& p, int w) {
  u32 section = (u32)w / (u32)(p.group * p.tiles), r = w - section * (p.group * p.tiles), first = section * p.group;
  u32 size = min(p.group, p.all_heads - (int)first);
  Work x;
  x.more = 1;
  x.begin = 0;
  x.first = r / size;
  x.number = first + (r - x.first * size);
  return x;
}
// work_of_queries is tile w of queries. Tiles are aligned to the last query: the partial one is the first, which sees fewest keys; its rows
// before 0 are nobody's.
__device__ __forceinline__ Work work_of_queries(const Params& p, int w) {
  Work x = work_number(p, w);
  x.first = p.steps - (x.first + 1) * BM;
  x.batch = x.number / (u32)p.heads;
  x.head = x.number - x.batch * p.heads;
  x.keys = p.keys;
  if (p.lengths) x.keys = (int)max(0ll, min((i64)p.keys, p.lengths[x.batch]));
  x.end = x.keys;
  if (p.causal) x.end = max(0, min(x.keys, x.first + BM + p.offset));
  return x;
}
// last_block makes the words zero again.
__device__ __forceinline__ void last_block(const Params& p) {
  __threadfence();
  if (atomicAdd(p.next + 1, 1) == (int)gridDim.x - 1) p.next[0] = p.next[1] = 0;
}

__device__ __forceinline__ void release(u32 bar) {
  if ((threadIdx.x & 31) == 0) barrier_arrive(bar);
}
__device__ __forceinline__ void take_turn(int wg) {
#if TURNS
  two_groups_wait(1 + wg);
#endif
}
__device__ __forceinline__ void next_turn(int wg) {
#if TURNS
  two_groups_arrive(1 + (wg + 1 == WGS ? 0 : wg + 1));
#endif
}
// Before the first work the last warpgroup gives the turn to the first, and after the last work that one takes it, so that no arrival is
// outstanding.
__device__ __forceinline__ void first_turn(int wg) {
#if TURNS
  if (wg == WGS - 1) two_groups_arrive(1);
#endif
}
__device__ __forceinline__ void last_turn(int wg) {
#if TURNS
  if (wg == 0) two_groups_wait(1);
#endif
}

#ifdef RINGO_EMU
inline void unpack(u32 v, float& lo, float& hi) {
  T x = {(u16)v}, y = {(u16)(v >> 16)};
  lo = to_float(x), hi = to_float(y);
}
inline float rcp_(float x) { return 1.f / x; }
inline float log2_(float x) { return log2f(x); }
#else
__device__ __forceinline__ void unpack(u32 v, float& lo, float& hi) {
  if (IsHalf<T>::value)
    asm("{.reg .b16 a, b;\nmov.b32 {a, b}, %2;\ncvt.f32.f16 %0, a;\ncvt.f32.f16 %1, b;}" : "=f"(lo), "=f"(hi) : "r"(v));
  else
    lo = __uint_as_float(v << 16), hi = __uint_as_float(v & 0xffff0000u);
}
// Approximations that the hardware has.
__device__ __forceinline__ float rcp_(float x) { float r; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }
__device__ __forceinline__ float log2_(float x) { float r; asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }
#endif

// scores is d = a bT over HD features: 64 rows of a tile of A_ROWS, from row 0 of address a, and all N rows of tile b.
template <int A_ROWS, int B_ROWS, int R> __device__ __forceinline__ void scores(float (&d)[R], u32 a, u32 b) {
  u64 da = matrix_at<0>(a, 0), db = matrix_at<0>(b, 0);
#pragma unroll
  for (int k = 0; k < HD / 16; k++)
    wgmma_ss(d, da + (u64)((k / 4 * A_ROWS * 128 + k % 4 * 32) >> 4), db + (u64)((k / 4 * B_ROWS * 128 + k % 4 * 32) >> 4), k != 0);
}
// add_product is d += p b: p packed, 64 rows and K columns, b a tile of K rows.
template <int K, int R, int P> __device__ __forceinline__ void add_product(float (&d)[R], const u32 (&p)[P], u32 b) {
  u64 db = matrix_at<1>(b, K * 128);
#pragma unroll
  for (int k = 0; k < K / 16; k++)
    wgmma_rs(d, p[4 * k], p[4 * k + 1], p[4 * k + 2], p[4 * k + 3], db + (u64)(k * 2048 >> 4), 1);
}
template <int R, int P> __device__ __forceinline__ void pack_all(u32 (&p)[P], const float (&s)[R]) {
#pragma unroll
  for (int i = 0; i < P; i++) p[i] = pack<T>(s[2 * i], s[2 * i + 1]);
}
// clear_rows makes rows from on of a tile of ROWS zero. Every warpgroup that reads the tile does it: an infinity or NaN there, times the 0
// of a masked key, is NaN.
template <int ROWS> __device__ __forceinline__ void clear_rows(u32 tile, int from, int wg) {
  for (int e = from * (HD / 8) + (threadIdx.x & 127); e < ROWS * (HD / 8); e += 128) {
    int r = e / (HD / 8), c = e % (HD / 8);
    zero16(tile + c / 8 * (ROWS * 128) + r * 128 + c % 8 * 16);
  }
  see_stores();
  group_barrier(8 + wg);
}

// at is where chunk c, of eight features, of row r of the own tile is.
__device__ __forceinline__ u32 at(u32 tile, int r, int c) { return tile + c / 8 * (BM * 128) + r * 128 + ((c ^ r) & 7) * 16; }

// store_rows writes scale[h]*acc to the warp's 16 rows from `row` on, of those in [0, rows), `step` elements apart, through `tile`, the
// warp's own rows in shared memory. A thread's rows of acc are lane/4 (h = 0) and 8 more. With EARLY, the barrier `done` is arrived at as
// soon as the tile is read, which takes registers; else it is the caller's.
template <bool EARLY>
__device__ __forceinline__ void store_rows(const Params& p, T* to, i64 step, int row, int rows, u32 tile, const float (&acc)[HD / 2],
                                           float scale0, float scale1, u32 done) {
  int lane = threadIdx.x & 31;
#pragma unroll
  for (int i = 0; i < HD / 16; i++)  // matrices: rows 0-7 and 8-15 of features 16i.., the same of 16i+8..
    store_matrices(at(tile, lane & 15, 2 * i + (lane >> 4)), pack<T>(acc[8 * i] * scale0, acc[8 * i + 1] * scale0),
                   pack<T>(acc[8 * i + 2] * scale1, acc[8 * i + 3] * scale1), pack<T>(acc[8 * i + 4] * scale0, acc[8 * i + 5] * scale0),
                   pack<T>(acc[8 * i + 6] * scale1, acc[8 * i + 7] * scale1));
  __syncwarp();
  int r = lane / (HD / 8), c = lane % (HD / 8);
  u32 v[HD / 16][4];
  auto store = [&](int i) {
    int n = row + r + i * (256 / HD);
    if (n >= 0 && n < rows && 8 * c < p.hd) store16(to + (i64)n * step + 8 * c, v[i]);
  };
#pragma unroll
  for (int i = 0; i < HD / 16; i++) {
    load16(v[i], at(tile, r + i * (256 / HD), c));
    if (!EARLY) store(i);
  }
  if (!EARLY) return;
  see_stores();
  __syncwarp();
  release(done);
#pragma unroll
  for (int i = 0; i < HD / 16; i++) store(i);
}

#if DROP
// block_of_dropout is the number of the generator's block of the first element of a head.
__device__ __forceinline__ u64 first_of_dropout(const Params& p, i64 head) {
  i64 e = head * p.steps * p.keys;
  return (u64)(p.first + p.stride * (e / p.elems) + e % p.elems);
}
// kept_rows sets the bits of the accumulators s[0..N/2) that are kept, where rows are queries, columns keys: n0 and n1 are the blocks of
// the thread's first row and of the one 8 behind, at the tile's first key. Even lanes compute the blocks of the first row, odd ones those
// of the other.
template <int N, int B> __device__ __forceinline__ void kept_rows(u32 (&bits)[B], u64 key, u32 limit, u64 n0, u64 n1) {
  bool odd = threadIdx.x & 1;
  u64 n = (odd ? n1 : n0) + (threadIdx.x >> 1 & 1);
#pragma unroll
  for (int i = 0; i < B; i++) bits[i] = 0;
#pragma unroll
  for (int i = 0; i < N / 8; i++) {
    Words w = philox(key, n + 2 * i);
    const u32* r = w.w;
    u32 a = __shfl_xor_sync(FULL_WARP, odd ? r[0] : r[2], 1), b = __shfl_xor_sync(FULL_WARP, odd ? r[1] : r[3], 1);
    u32 m = ((odd ? a : r[0]) >= limit ? 1 : 0) | ((odd ? b : r[1]) >= limit ? 2 : 0) | ((odd ? r[2] : a) >= limit ? 4 : 0) |
            ((odd ? r[3] : b) >= limit ? 8 : 0);
    bits[i / 8] |= m << (4 * (i % 8));
  }
}
// kept_cols is the same where rows are keys, columns queries, which are `step` blocks apart: n is the block of the thread's first row and
// column 0. Of the lanes of four keys, each computes the block of one of two rows and two columns.
template <int N, int B> __device__ __forceinline__ void kept_cols(u32 (&bits)[B], u64 key, u32 limit, u64 n, u64 step) {
  u32 l = threadIdx.x >> 2 & 3, t = threadIdx.x & 3;
  n += (2 * t + (l & 1)) * step + (l & 2);  // a row 8 behind is two blocks on
#pragma unroll
  for (int i = 0; i < B; i++) bits[i] = 0;
#pragma unroll
  for (int c = 0; c < N / 8; c++) {
    Words w = philox(key, n + (8 * c) * step);
    const u32* r = w.w;
    u32 s0 = __shfl_xor_sync(FULL_WARP, l & 1 ? r[0] : r[1], 4), s1 = __shfl_xor_sync(FULL_WARP, l & 1 ? r[2] : r[3], 4);
    u32 x0 = l & 1 ? s0 : r[0], x1 = l & 1 ? r[1] : s0, y0 = l & 1 ? s1 : r[2], y1 = l & 1 ? r[3] : s1;
    u32 u0 = __shfl_xor_sync(FULL_WARP, l & 2 ? x0 : y0, 8), u1 = __shfl_xor_sync(FULL_WARP, l & 2 ? x1 : y1, 8);
    u32 m = ((l & 2 ? u0 : x0) >= limit ? 1 : 0) | ((l & 2 ? u1 : x1) >= limit ? 2 : 0) | ((l & 2 ? y0 : u0) >= limit ? 4 : 0) |
            ((l & 2 ? y1 : u1) >= limit ? 8 : 0);
    bits[c / 8] |= m << (4 * (c % 8));
  }
}
template <int B> __device__ __forceinline__ bool kept(const u32 (&bits)[B], int i) { return bits[i / 32] >> (i % 32) & 1; }
#endif
