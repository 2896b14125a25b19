// Softmax, log-softmax, log-sum-exp and cross-entropy, by rows of the last dimension: a block for each row. T is a float, sums are in W.
// Each thread adds up elements that are a fixed distance apart, and the sums of the threads are added as a tree. So the order depends on
// the length of the row alone. The second pass reads the row from the caches.

enum { MAX_WARPS = 32 };

__device__ __forceinline__ bool infinite(W x) { return x == INFINITY || x == -INFINITY; }

// Sum is the largest element so far and the sum of exp(x - max).
struct Sum { W max, sum; };

// add adds an element. -Inf adds nothing, NaN makes the sum NaN.
__device__ __forceinline__ void add(Sum& s, W x) {
  if (x > s.max) {
    s.sum = s.sum * exp_(s.max - x) + 1;
    s.max = x;
  } else if (x == s.max) {
    s.sum += x > -INFINITY ? 1 : 0;
  } else {
    s.sum += exp_(x - s.max);
  }
}

__device__ __forceinline__ Sum merge(Sum a, Sum b) {
  W max = a.max > b.max ? a.max : b.max;
  W x = a.max == max ? a.sum : a.sum * exp_(a.max - max);
  W y = b.max == max ? b.sum : b.sum * exp_(b.max - max);
  return {max, x + y};
}

// The block's sum, for all threads.
__device__ __forceinline__ Sum block(Sum s) {
  __shared__ W maxima[MAX_WARPS], sums[MAX_WARPS];
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) s = merge(s, {__shfl_xor_sync(FULL_WARP, s.max, o), __shfl_xor_sync(FULL_WARP, s.sum, o)});
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  if (lane == 0) maxima[warp] = s.max, sums[warp] = s.sum;
  __syncthreads();
  s = {-INFINITY, 0};
  for (int i = 0; i < warps; i++) s = merge(s, {maxima[i], sums[i]});
  return s;
}

__device__ __forceinline__ W block(W v) {
  __shared__ W sums[MAX_WARPS];
  v = warp_sum(v);
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  if (lane == 0) sums[warp] = v;
  __syncthreads();
  v = 0;
  for (int i = 0; i < warps; i++) v += sums[i];
  return v;
}

__device__ __forceinline__ Sum max_and_sum(const T* x, i64 cols, bool vec) {
  Sum s = {-INFINITY, 0};
  pieces(cols, vec, [&](i64 i, auto n) {
    auto p = load<n.value>(x + i);
    W max = s.max;
#pragma unroll
    for (int k = 0; k < n.value; k++) max = widen(p.v[k]) > max ? widen(p.v[k]) : max;
    if (infinite(max)) {
      for (int k = 0; k < n.value; k++) add(s, widen(p.v[k]));
      return;
    }
    if (max > s.max) s.sum *= exp_(s.max - max), s.max = max;  // seldom
#pragma unroll
    for (int k = 0; k < n.value; k++) s.sum += fast_exp(widen(p.v[k]) - max);
  });
  return block(s);
}

// log_of is ln(sum(exp(x))): -Inf if all elements are -Inf, NaN if one is NaN.
__device__ __forceinline__ W log_of(Sum s) { return s.sum != s.sum ? s.sum : infinite(s.max) ? s.max : s.max + log_(s.sum); }

// softmax_row is the softmax of the first `visible` elements of a row, and 0 for the others. A row of -Inf, or with +Inf, gives NaN.
__device__ __forceinline__ void softmax_row(T* y, const T* x, i64 cols, i64 visible, bool vec) {
  Sum s = max_and_sum(x, visible, vec);
  W scale = infinite(s.max) ? W(NAN) : 1 / s.sum;
  pieces(visible, vec, [&](i64 i, auto n) {
    auto p = load<n.value>(x + i);
#pragma unroll
    for (int k = 0; k < n.value; k++) p.v[k] = narrow<T>(exp_(widen(p.v[k]) - s.max) * scale);
    *(decltype(p)*)(y + i) = p;
  });
  for (i64 i = visible + threadIdx.x; i < cols; i += blockDim.x) y[i] = narrow<T>(W(0));
}

extern "C" __global__ void softmax(T* y, const T* x, i64 cols) {
  i64 at = blockIdx.x * cols;
  softmax_row(y + at, x + at, cols, cols, whole(x, cols) && whole(y, cols));
}

// softmax_causal: row r stands at query position q = r%queries and sees columns up to q+(cols-queries).
extern "C" __global__ void softmax_causal(T* y, const T* x, i64 cols, i64 queries) {
  i64 at = blockIdx.x * cols, visible = blockIdx.x % queries + cols - queries + 1;
  softmax_row(y + at, x + at, cols, visible < 0 ? 0 : visible, false);
}

extern "C" __global__ void softmax_grad(T* d, const T* y, const T* g, i64 cols) {
  i64 at = blockIdx.x * cols;
  bool vec = whole(d, cols) && whole(y, cols) && whole(g, cols);
  d += at, y += at, g += at;
  W dot = 0;
  pieces(cols, vec, [&](i64 i, auto n) {
    auto p = load<n.value>(y + i), q = load<n.value>(g + i);
#pragma unroll
    for (int k = 0; k < n.value; k++) dot += widen(p.v[k]) * widen(q.v[k]);
  });
  dot = block(dot);
  pieces(cols, vec, [&](i64 i, auto n) {
    auto p = load<n.value>(y + i), q = load<n.value>(g + i);
#pragma unroll
    for (int k = 0; k < n.value; k++) p.v[k] = narrow<T>(widen(p.v[k]) * (widen(q.v[k]) - dot));
    *(decltype(p)*)(d + i) = p;
  });
}

extern "C" __global__ void log_softmax(T* y, const T* x, i64 cols) {
  i64 at = blockIdx.x * cols;
  bool vec = whole(y, cols) && whole(x, cols);
  y += at, x += at;
  Sum s = max_and_sum(x, cols, vec);
  W lse = log_of(s), rest = infinite(s.max) ? W(0) : log_(s.sum), top = infinite(s.max) || lse != lse ? lse : s.max;
  pieces(cols, vec, [&](i64 i, auto n) {
    auto p = load<n.value>(x + i);
#pragma unroll
    for (int k = 0; k < n.value; k++) p.v[k] = narrow<T>(widen(p.v[k]) - top - rest);
    *(decltype(p)*)(y + i) = p;
  });
}

extern "C" __global__ void log_softmax_grad(T* d, const T* y, const T* g, i64 cols) {
  i64 at = blockIdx.x * cols;
  bool vec = whole(d, cols) && whole(y, cols) && whole(g, cols);
  d += at, y += at, g += at;
  W sum = 0;
  pieces(cols, vec, [&](i64 i, auto n) {
    auto q = load<n.value>(g + i);
#pragma unroll
    for (int k = 0; k < n.value; k++) sum += widen(q.v[k]);
  });
  sum = block(sum);
  pieces(cols, vec, [&](i64 i, auto n) {
    auto p = load<n.value>(y + i), q = load<n.value>(g + i);
#pragma unroll
    for (int k = 0; k < n.value; k++) p.v[k] = narrow<T>(widen(q.v[k]) - exp_(widen(p.v[k])) * sum);
    *(decltype(p)*)(d + i) = p;
  });
}

extern "C" __global__ void log_sum_exp(W* y, const T* x, i64 cols) {
  Sum s = max_and_sum(x + blockIdx.x * cols, cols, whole(x, cols));
  if (threadIdx.x == 0) y[blockIdx.x] = log_of(s);
}

// stream stores values that are read much later, with a hint that the caches need not keep them: so the rows that are read soon stay there.
template <int N> __device__ __forceinline__ void stream(T* to, const Pack<T, N>& p) {
  if constexpr (N * sizeof(T) == 16) __stcs((uint4*)to, *(const uint4*)&p);
  else *(Pack<T, N>*)to = p;
}

// scaled_exp computes d = scale*(exp(x - lse) - off), minus scale*hit for element y. d may be x.
__device__ __forceinline__ void scaled_exp(T* d, const T* x, W lse, W scale, W off, i64 y, W hit, i64 cols, bool vec) {
  pieces(cols, vec, [&](i64 i, auto n) {
    auto p = load<n.value>(x + i);
#pragma unroll
    for (int k = 0; k < n.value; k++)
      p.v[k] = narrow<T>(scale * (fast_exp(widen(p.v[k]) - lse) - off - (i + k == y ? hit : W(0))));
    stream(d + i, p);
  });
}

extern "C" __global__ void log_sum_exp_grad(T* d, const T* x, const W* lse, const T* g, i64 cols) {
  i64 r = blockIdx.x;
  scaled_exp(d + r * cols, x + r * cols, lse[r], widen(g[r]), 0, -1, 0, cols, whole(d, cols) && whole(x, cols));
}

// cross_entropy_grad_row is a row of cross_entropy_grad.
__device__ __forceinline__ void cross_entropy_grad_row(T* d, const T* x, W lse, i64 y, W scale, i64 cols, W smoothing, i64 ignore, bool vec) {
  if (y == ignore || y < 0 || y >= cols) {
    for (i64 i = threadIdx.x; i < cols; i += blockDim.x) d[i] = narrow<T>(W(0));
    return;
  }
  scaled_exp(d, x, lse, scale, smoothing / cols, y, 1 - smoothing, cols, vec);
}

// Two blocks of cross_entropy on a multiprocessor leave 32 registers for each thread, too few for float64.
enum { BLOCKS = sizeof(T) == 8 ? 1 : 2 };

// cross_entropy: loss = (1-smoothing)*(lse - x[label]) + smoothing*(lse - mean(x)), and 0 for label `ignore`. If there is d, which
// may be x, it becomes the gradient of scale times the loss, and loss is that; the row is in a cache then.
extern "C" __global__ void __launch_bounds__(32 * MAX_WARPS, BLOCKS) cross_entropy(W* loss, W* lse, T* d, const T* x, const i64* label, i64 cols, W smoothing,
                                                                                 i64 ignore, W scale, u64* bad, u32 op) {
  i64 r = blockIdx.x, y = label[r];
  bool vec = whole(x, cols) && (!d || whole(d, cols));
  x += r * cols;
  W at = y >= 0 && y < cols ? widen(x[y]) : W(0);  // before anything is written to d
  Sum s = max_and_sum(x, cols, vec);
  W all = 0, l = log_of(s);
  if (smoothing != 0) {
    pieces(cols, vec, [&](i64 i, auto n) {
      auto p = load<n.value>(x + i);
#pragma unroll
      for (int k = 0; k < n.value; k++) all += widen(p.v[k]);
    });
    all = block(all);
  }
  if (threadIdx.x == 0) {  // before the gradient, which needs registers
    lse[r] = l;
    bool plain = infinite(s.max) || s.sum != s.sum;
    W top = plain ? l : s.max, rest = plain ? W(0) : log_(s.sum);  // l, without rounding it
    W v = top - at + rest;
    if (smoothing != 0) v = (1 - smoothing) * v + smoothing * (top - all / cols + rest);
    loss[r] = y == ignore || !check_index(bad, op, y, cols) ? W(0) : d ? v * scale : v;
  }
  if (d) cross_entropy_grad_row(d + r * cols, x, l, y, scale, cols, smoothing, ignore, vec);
}

// cross_entropy_grad: d = g*(exp(x-lse) - (1-smoothing)*[j = label] - smoothing/cols); g has an element for each row, or one.
extern "C" __global__ void cross_entropy_grad(T* d, const T* x, const W* lse, const i64* label, const W* g, i64 glen, i64 cols, W smoothing, i64 ignore) {
  i64 r = blockIdx.x, y = label[r];
  bool vec = whole(d, cols) && whole(x, cols);
  cross_entropy_grad_row(d + r * cols, x + r * cols, lse[r], y, g[glen > 1 ? r : 0], cols, smoothing, ignore, vec);
}
