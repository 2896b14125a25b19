// Bitonic sorting (Batcher 1968) of the places of a row's elements. Equal elements are ordered by their places, so that there is
// one order only. A row is padded to a power of two by places beyond its end, which come last.

// comes_first says whether place i comes before place j.
__device__ __forceinline__ bool comes_first(const T* row, int i, int j, i64 n, int descending) {
  if (i >= n || j >= n) return i < j;
  W a = widen(row[i]), b = widen(row[j]);
  bool nan_a = a != a, nan_b = b != b;
  bool above = nan_a || nan_b ? nan_a && !nan_b : a > b, below = nan_a || nan_b ? nan_b && !nan_a : a < b;
  if (above || below) return descending ? above : below;
  return i < j;
}

// exchange orders pair p of a step: places `distance` apart, in runs of `run`, which alternate between ascending and descending.
__device__ __forceinline__ void exchange(int* at, const T* row, i64 p, i64 n, i64 run, i64 distance, int descending) {
  i64 lo = 2 * p - (p & (distance - 1)), hi = lo + distance;
  bool up = (lo & run) == 0;
  int i = at[lo], j = at[hi];
  if (comes_first(row, j, i, n, descending) == up) at[lo] = j, at[hi] = i;
}

enum { SHORT = 1024 };

// sort_short: a block sorts a row of at most SHORT elements, which are padded to `size`.
extern "C" __global__ void sort_short(i64* out, const T* x, i64 n, int size, int descending) {
  __shared__ int at[SHORT];
  const T* row = x + blockIdx.x * n;
  for (int i = threadIdx.x; i < size; i += blockDim.x) at[i] = i;
  __syncthreads();
  for (int run = 2; run <= size; run *= 2)
    for (int distance = run / 2; distance > 0; distance /= 2) {
      for (int p = threadIdx.x; p < size / 2; p += blockDim.x) exchange(at, row, p, n, run, distance, descending);
      __syncthreads();
    }
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[blockIdx.x * n + i] = at[i];
}

// Longer rows are sorted step by step in memory: sort_begin, a sort_step for each step, sort_end.
extern "C" __global__ void sort_begin(int* at, i64 size, i64 all) {
  for (i64 i = first_item(); i < all; i += all_threads()) at[i] = (int)(i % size);
}
extern "C" __global__ void sort_step(int* at, const T* x, i64 n, i64 size, i64 rows, i64 run, i64 distance, int descending) {
  i64 half = size / 2;
  for (i64 i = first_item(); i < rows * half; i += all_threads())
    exchange(at + i / half * size, x + i / half * n, i % half, n, run, distance, descending);
}
extern "C" __global__ void sort_end(i64* out, const int* at, i64 n, i64 size, i64 all) {
  for (i64 i = first_item(); i < all; i += all_threads()) out[i] = at[i / n * size + i % n];
}
