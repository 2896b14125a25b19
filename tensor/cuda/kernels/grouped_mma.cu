#include "mma.cuh"
#include "grouped.cuh"

// Grouped products on tensor cores: each group of rows is multiplied by its own matrix. T is a 16-bit float, sums are float32, and the
// rows of all matrices have a multiple of eight elements.
//
// A block computes a tile of TILE x TILE elements; each of its eight warps computes 64 x 32 of them. It goes along k in steps of DEPTH,
// and copies them to shared memory STAGES-1 steps ahead.

enum { TILE = 128, DEPTH = 32, LANES = 256, STAGES = 3, PER_M = 4, PER_N = 4, STAGE = TILE * (DEPTH + 8) };

// Side is a tile of a [rows, k] or of b [k, cols]. The first `valid` of its rows or columns exist; the others are 0. With INNER,
// neighbours in memory are neighbours in k. Otherwise they are neighbouring rows or columns, and ldmatrix transposes them.
template <bool A, bool INNER> struct Side {
  enum { ACROSS = INNER ? DEPTH : TILE, LD = ACROSS + 8, CHUNKS = ACROSS / 8 };
  const T* x;
  int ld, valid, depth;

  // fetch starts to copy the data of the step that begins at k. The distance between rows in shared memory is an odd multiple of 16 bytes,
  // so that ldmatrix reads eight rows from different banks.
  __device__ __forceinline__ void fetch(T* tile, int k) const {
#pragma unroll
    for (int i = 0; i < TILE * DEPTH / 8 / LANES; i++) {
      int r = threadIdx.x / CHUNKS + i * (LANES / CHUNKS), c = threadIdx.x % CHUNKS * 8;
      bool real = INNER ? r < valid && k + c < depth : c < valid && k + r < depth;
      const T* from = x + (INNER ? (i64)r * ld + k + c : (i64)(k + r) * ld + c);
      copy16(tile + r * LD + c, real ? from : x, real);
    }
  }

  // load gives 16 rows of a and 16 of k, as mma takes them; or 16 columns of b: r[0] and r[1] are for the first eight.
  __device__ __forceinline__ void load(u32 (&r)[4], const T* tile, int at, int k) const {
    int l = threadIdx.x & 31, row = A == INNER ? l & 15 : (l & 7) + (l & 16) / 2, col = A == INNER ? (l >> 4) * 8 : l & 8;
    if (INNER)
      ldmatrix(r, tile + (at + row) * LD + k + col);
    else
      ldmatrix_trans(r, tile + (k + row) * LD + at + col);
  }
};

// add_step is acc += a b for the warp's rows from m0 and columns from n0 on.
template <class A, class B>
__device__ __forceinline__ void add_step(float (&acc)[PER_M][PER_N][4], const A& a, const B& b, const T* as, const T* bs, int m0, int n0) {
#pragma unroll
  for (int k = 0; k < DEPTH; k += 16) {
    u32 x[PER_M][4];
#pragma unroll
    for (int m = 0; m < PER_M; m++) a.load(x[m], as, m0 + m * 16, k);
#pragma unroll
    for (int n = 0; n < PER_N; n += 2) {
      u32 y[4];
      b.load(y, bs, n0 + n * 8, k);
#pragma unroll
      for (int m = 0; m < PER_M; m++) {
        mma<T>(acc[m][n], x[m], y[0], y[1]);
        mma<T>(acc[m][n + 1], x[m], y[2], y[3]);
      }
    }
  }
}

// put_pair is c = sum + beta*c for two neighbours.
__device__ __forceinline__ void put_pair(T* c, float lo, float hi, float beta) {
  if (beta != 0) {
    Pack<T, 2> old = load<2>(c);
    lo += beta * widen(old.v[0]);
    hi += beta * widen(old.v[1]);
  }
  *(u32*)c = pack<T>(lo, hi);
}

// multiply is c = a*b + beta*c for the block's tile.
template <class A, class B> __device__ __forceinline__ void multiply(T* c, int ldc, const A& a, const B& b, float beta) {
  T *as = dynamic_shared<T>(), *bs = as + STAGES * STAGE;
  int steps = (a.depth + DEPTH - 1) / DEPTH, warp = threadIdx.x >> 5, m0 = warp / 4 * (16 * PER_M), n0 = warp % 4 * (8 * PER_N);
  auto fetch = [&](int s) {
    if (s < steps) {
      a.fetch(as + s % STAGES * STAGE, s * DEPTH);
      b.fetch(bs + s % STAGES * STAGE, s * DEPTH);
    }
    copies_commit();
  };
  float acc[PER_M][PER_N][4] = {};
  for (int s = 0; s < STAGES - 1; s++) fetch(s);
  for (int s = 0; s < steps; s++) {
    copies_wait<STAGES - 2>();
    __syncthreads();
    fetch(s + STAGES - 1);
    if (m0 < a.valid && n0 < b.valid) add_step(acc, a, b, as + s % STAGES * STAGE, bs + s % STAGES * STAGE, m0, n0);
  }
  int row = m0 + (threadIdx.x & 31) / 4, col = n0 + threadIdx.x % 4 * 2;
#pragma unroll
  for (int m = 0; m < PER_M; m++)
#pragma unroll
    for (int n = 0; n < PER_N; n++)
#pragma unroll
      for (int e = 0; e < 4; e += 2) {
        int i = row + m * 16 + e * 4, j = col + n * 8;
        if (i < a.valid && j < b.valid) put_pair(c + (i64)i * ldc + j, acc[m][n][e], acc[m][n][e + 1], beta);
      }
}

// tiles_of is the number of tiles of n rows or columns; rest is the number of rows or columns in the tile that begins at `from`.
__device__ __forceinline__ u32 tiles_of(i64 n) { return (u32)((n + TILE - 1) / TILE); }
__device__ __forceinline__ int rest(i64 n, i64 from) { return n - from < TILE ? (int)(n - from) : TILE; }

// group_tile is the kernel `grouped` of gemm.cu. Blocks are tiles, of a row of them first.
template <bool TB>
__device__ __forceinline__ void group_tile(T* c, const T* a, const T* b, const i64* counts, i64 rows, i64 n, i64 k, i64 groups, float beta) {
  u32 across = tiles_of(n);
  i64 tile = blockIdx.x / across, j = (i64)(blockIdx.x % across) * TILE;
  Group g = group_of<TILE>(counts, rows, groups, tile);
  if (g.number == groups) return;
  i64 i = tile * TILE, row = g.first + i;
  Side<true, true> as = {a + row * k, (int)k, rest(g.count, i), (int)k};
  Side<false, TB> bs = {b + g.number * n * k + j * (TB ? k : 1), (int)(TB ? k : n), rest(n, j), (int)k};
  multiply(c + row * n + j, (int)n, as, bs, beta);
}

extern "C" __global__ void __launch_bounds__(LANES, 2)
grouped_mma(T* c, const T* a, const T* b, const i64* counts, i64 rows, i64 n, i64 k, i64 groups, float beta, u64* bad, u32 op) {
  check_counts(counts, rows, groups, bad, op);
  group_tile<false>(c, a, b, counts, rows, n, k, groups, beta);
}

extern "C" __global__ void __launch_bounds__(LANES, 2)
grouped_mma_tb(T* c, const T* a, const T* b, const i64* counts, i64 rows, i64 n, i64 k, i64 groups, float beta, u64* bad, u32 op) {
  check_counts(counts, rows, groups, bad, op);
  group_tile<true>(c, a, b, counts, rows, n, k, groups, beta);
}

// grouped_mma_grad is grouped_grad of gemm.cu. Blocks are tiles: first across k, then across n, then groups.
extern "C" __global__ void __launch_bounds__(LANES, 2)
grouped_mma_grad(T* c, const T* a, const T* b, const i64* counts, i64 rows, i64 n, i64 k, i64 groups, float beta, u64* bad, u32 op) {
  check_counts(counts, rows, groups, bad, op);
  u32 across = tiles_of(k), line = blockIdx.x / across;
  i64 j = (i64)(blockIdx.x % across) * TILE, i = (i64)(line % tiles_of(n)) * TILE;
  Group g = group_number(counts, rows, line / tiles_of(n));
  Side<true, false> as = {a + g.first * n + i, (int)n, rest(n, i), (int)g.count};
  Side<false, false> bs = {b + g.first * k + j, (int)k, rest(k, j), (int)g.count};
  multiply(c + (g.number * n + i) * k + j, (int)k, as, bs, beta);
}
