#include "resident.cuh"

// Softmax, log-softmax and log-sum-exp of rows that stay in registers. Each exponential is computed once.

// exp_of is exp(x): for 16-bit results with an error of a few units in the last place of a float.
__device__ __forceinline__ W exp_of(W x) { return sizeof(T) == 2 ? fast_exp(x) : exp_(x); }

// softmax_row is the softmax of the first `visible` elements of a row, and 0 for the others. A row of -Inf, with +Inf or NaN gives NaN.
__device__ __forceinline__ void softmax_row(T* y, const T* x, int cols, int visible) {
  P16 p[PACKS];
  W top = -INFINITY, s = 0, e[PACKS][VEC];
  keep(p, x, cols);
  each(cols, [&](int k, int i) {
#pragma unroll
    for (int j = 0; j < VEC; j++)
      if (i + j < visible && widen(p[k].v[j]) > top) top = widen(p[k].v[j]);
  });
  top = row_max(top, 0);
  each(cols, [&](int k, int i) {
#pragma unroll
    for (int j = 0; j < VEC; j++) {
      e[k][j] = i + j < visible ? exp_of(widen(p[k].v[j]) - top) : W(0);
      s += e[k][j];
    }
  });
  W scale = 1 / row_sum(s, 1);
  each(cols, [&](int k, int i) {
    P16 out;
#pragma unroll
    for (int j = 0; j < VEC; j++) out.v[j] = narrow<T>(i + j < visible ? e[k][j] * scale : W(0));
    put(y + i, out);
  });
}

ROW_KERNEL softmax(T* y, const T* x, i64 rows, int cols) {
  i64 r = this_row();
  if (r < rows) softmax_row(y + r * cols, x + r * cols, cols, cols);
}

// softmax_causal: row r stands at query position q = r%queries and sees columns up to q+(cols-queries).
ROW_KERNEL softmax_causal(T* y, const T* x, i64 rows, int cols, i64 queries) {
  i64 r = this_row();
  if (r < rows) softmax_row(y + r * cols, x + r * cols, cols, (int)(r % queries + cols - queries + 1));
}

// Log is the logarithm of the sum of a row's exponentials: top + rest, of which top is infinite, or NaN, if the sum is.
struct Log { W top, rest; };

__device__ __forceinline__ Log log_of(const P16 (&p)[PACKS], int cols) {
  W top = -INFINITY, s = 0;
  each(cols, [&](int k, int i) {
#pragma unroll
    for (int j = 0; j < VEC; j++)
      if (widen(p[k].v[j]) > top) top = widen(p[k].v[j]);
  });
  top = row_max(top, 0);
  bool plain = top == INFINITY || top == -INFINITY;  // then s is 0, or NaN if there is one
  each(cols, [&](int k, int i) {
#pragma unroll
    for (int j = 0; j < VEC; j++) {
      W v = widen(p[k].v[j]);
      s += plain ? v != v ? v : W(0) : exp_of(v - top);
    }
  });
  s = row_sum(s, 1);
  if (s != s) return {s, 0};
  return {top, plain ? W(0) : log_(s)};
}

ROW_KERNEL log_softmax(T* y, const T* x, i64 rows, int cols) {
  i64 r = this_row();
  if (r >= rows) return;
  P16 p[PACKS];
  keep(p, x + r * cols, cols);
  Log l = log_of(p, cols);
  each(cols, [&](int k, int i) {
    P16 out;
#pragma unroll
    for (int j = 0; j < VEC; j++) out.v[j] = narrow<T>(widen(p[k].v[j]) - l.top - l.rest);
    put(y + r * cols + i, out);
  });
}

ROW_KERNEL log_sum_exp(W* y, const T* x, i64 rows, int cols) {
  i64 r = this_row();
  if (r >= rows) return;
  P16 p[PACKS];
  keep(p, x + r * cols, cols);
  Log l = log_of(p, cols);
  if (threadIdx.x == 0) y[r] = l.top + l.rest;
}

// grad_row: with a the sum over a row of u(y, g), d = f(y, g, a).
template <class U, class F> __device__ __forceinline__ void grad_row(T* d, const T* y, const T* g, int cols, U u, F f) {
  P16 p[PACKS], q[PACKS];
  keep(p, y, cols);
  keep(q, g, cols);
  W a = 0;
  each(cols, [&](int k, int i) {
#pragma unroll
    for (int j = 0; j < VEC; j++) a += u(widen(p[k].v[j]), widen(q[k].v[j]));
  });
  a = row_sum(a, 0);
  each(cols, [&](int k, int i) {
    P16 out;
#pragma unroll
    for (int j = 0; j < VEC; j++) out.v[j] = narrow<T>(f(widen(p[k].v[j]), widen(q[k].v[j]), a));
    put(d + i, out);
  });
}

ROW_KERNEL softmax_grad(T* d, const T* y, const T* g, i64 rows, int cols) {
  i64 at = this_row() * cols;
  if (at < rows * cols)
    grad_row(d + at, y + at, g + at, cols, [](W y, W g) { return y * g; }, [](W y, W g, W dot) { return y * (g - dot); });
}

ROW_KERNEL log_softmax_grad(T* d, const T* y, const T* g, i64 rows, int cols) {
  i64 at = this_row() * cols;
  if (at < rows * cols)
    grad_row(d + at, y + at, g + at, cols, [](W, W g) { return g; }, [](W y, W g, W sum) { return g - exp_of(y) * sum; });
}
