// Sums over equal indices, always in the order of the indices, so without atomic additions.

enum { LANES = 128, WORDS = 32, WINDOW = 32 * WORDS };

// find_rows copies indices; one that is out of range becomes NONE. It finds the first and the last place of each index: if these are i and
// j, first[id] becomes n - i and last[id] becomes j + 1. Both are 0 before.
enum : u32 { NONE = 0xffffffff };
extern "C" __global__ void find_rows(u32* first, u32* last, u32* row, const i64* ids, i64 n, i64 rows, u64* bad, u32 op) {
  for (i64 i = first_item(); i < n; i += all_threads()) {
    bool ok = check_index(bad, op, ids[i], rows);
    row[i] = ok ? (u32)ids[i] : NONE;
    if (!ok) continue;
    atomicMax(first + ids[i], (u32)(n - i));
    atomicMax(last + ids[i], (u32)(i + 1));
  }
}

// matches lists the places of id among row[at ..], at most WINDOW of them, and returns how many there are.
__device__ __forceinline__ int matches(u16* list, const u32* row, i64 at, i64 end, u32 id) {
  __shared__ u32 words[WORDS], before[WORDS];
  int t = threadIdx.x, lane = t % 32;
#pragma unroll
  for (int w = t / 32; w < WORDS; w += LANES / 32) {
    i64 i = at + w * 32 + lane;
    u32 word = __ballot_sync(FULL_WARP, i < end && row[i] == id);
    if (lane == 0) words[w] = word;
  }
  __syncthreads();
  if (t < 32) {
    int n = __popc(words[t]), sum = n;
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
      int lower = __shfl_up_sync(FULL_WARP, sum, o);
      if (t >= o) sum += lower;
    }
    before[t] = sum - n;
  }
  __syncthreads();
  for (int w = t / 32; w < WORDS; w += LANES / 32)
    if (words[w] >> lane & 1) list[before[w] + __popc(words[w] & ((1u << lane) - 1))] = (u16)(w * 32 + lane);
  int all = before[WORDS - 1] + __popc(words[WORDS - 1]);
  __syncthreads();
  return all;
}

// scatter adds all rows of x that have the index of row r to that row of y, in ascending order. A thread has N of the LANES*N columns of
// this blockIdx.y.
template <int N> __device__ __forceinline__ void scatter(T* y, const T* x, const u32* row, i64 r, i64 end, i64 cols) {
  __shared__ u16 list[WINDOW];
  u32 id = row[r];
  i64 c = ((i64)blockIdx.y * LANES + threadIdx.x) * N;
  bool active = c < cols;
  y += id * cols + c, x += c;
  Pack<W, N> sum;
  if (active) {
    Pack<T, N> p = load<N>(y), q = load<N>(x + r * cols);
#pragma unroll
    for (int k = 0; k < N; k++) sum.v[k] = plus(widen(p.v[k]), widen(q.v[k]));
  }
  for (i64 at = r + 1; at < end; at += WINDOW) {
    int all = matches(list, row, at, end, id);
    for (int i = 0; active && i < all; i += 4) {
      Pack<T, N> p[4];
#pragma unroll
      for (int j = 0; j < 4; j++)
        if (i + j < all) p[j] = load<N>(x + (at + list[i + j]) * cols);
#pragma unroll
      for (int j = 0; j < 4; j++) {
        if (i + j >= all) break;
#pragma unroll
        for (int k = 0; k < N; k++) sum.v[k] = plus(sum.v[k], widen(p[j].v[k]));
      }
    }
    __syncthreads();
  }
  if (!active) return;
  Pack<T, N> p;
#pragma unroll
  for (int k = 0; k < N; k++) p.v[k] = narrow<T>(sum.v[k]);
  *(Pack<T, N>*)y = p;
}

// scatter_rows adds row r of x to row ids[r] of y, for r ascending. There is a block for each r. The block of the first r with an index
// adds all rows with this index; the others do nothing.
extern "C" __global__ void scatter_rows(T* y, const T* x, const u32* first, const u32* last, const u32* row, i64 n, i64 cols, int vec) {
  for (i64 r = blockIdx.x; r < n; r += gridDim.x) {
    if (row[r] == NONE || n - first[row[r]] != r) continue;
    if (vec) scatter<16 / sizeof(T)>(y, x, row, r, last[row[r]], cols);
    else scatter<1>(y, x, row, r, last[row[r]], cols);
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
    W sum = widen(*at);
    for (i64 k = j; k < m; k++)
      if (column[k * inner] == id) sum = plus(sum, widen(x[(o * m + k) * inner + i]));
    *at = narrow<T>(sum);
  }
}
