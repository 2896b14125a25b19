#include "grouped.cuh"

// Kernels that products need in addition to cuBLASLt: T is a float, sums are in W.

// add_bias adds bias [cols] to each row of c; rows are ld elements apart.
extern "C" __global__ void add_bias(T* c, const T* bias, i64 rows, i64 cols, i64 ld) {
  for (i64 i = first_item(); i < rows * cols; i += all_threads()) {
    T* p = c + i / cols * ld + i % cols;
    *p = narrow<T>(widen(*p) + widen(bias[i % cols]));
  }
}

// scale_product is the product of matrices with an inner dimension of 0: c = beta*c, where c is [batch, rows, cols].
extern "C" __global__ void scale_product(T* c, i64 batch, i64 rows, i64 cols, i64 stride, i64 ld, W beta) {
  for (i64 i = first_item(); i < batch * rows * cols; i += all_threads()) {
    T* p = c + i / (rows * cols) * stride + i / cols % rows * ld + i % cols;
    *p = narrow<T>(beta == 0 ? W(0) : beta * widen(*p));
  }
}

// Grouped products: each group of rows is multiplied by its own matrix. This is the plain version; a block computes a tile of the result.
// The sizes of the groups stay on the device.
enum { TILE = 64, DEPTH = 16, SIDE = 16, PER = TILE / SIDE };

// tile adds up sum[i][j] = sum over k < depth of a(row, k) * b(k, col) for this thread's rows and columns of the tile.
// INNER says whether neighbours in memory are neighbours in k.
template <bool INNER_A, bool INNER_B, class A, class B>
__device__ __forceinline__ void tile(W sum[PER][PER], i64 depth, A a, B b) {
  __shared__ W as[DEPTH][TILE + 1], bs[DEPTH][TILE + 1];
  int t = threadIdx.y * SIDE + threadIdx.x;
  for (i64 k0 = 0; k0 < depth; k0 += DEPTH) {
    for (int e = t; e < TILE * DEPTH; e += SIDE * SIDE) {
      int ka = INNER_A ? e % DEPTH : e / TILE, i = INNER_A ? e / DEPTH : e % TILE;
      int kb = INNER_B ? e % DEPTH : e / TILE, j = INNER_B ? e / DEPTH : e % TILE;
      as[ka][i] = k0 + ka < depth ? a(i, k0 + ka) : W(0);
      bs[kb][j] = k0 + kb < depth ? b(k0 + kb, j) : W(0);
    }
    __syncthreads();
    for (int k = 0; k < DEPTH; k++)
#pragma unroll
      for (int i = 0; i < PER; i++)
#pragma unroll
        for (int j = 0; j < PER; j++) sum[i][j] += as[k][threadIdx.y + i * SIDE] * bs[k][threadIdx.x + j * SIDE];
    __syncthreads();
  }
}

__device__ __forceinline__ void put(T* p, W sum, W beta) { *p = narrow<T>(beta == 0 ? sum : sum + beta * widen(*p)); }

// grouped computes c = a*b[e] + beta*c on each group of rows: a is [rows, k], b[e] is [k, n], or [n, k] if tb. Blocks are
// tiles: x over the groups' rows, of which there are at most rows/TILE + groups tiles, y across n.
template <bool TB> __device__ __forceinline__ void grouped_tile(T* c, const T* a, const T* b, const i64* counts, i64 rows, i64 n, i64 k, i64 groups, W beta) {
  i64 tile_number = blockIdx.x;
  Group g = group_of<TILE>(counts, rows, groups, tile_number);
  if (g.number == groups) return;
  i64 i0 = tile_number * TILE, j0 = (i64)blockIdx.y * TILE, count = g.count;
  a += g.first * k, b += g.number * n * k, c += g.first * n;
  W sum[PER][PER] = {};
  tile<true, TB>(sum, k, [=](int i, i64 t) { return i0 + i < count ? widen(a[(i0 + i) * k + t]) : W(0); },
                 [=](i64 t, int j) { return j0 + j < n ? widen(TB ? b[(j0 + j) * k + t] : b[t * n + j0 + j]) : W(0); });
  for (int i = 0; i < PER; i++)
    for (int j = 0; j < PER; j++) {
      i64 row = i0 + threadIdx.y + i * SIDE, col = j0 + threadIdx.x + j * SIDE;
      if (row < count && col < n) put(c + row * n + col, sum[i][j], beta);
    }
}

extern "C" __global__ void grouped(T* c, const T* a, const T* b, const i64* counts, i64 rows, i64 n, i64 k, i64 groups, int tb, W beta, u64* bad, u32 op) {
  check_counts(counts, rows, groups, bad, op);
  if (tb) grouped_tile<true>(c, a, b, counts, rows, n, k, groups, beta);
  else grouped_tile<false>(c, a, b, counts, rows, n, k, groups, beta);
}

// grouped_grad computes c[e] = aT*b + beta*c[e] for each group of rows of a [rows, n] and b [rows, k]; c[e] is [n, k]. Blocks
// are tiles: x across k, y across n, z over groups.
extern "C" __global__ void grouped_grad(T* c, const T* a, const T* b, const i64* counts, i64 rows, i64 n, i64 k, i64 groups, W beta, u64* bad, u32 op) {
  check_counts(counts, rows, groups, bad, op);
  Group g = group_number(counts, rows, blockIdx.z);
  i64 i0 = (i64)blockIdx.y * TILE, j0 = (i64)blockIdx.x * TILE;
  a += g.first * n, b += g.first * k, c += g.number * n * k;
  W sum[PER][PER] = {};
  tile<false, false>(sum, g.count, [=](int i, i64 t) { return i0 + i < n ? widen(a[t * n + i0 + i]) : W(0); },
                     [=](i64 t, int j) { return j0 + j < k ? widen(b[t * k + j0 + j]) : W(0); });
  for (int i = 0; i < PER; i++)
    for (int j = 0; j < PER; j++) {
      i64 row = i0 + threadIdx.y + i * SIDE, col = j0 + threadIdx.x + j * SIDE;
      if (row < n && col < k) put(c + row * k + col, sum[i][j], beta);
    }
}
