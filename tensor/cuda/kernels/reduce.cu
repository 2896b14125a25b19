// Reductions of the middle dimension of x [outer, n, inner]. Every sum has a fixed order: threads add up elements that are a
// fixed distance apart, and their sums are added as a tree. Long sums are cut in parts of fixed lengths, which a second
// kernel adds up.

enum { LANES = 256, COLS = 32, ROWS = 8 };

// sum_lanes adds up v over the first `lanes` threads of each group of that many: a power of two, at most a block. Thread 0 of
// a group gets the sum.
__device__ __forceinline__ W sum_lanes(W v, W* shared, int lanes) {
  int t = threadIdx.x;
  shared[t] = v;
  __syncthreads();
  for (int k = lanes / 2; k > 0; k /= 2) {
    if (t % lanes < k) shared[t] = plus(shared[t], shared[t + k]);
    __syncthreads();
  }
  return shared[t];
}

// sum_lines computes y[r] = the sum of part r of x: part r is elements r % parts * len on of line r / parts, which has n
// elements. `lanes` threads do a part.
template <class D, class S> __device__ __forceinline__ void sum_lines(D* y, const S* x, i64 n, i64 len, i64 parts, i64 all, int lanes) {
  __shared__ W shared[LANES];
  i64 r = (i64)blockIdx.x * (LANES / lanes) + threadIdx.x / lanes;
  W sum = 0;
  if (r < all) {
    i64 from = r % parts * len, to = from + len < n ? from + len : n;
    const S* line = x + r / parts * n;
    for (i64 i = from + threadIdx.x % lanes; i < to; i += lanes) sum = plus(sum, widen(line[i]));
  }
  sum = sum_lanes(sum, shared, lanes);
  if (r < all && threadIdx.x % lanes == 0) y[r] = narrow<D>(sum);
}

extern "C" __global__ void sum_rows(T* y, const T* x, i64 n, i64 len, i64 parts, i64 all, int lanes) {
  sum_lines(y, x, n, len, parts, all, lanes);
}
extern "C" __global__ void sum_row_parts(W* y, const T* x, i64 n, i64 len, i64 parts, i64 all, int lanes) {
  sum_lines(y, x, n, len, parts, all, lanes);
}
extern "C" __global__ void sum_row_ends(T* y, const W* x, i64 n, i64 len, i64 parts, i64 all, int lanes) {
  sum_lines(y, x, n, len, parts, all, lanes);
}

// pack_at loads a pack: 16 bytes at a time if vec.
template <int N> __device__ __forceinline__ Pack<T, N> pack_at(const T* p, int vec) {
  if (vec) return load<N>(p);
  Pack<T, N> r;
#pragma unroll
  for (int j = 0; j < N; j++) r.v[j] = p[j];
  return r;
}

// sum_part computes y[l, p] = the sum of part p of x[l], which has n elements, and a part `len` of them, a multiple of four packs of all
// threads. A block has LANES threads and one part. Each loads four packs before it adds the first. The order does not depend on vec: lines
// are aligned to 16 bytes.
extern "C" __global__ void __launch_bounds__(LANES) sum_part(W* y, const T* x, i64 n, i64 len, i64 parts, int vec) {
  constexpr int N = 16 / sizeof(T);
  __shared__ W shared[LANES];
  i64 from = blockIdx.x % parts * len, to = from + len < n ? from + len : n, i = from + threadIdx.x * N;
  x += blockIdx.x / parts * n;
  W sum[4] = {};
  for (; i + (3 * LANES + 1) * N <= to; i += 4 * LANES * N) {
    Pack<T, N> p[4];
#pragma unroll
    for (int k = 0; k < 4; k++) p[k] = pack_at<N>(x + i + k * LANES * N, vec);
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
      for (int j = 0; j < N; j++) sum[k] = plus(sum[k], widen(p[k].v[j]));
  }
  for (; i + N <= to; i += LANES * N) {
    Pack<T, N> p = pack_at<N>(x + i, vec);
#pragma unroll
    for (int j = 0; j < N; j++) sum[0] = plus(sum[0], widen(p.v[j]));
  }
  for (; i < to; i++) sum[1] = plus(sum[1], widen(x[i]));  // less than a pack, of one thread
  sum[0] = sum_lanes(plus(plus(sum[0], sum[1]), plus(sum[2], sum[3])), shared, LANES);
  if (threadIdx.x == 0) y[blockIdx.x] = sum[0];
}

// sum_columns computes y[o, p, i] = the sum of rows p*len on of x[o, :, i], added to what is there if add. Blocks are COLS*N
// columns by ROWS.
template <int N, class D, class S> __device__ __forceinline__ void sum_columns(D* y, const S* x, i64 n, i64 inner, i64 len, i64 parts, int add) {
  __shared__ W shared[ROWS][N][COLS];
  i64 across = (inner + COLS * N - 1) / (COLS * N), b = blockIdx.x;
  i64 i = (b % across * COLS + threadIdx.x) * N, p = b / across % parts, o = b / across / parts;
  i64 from = p * len, to = from + len < n ? from + len : n;
  W sum[N] = {};
  if (i < inner) {
    const S* at = x + (o * n + from + threadIdx.y) * inner + i;
#pragma unroll 4
    for (i64 r = from + threadIdx.y; r < to; r += ROWS, at += ROWS * inner) {
      Pack<S, N> v = *(const Pack<S, N>*)at;
#pragma unroll
      for (int k = 0; k < N; k++) sum[k] = plus(sum[k], widen(v.v[k]));
    }
  }
#pragma unroll
  for (int k = 0; k < N; k++) shared[threadIdx.y][k][threadIdx.x] = sum[k];
  __syncthreads();
  for (int h = ROWS / 2; h > 0; h /= 2) {
    if (threadIdx.y < h)
#pragma unroll
      for (int k = 0; k < N; k++)
        shared[threadIdx.y][k][threadIdx.x] = plus(shared[threadIdx.y][k][threadIdx.x], shared[threadIdx.y + h][k][threadIdx.x]);
    __syncthreads();
  }
  if (i >= inner || threadIdx.y) return;
  D* at = y + (o * parts + p) * inner + i;
#pragma unroll
  for (int k = 0; k < N; k++) at[k] = narrow<D>(add ? plus(widen(at[k]), shared[0][k][threadIdx.x]) : shared[0][k][threadIdx.x]);
}

// In vectors of 16 bytes if vec.
template <class D, class S> __device__ __forceinline__ void sum_columns(D* y, const S* x, i64 n, i64 inner, i64 len, i64 parts, int add, int vec) {
  if (vec) sum_columns<16 / sizeof(S)>(y, x, n, inner, len, parts, add);
  else sum_columns<1>(y, x, n, inner, len, parts, add);
}

extern "C" __global__ void sum_cols(T* y, const T* x, i64 n, i64 inner, i64 len, i64 parts, int add, int vec) {
  sum_columns(y, x, n, inner, len, parts, add, vec);
}
extern "C" __global__ void sum_col_parts(W* y, const T* x, i64 n, i64 inner, i64 len, i64 parts, int add, int vec) {
  sum_columns(y, x, n, inner, len, parts, add, vec);
}
extern "C" __global__ void sum_col_ends(T* y, const W* x, i64 n, i64 inner, i64 len, i64 parts, int add, int vec) {
  sum_columns(y, x, n, inner, len, parts, add, vec);
}

// Best is an element and its place. The first NaN comes before all others; else it is the first of the largest (or smallest) elements.
struct Best {
  W v;
  i64 at;
};
template <bool MAX> __device__ __forceinline__ Best better(Best a, Best b) {
  if (a.at < 0 || b.at < 0) return a.at < 0 ? b : a;
  bool nan_a = a.v != a.v, nan_b = b.v != b.v;
  bool first = a.at < b.at;
  if (nan_a || nan_b) return nan_a && (!nan_b || first) ? a : b;
  if (a.v == b.v) return first ? a : b;
  return (MAX ? a.v > b.v : a.v < b.v) ? a : b;
}

// take makes element i the best one, if it is: places come in ascending order.
template <bool MAX> __device__ __forceinline__ void take(Best& best, W v, i64 i) {
  if (best.at < 0 || !(MAX ? v <= best.v : v >= best.v) && best.v == best.v) best = {v, i};
}

// extreme finds the best of `all` pieces of lines: `lanes` threads do one. Lines are x[o, :, c], and have n elements. Without `of`, a piece is
// one of the line's `parts`, of `len` elements, whole packs. With `of` [outer, parts, inner], it is the elements at those places: the
// best of the parts. Parts have no y, and there may be no at. vec says that a line can be loaded 16 bytes at a time.
template <bool MAX>
__device__ __forceinline__ void extreme(T* y, i64* at, const T* x, const i64* of, i64 n, i64 inner, i64 len, i64 parts, i64 all, int lanes, int vec) {
  constexpr int N = 16 / sizeof(T), AHEAD = 4;
  __shared__ Best shared[LANES];
  // Neighbouring threads read neighbouring elements: of a line, or of neighbouring columns.
  int groups = LANES / lanes, t = threadIdx.x, lane = t % lanes, group = t / lanes;
  if (inner > 1) lane = t / groups, group = t % groups;
  i64 r = (i64)blockIdx.x * groups + group, c = r % inner, o = r / inner, from = 0, to = parts;
  if (!of) {
    from = o % parts * len, to = from + len < n ? from + len : n;
    o /= parts;
  }
  const T* line = x + o * n * inner + c;
  Best best = {0, -1};
  if (r >= all) {
  } else if (of) {
    of += o * parts * inner + c;
    for (i64 i = lane; i < to; i += lanes) {
      i64 place = of[i * inner];
      take<MAX>(best, widen(line[place * inner]), place);
    }
  } else if (vec) {
    i64 i = from + lane * N, step = (i64)lanes * N;
    for (; i + (AHEAD - 1) * step + N <= to; i += AHEAD * step) {
      Pack<T, N> p[AHEAD];
#pragma unroll
      for (int k = 0; k < AHEAD; k++) p[k] = load<N>(line + i + k * step);
#pragma unroll
      for (int k = 0; k < AHEAD; k++)
#pragma unroll
        for (int j = 0; j < N; j++) take<MAX>(best, widen(p[k].v[j]), i + k * step + j);
    }
    for (; i + N <= to; i += step) {
      Pack<T, N> p = load<N>(line + i);
#pragma unroll
      for (int j = 0; j < N; j++) take<MAX>(best, widen(p.v[j]), i + j);
    }
    for (; i < to; i++) take<MAX>(best, widen(line[i]), i);  // less than a pack, of one thread
  } else {
    for (i64 i = from + lane; i < to; i += lanes) take<MAX>(best, widen(line[i * inner]), i);
  }
  int me = lane * groups + group;
  shared[me] = best;
  __syncthreads();
  for (int k = lanes / 2; k > 0; k /= 2) {
    if (lane < k) shared[me] = better<MAX>(shared[me], shared[me + k * groups]);
    __syncthreads();
  }
  if (r < all && lane == 0) {
    if (y) y[r] = line[shared[me].at * inner];
    if (at) at[r] = shared[me].at;
  }
}

// top_k finds the k largest of the n elements of each row in k rounds. A round finds the best element after that of the round before.
extern "C" __global__ void top_k(i64* at, const T* x, i64 n, i64 k, i64 rows, int lanes) {
  __shared__ Best shared[LANES];
  int groups = LANES / lanes, t = threadIdx.x, lane = t % lanes, group = t / lanes;
  i64 r = (i64)blockIdx.x * groups + group;
  const T* row = x + r * n;
  Best last = {0, -1};
  for (i64 c = 0; c < k; c++) {
    Best best = {0, -1};
    if (r < rows)
      for (i64 i = lane; i < n; i += lanes) {
        Best e = {widen(row[i]), i};
        bool later = last.at < 0 || i != last.at && better<true>(last, e).at == last.at;
        if (later) best = better<true>(best, e);
      }
    shared[t] = best;
    __syncthreads();
    for (int w = lanes / 2; w > 0; w /= 2) {
      if (lane < w) shared[t] = better<true>(shared[t], shared[t + w]);
      __syncthreads();
    }
    last = shared[t - lane];
    if (r < rows && lane == 0) at[r * k + c] = last.at;
    __syncthreads();
  }
}

#define EXTREME(NAME, MAX)                                                                                                                \
  extern "C" __global__ void NAME(T* y, i64* at, const T* x, const i64* of, i64 n, i64 inner, i64 len, i64 parts, i64 all, int lanes,     \
                                  int vec) {                                                                                              \
    extreme<MAX>(y, at, x, of, n, inner, len, parts, all, lanes, vec);                                                                    \
  }
EXTREME(maximum_of, true)
EXTREME(minimum_of, false)
