// Kernels over lists of tensors: the optimizers, and sums of squares. T is the type of gradients. Values and moments are in W;
// 16-bit values are in another tensor, which gets the rounded new value. The order of operations, and what counts as 0, are those of
// internal/kernel.

enum { MAX_GROUPS = 64, LANES = 256, N = 16 / sizeof(W), AHEAD = 2 };

// List is up to MAX_GROUPS groups of tensors of one length; blocks start[i] on work on group i. (tensorList in optim.go)
struct List {
  int count, unused;
  int start[MAX_GROUPS + 2];
  i64 len[MAX_GROUPS];
  void* at[5][MAX_GROUPS];
};

// group_of finds the group of a block.
__device__ __forceinline__ int group_of(const List& list, int block) {
  int lo = 0, hi = list.count;
  while (hi - lo > 1) {
    int mid = (lo + hi) / 2;
    if (list.start[mid] <= block) lo = mid; else hi = mid;
  }
  return lo;
}

// flush is x, or 0 if |x| < limit.
__device__ __forceinline__ W flush(W x, W limit) { return -limit < x && x < limit ? W(0) : x; }

// Element is what a step reads and writes.
struct Element { W p, g, m, v; };

// step_all applies f to the elements of this block's part: `part` of them. m and v may be missing. A thread loads AHEAD packs of each
// tensor before it uses the first.
template <class F> __device__ __forceinline__ void step_all(const List& list, int part, F f) {
  int i = group_of(list, blockIdx.x);
  i64 from = (i64)(blockIdx.x - list.start[i]) * part, n = list.len[i] - from < part ? list.len[i] - from : part;
  W* p = (W*)list.at[0][i] + from;
  const T* g = (const T*)list.at[1][i] + from;
  W* m = list.at[2][i] ? (W*)list.at[2][i] + from : 0;
  W* v = list.at[3][i] ? (W*)list.at[3][i] + from : 0;
  T* low = list.at[4][i] ? (T*)list.at[4][i] + from : 0;
  i64 done = 0;
  if (aligned(p, 16) && aligned(m, 16) && aligned(v, 16) && aligned(g, N * sizeof(T)) && aligned(low, N * sizeof(T))) {
    typedef Pack<W, N> P;
    typedef Pack<T, N> L;
    int packs = (int)(n / N);
    for (int first = threadIdx.x; first < packs; first += AHEAD * LANES) {
      P a[AHEAD], b[AHEAD], c[AHEAD];
      L d[AHEAD];
#pragma unroll
      for (int u = 0; u < AHEAD; u++) {
        int k = first + u * LANES;
        if (k >= packs) break;
        a[u] = ((P*)p)[k];
        d[u] = ((const L*)g)[k];
        if (m) b[u] = ((P*)m)[k];
        if (v) c[u] = ((P*)v)[k];
      }
#pragma unroll
      for (int u = 0; u < AHEAD; u++) {
        int k = first + u * LANES;
        if (k >= packs) break;
#pragma unroll
        for (int j = 0; j < N; j++) {
          Element e = {a[u].v[j], widen(d[u].v[j]), m ? b[u].v[j] : W(0), v ? c[u].v[j] : W(0)};
          f(e);
          a[u].v[j] = e.p;
          b[u].v[j] = e.m;
          c[u].v[j] = e.v;
          d[u].v[j] = narrow<T>(e.p);
        }
        ((P*)p)[k] = a[u];
        if (m) ((P*)m)[k] = b[u];
        if (v) ((P*)v)[k] = c[u];
        if (low) ((L*)low)[k] = d[u];
      }
    }
    done = n / N * N;
  }
  for (i64 k = done + threadIdx.x; k < n; k += LANES) {
    Element e = {p[k], widen(g[k]), m ? m[k] : W(0), v ? v[k] : W(0)};
    f(e);
    p[k] = e.p;
    if (m) m[k] = e.m;
    if (v) v[k] = e.v;
    if (low) low[k] = narrow<T>(e.p);
  }
}

// The optimizers multiply gradients by *factor first, if there is one. If it is NaN, they change nothing.

extern "C" __global__ void __launch_bounds__(LANES) sgd(const __grid_constant__ List list, int part, const double* factor, int nesterov,
                                                        int first, W lr, W mu, W in, W wd, W tiny) {
  W scale = factor ? (W)*factor : W(1);
  if (scale != scale) return;
  step_all(list, part, [=](Element& e) {
    W d = flush(e.g, tiny) * scale + wd * e.p;
    if (mu != 0) {
      e.m = flush(first ? d : mu * flush(e.m, tiny) + in * d, tiny);
      d = nesterov ? d + mu * e.m : e.m;
    }
    e.p -= lr * d;
  });
}

extern "C" __global__ void __launch_bounds__(LANES) adam(const __grid_constant__ List list, int part, const double* factor, W step,
                                                         W root, W eps, W in1, W b2, W in2, W tiny, W least, W normal, W wd, W keep) {
  W scale = factor ? (W)*factor : W(1);
  if (scale != scale) return;
  step_all(list, part, [=](Element& e) {
    W d = flush(e.g, tiny) * scale + wd * e.p, x = e.p * keep, m = flush(e.m, tiny);
    e.m = flush(in1 < W(0.5) ? m + in1 * (d - m) : d - (d - m) * (1 - in1), tiny);
    d = flush(d, least);
    e.v = flush(flush(e.v, normal) * b2 + in2 * d * d, normal);
    e.p = x + step * e.m / (sqrt_(e.v) / root + eps);
  });
}

// total adds up a value of each of the LANES threads as a tree; thread 0 gets the sum.
__device__ __forceinline__ double total(double v) {
  __shared__ double shared[LANES];
  int t = threadIdx.x;
  shared[t] = v;
  __syncthreads();
  for (int k = LANES / 2; k > 0; k /= 2) {
    if (t < k) shared[t] += shared[t + k];
    __syncthreads();
  }
  return shared[t];
}

// sum_squares: y[b] is the sum of squares of block b: `part` elements of a tensor.
extern "C" __global__ void sum_squares(const __grid_constant__ List list, int part, double* y) {
  int i = group_of(list, blockIdx.x), t = threadIdx.x;
  i64 from = (i64)(blockIdx.x - list.start[i]) * part, n = list.len[i] - from < part ? list.len[i] - from : part;
  const T* x = (const T*)list.at[0][i] + from;
  double sum = 0;
  i64 done = 0;
  if (aligned(x, N * sizeof(T))) {
    for (i64 k = t; k < n / N; k += LANES) {
      Pack<T, N> p = ((const Pack<T, N>*)x)[k];
#pragma unroll
      for (int j = 0; j < N; j++) sum += (double)widen(p.v[j]) * (double)widen(p.v[j]);
    }
    done = n / N * N;
  }
  for (i64 k = done + t; k < n; k += LANES) sum += (double)widen(x[k]) * (double)widen(x[k]);
  sum = total(sum);
  if (t == 0) y[blockIdx.x] = sum;
}

__device__ __forceinline__ bool is_finite(double v) { return v - v == 0; }

// grad_norm: y[0] is the sum of n elements of x, y[1] the index of the first one that is not finite; -1: none. One block.
extern "C" __global__ void grad_norm(double* y, const double* x, i64 n) {
  double a = 0;
  for (i64 i = threadIdx.x; i < n; i += LANES) a += x[i];
  a = total(a);
  if (threadIdx.x != 0) return;
  y[0] = a;
  y[1] = -1;
  if (is_finite(a)) return;
  for (i64 i = 0; i < n && y[1] < 0; i++)
    if (!is_finite(x[i])) y[1] = (double)i;
}

// clip: y[1] is the norm of the gradients times scale. y[0] is the factor for the gradients: scale, or less if that norm is above
// max_norm, or NaN if it is not finite. Then y[2] gets step, if that is not 0, and y[3] the index of grad_norm, and no later clip changes
// y.
extern "C" __global__ void clip(double* y, const double* sum, double scale, double max_norm, double step) {
  if (y[2] != 0) return;
  double norm = sqrt(sum[0]) * scale, clip_coef = max_norm / (norm + 1e-6);
  y[0] = max_norm != 0 && !(clip_coef >= 1) ? scale * clip_coef : scale;
  y[1] = norm;
  if (is_finite(norm)) return;
  y[0] = norm - norm;
  if (step != 0) {
    y[2] = step;
    y[3] = sum[1];
  }
}
