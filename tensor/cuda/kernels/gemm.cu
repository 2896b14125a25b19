// What products need beside cuBLASLt: T is a float, sums are in W.

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

// Groups of rows times a matrix each: the plain version, a tile of the result for each block. The sizes of the groups stay on
// the device.
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

// size_of_group is 0 for what is not a size, and never more than the rows that are left.
__device__ __forceinline__ i64 size_of_group(const i64* counts, i64 e, i64 first, i64 rows) {
  i64 n = counts[e] < 0 ? 0 : counts[e];
  return n < rows - first ? n : rows - first;
}

// check_counts notes a group of less than no rows, or the sum of the groups if that is not all rows.
__device__ __forceinline__ void check_counts(const i64* counts, i64 rows, i64 groups, u64* bad, u32 op) {
  if (blockIdx.x || blockIdx.y || blockIdx.z || threadIdx.x || threadIdx.y) return;
  i64 sum = 0;
  for (i64 e = 0; e < groups; e++) {
    if (counts[e] < 0) check_index(bad, op, counts[e], rows);
    sum += counts[e];
  }
  if (sum != rows) check_index(bad, op, sum, 0);
}

// grouped computes c = a*b[e] + beta*c on each group of rows: a is [rows, k], b[e] is [k, n], or [n, k] if tb. Blocks are
// tiles: x across n, y over the groups' rows, of which there are at most rows/TILE + groups tiles.
template <bool TB> __device__ __forceinline__ void grouped_tile(T* c, const T* a, const T* b, const i64* counts, i64 rows, i64 n, i64 k, i64 groups, W beta) {
  i64 first = 0, tiles = 0, e = 0, count = 0;
  for (; e < groups; e++) {
    count = size_of_group(counts, e, first, rows);
    i64 more = (count + TILE - 1) / TILE;
    if (blockIdx.y < tiles + more) break;
    tiles += more;
    first += count;
  }
  if (e == groups) return;
  i64 i0 = (blockIdx.y - tiles) * TILE, j0 = (i64)blockIdx.x * TILE;
  a += first * k, b += e * n * k, c += first * n;
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
  i64 first = 0, e = blockIdx.z, i0 = (i64)blockIdx.y * TILE, j0 = (i64)blockIdx.x * TILE;
  for (i64 o = 0; o < e; o++) first += size_of_group(counts, o, first, rows);
  i64 count = size_of_group(counts, e, first, rows);
  a += first * n, b += first * k, c += e * n * k;
  W sum[PER][PER] = {};
  tile<false, false>(sum, count, [=](int i, i64 t) { return i0 + i < n ? widen(a[t * n + i0 + i]) : W(0); },
                     [=](i64 t, int j) { return j0 + j < k ? widen(b[t * k + j0 + j]) : W(0); });
  for (int i = 0; i < PER; i++)
    for (int j = 0; j < PER; j++) {
      i64 row = i0 + threadIdx.y + i * SIDE, col = j0 + threadIdx.x + j * SIDE;
      if (row < n && col < k) put(c + row * k + col, sum[i][j], beta);
    }
}
