// Sums over equal indices, always in the order of the indices, so without atomic additions.

typedef Wide<T>::type Sum;

// Integers wrap around.
template <class E> struct Unsigned { typedef E type; };
template <> struct Unsigned<int> { typedef u32 type; };
template <> struct Unsigned<i64> { typedef u64 type; };
__device__ __forceinline__ Sum plus(Sum a, Sum b) {
  typedef Unsigned<Sum>::type U;
  return (Sum)((U)a + (U)b);
}

enum { LANES = 256, EACH = 4 };

// scatter_rows adds row r of x to row ids[r] of y, for r ascending. A block does the first row with its index and looks for
// the others behind it: LANES indices at a time, of which it notes who matches. A thread has EACH columns, LANES apart;
// blockIdx.y counts LANES*EACH columns.
extern "C" __global__ void scatter_rows(T* y, const T* x, const i64* ids, i64 n, i64 cols, i64 rows, u64* bad, u32 op) {
  __shared__ u32 matches[LANES / 32];
  int t = threadIdx.x;
  i64 c0 = (i64)blockIdx.y * LANES * EACH + t;
  for (i64 r = blockIdx.x; r < n; r += gridDim.x) {
    i64 id = ids[r];
    if (!check_index(bad, op, id, rows)) continue;
    bool before = false;
    for (i64 k = t; k < r && !before; k += LANES) before = ids[k] == id;
    if (__syncthreads_or(before)) continue;
    Sum sum[EACH];
#pragma unroll
    for (int e = 0; e < EACH; e++)
      if (c0 + e * LANES < cols) sum[e] = widen(y[id * cols + c0 + e * LANES]);
    for (i64 k0 = r; k0 < n; k0 += LANES) {
      u32 match = __ballot_sync(FULL_WARP, k0 + t < n && ids[k0 + t] == id);
      if (t % 32 == 0) matches[t / 32] = match;
      __syncthreads();
      for (int w = 0; w < LANES / 32; w++) {
        for (u32 m = matches[w]; m; m &= m - 1) {
          i64 k = k0 + w * 32 + __ffs(m) - 1;
#pragma unroll
          for (int e = 0; e < EACH; e++)
            if (c0 + e * LANES < cols) sum[e] = plus(sum[e], widen(x[k * cols + c0 + e * LANES]));
        }
      }
      __syncthreads();
    }
#pragma unroll
    for (int e = 0; e < EACH; e++)
      if (c0 + e * LANES < cols) y[id * cols + c0 + e * LANES] = narrow<T>(sum[e]);
  }
}

// scatter_columns adds x[o,j,i] to y[o, ids[o,j,i], i] for j ascending: a thread for each o and i. y is [outer, n, inner], x
// and ids are [outer, m, inner]. It rounds at each addition, so it is for m = 1 or for types that need no rounding.
extern "C" __global__ void scatter_columns(T* y, const T* x, const i64* ids, i64 outer, i64 n, i64 m, i64 inner, u64* bad, u32 op) {
  for (i64 c = first_item(); c < outer * inner; c += all_threads()) {
    i64 o = c / inner, i = c % inner;
    for (i64 j = 0; j < m; j++) {
      i64 e = (o * m + j) * inner + i, id = ids[e];
      if (!check_index(bad, op, id, n)) continue;
      T* at = y + (o * n + id) * inner + i;
      *at = narrow<T>(plus(widen(*at), widen(x[e])));
    }
  }
}

// scatter_elements is the same with a thread for each element of x: the first one with its index adds up all of them, and
// rounds once.
extern "C" __global__ void scatter_elements(T* y, const T* x, const i64* ids, i64 outer, i64 n, i64 m, i64 inner, u64* bad, u32 op) {
  for (i64 e = first_item(); e < outer * m * inner; e += all_threads()) {
    i64 i = e % inner, j = e / inner % m, o = e / inner / m, id = ids[e];
    if (!check_index(bad, op, id, n)) continue;
    const i64* column = ids + o * m * inner + i;
    bool first = true;
    for (i64 k = 0; k < j && first; k++) first = column[k * inner] != id;
    if (!first) continue;
    T* at = y + (o * n + id) * inner + i;
    Sum sum = widen(*at);
    for (i64 k = j; k < m; k++)
      if (column[k * inner] == id) sum = plus(sum, widen(x[(o * m + k) * inner + i]));
    *at = narrow<T>(sum);
  }
}
