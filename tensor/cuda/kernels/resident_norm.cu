#include "mma.cuh"
#include "resident.cuh"

// Layer norm, RMS norm and their gradients for rows that stay in registers. With CENTER it is layer norm.

// unit is (x-m)*s. T of 16 bits has less arithmetic.
__device__ __forceinline__ W unit(W x, W m, W s) { return sizeof(T) == 2 ? mad(x, s, -m * s) : (x - m) * s; }

template <bool CENTER>
__device__ __forceinline__ void norm_row(T* y, W* mean, W* rstd, const T* x, const T* w, const T* b, i64 rows, int cols, W eps) {
  i64 r = this_row();
  if (r >= rows) return;
  P16 p[PACKS];
  keep(p, x + r * cols, cols);
  W m = 0, s = 0;
  if (CENTER) {
    each(cols, [&](int k, int) {
#pragma unroll
      for (int j = 0; j < VEC; j++) m += widen(p[k].v[j]);
    });
    m = row_sum(m, 0) / cols;
  }
  each(cols, [&](int k, int) {
#pragma unroll
    for (int j = 0; j < VEC; j++) {
      W d = widen(p[k].v[j]) - m;
      s = mad(d, d, s);
    }
  });
  W d = 1 / sqrt_(row_sum(s, 1) / cols + eps);
  if (sizeof(T) == 2) opaque(p);
  if (threadIdx.x == 0) {
    if (CENTER) mean[r] = m;
    rstd[r] = d;
  }
  each(cols, [&](int k, int i) {
    P16 ws, bs, out;
    if (w) ws = load<VEC>(w + i);
    if (CENTER && b) bs = load<VEC>(b + i);
#pragma unroll
    for (int j = 0; j < VEC; j++) {
      W v = unit(widen(p[k].v[j]), m, d);
      out.v[j] = narrow<T>(mad(v, w ? widen(ws.v[j]) : W(1), CENTER && b ? widen(bs.v[j]) : W(0)));
    }
    put(y + r * cols + i, out);
  });
}

ROW_KERNEL layer_norm(T* y, W* mean, W* rstd, const T* x, const T* w, const T* b, i64 rows, int cols, W eps) {
  norm_row<true>(y, mean, rstd, x, w, b, rows, cols, eps);
}
ROW_KERNEL rms_norm(T* y, W* rstd, const T* x, const T* w, i64 rows, int cols, W eps) {
  norm_row<false>(y, nullptr, rstd, x, w, nullptr, rows, cols, eps);
}

// grad_of is the gradient of an element: with h = (x-mean)*s and u = g*w, s*(u - a - h*b), in which a is the mean of the row's u, or 0 if not
// centered, and b that of u*h.
__device__ __forceinline__ W grad_of(W h, W u, W s, W a, W b) { return sizeof(T) == 2 ? mad(u, s, mad(h, -s * b, -s * a)) : s * (u - a - h * b); }

template <bool CENTER>
__device__ __forceinline__ void grad_row(T* d, const T* x, const T* g, const T* w, const W* mean, const W* rstd, i64 rows, int cols, int add) {
  i64 r = this_row();
  if (r >= rows) return;
  P16 p[PACKS], q[PACKS];
  keep(p, x + r * cols, cols);
  keep(q, g + r * cols, cols);
  W m = CENTER ? mean[r] : W(0), s = rstd[r], a = 0, b = 0;
  auto weights = [&](int i) {
    P16 ws;
    if (w) ws = load<VEC>(w + i);
    else
#pragma unroll
      for (int j = 0; j < VEC; j++) ws.v[j] = narrow<T>(W(1));
    return ws;
  };
  each(cols, [&](int k, int i) {
    P16 ws = weights(i);
#pragma unroll
    for (int j = 0; j < VEC; j++) {
      W u = widen(q[k].v[j]) * widen(ws.v[j]);
      a += u;
      b = mad(u, unit(widen(p[k].v[j]), m, s), b);
    }
  });
  a = CENTER ? row_sum(a, 0) / cols : W(0), b = row_sum(b, 1) / cols;
  opaque(p), opaque(q);
  d += r * cols;
  each(cols, [&](int k, int i) {
    P16 ws = weights(i), old, out;
    if (add) old = load<VEC>(d + i);
#pragma unroll
    for (int j = 0; j < VEC; j++) {
      W v = grad_of(unit(widen(p[k].v[j]), m, s), widen(q[k].v[j]) * widen(ws.v[j]), s, a, b);
      out.v[j] = narrow<T>(add ? widen(old.v[j]) + v : v);
    }
    put(d + i, out);
  });
}

ROW_KERNEL layer_norm_grad_x(T* d, const T* x, const T* g, const T* w, const W* mean, const W* rstd, i64 rows, int cols, int add) {
  grad_row<true>(d, x, g, w, mean, rstd, rows, cols, add);
}
ROW_KERNEL rms_norm_grad_x(T* d, const T* x, const T* g, const T* w, const W* rstd, i64 rows, int cols, int add) {
  grad_row<false>(d, x, g, w, nullptr, rstd, rows, cols, add);
}

#if !BLOCK && PACKS <= 6
// norm_grad is all gradients in one pass, as warp_norm_grad of norm.cu. A lane copies its packs of the next rows to its own place in shared
// memory, AHEAD rows before it needs them: so no registers wait for memory. What it does not change stays in registers: w, and its sums.
enum { WARPS = 8, AHEAD = 2 };
template <bool CENTER, bool ADD>
__device__ __forceinline__ void norm_grads(T* d, W* part, const T* x, const T* g, const T* w, const W* mean, const W* rstd, i64 rows, int cols) {
  vec16* shared = dynamic_shared<vec16>();  // [WARPS][AHEAD][2][PACKS][32] packs; at the end, [WARPS][2, cols] sums
  P16* mine = (P16*)shared + threadIdx.y * (AHEAD * 2 * PACKS * 32) + threadIdx.x;
  // Blocks work side by side: the rows that are read at a time are neighbours in memory.
  i64 step = (i64)gridDim.x * WARPS, r = this_row();
  P16 ws[PACKS];
  W dw[PACKS][VEC] = {}, db[PACKS][VEC] = {};
  each(cols, [&](int k, int i) {
    if (w) ws[k] = load<VEC>(w + i);
    else
#pragma unroll
      for (int j = 0; j < VEC; j++) ws[k].v[j] = narrow<T>(W(1));
  });
  auto fetch = [&](i64 r, int slot) {
    if (r < rows)
      each(cols, [&](int k, int i) {
        copy16(mine + ((slot * 2 + 0) * PACKS + k) * 32, x + r * cols + i, true);
        copy16(mine + ((slot * 2 + 1) * PACKS + k) * 32, g + r * cols + i, true);
      });
    copies_commit();
  };
#pragma unroll
  for (int k = 0; k < AHEAD; k++) fetch(r + k * step, k);
  W m = 0, s = 0, next_m = 0, next_s = 0;
  if (r < rows) m = CENTER ? mean[r] : W(0), s = rstd[r];
  int slot = 0;
#pragma unroll 1
  for (; r < rows; r += step) {
    P16 p[PACKS], q[PACKS];
    copies_wait<AHEAD - 1>();
    each(cols, [&](int k, int) { p[k] = mine[((slot * 2 + 0) * PACKS + k) * 32], q[k] = mine[((slot * 2 + 1) * PACKS + k) * 32]; });
    if (r + step < rows) next_m = CENTER ? mean[r + step] : W(0), next_s = rstd[r + step];
    W a = 0, b = 0;
    each(cols, [&](int k, int) {
#pragma unroll
      for (int j = 0; j < VEC; j++) {
        W v = widen(q[k].v[j]), h = unit(widen(p[k].v[j]), m, s), u = v * widen(ws[k].v[j]);
        if (CENTER) a += u;
        b = mad(u, h, b);
        dw[k][j] = mad(v, h, dw[k][j]);
        if (CENTER) db[k][j] += v;
      }
    });
    a = CENTER ? row_sum(a, 0) / cols : W(0), b = row_sum(b, 1) / cols;
    opaque(p), opaque(q);
    each(cols, [&](int k, int i) {
      P16 old, out;
      if (ADD) old = load<VEC>(d + r * cols + i);
#pragma unroll
      for (int j = 0; j < VEC; j++) {
        W v = grad_of(unit(widen(p[k].v[j]), m, s), widen(q[k].v[j]) * widen(ws[k].v[j]), s, a, b);
        out.v[j] = narrow<T>(ADD ? widen(old.v[j]) + v : v);
      }
      put(d + r * cols + i, out);
    });
    fetch(r + AHEAD * step, slot);  // where this row was
    if (++slot == AHEAD) slot = 0;
    m = next_m, s = next_s;
  }
  copies_wait<0>();
  __syncthreads();  // the rows' memory is for the sums now
  W *sums = (W*)shared, *own = sums + threadIdx.y * 2 * cols;
  each(cols, [&](int k, int i) {
#pragma unroll
    for (int j = 0; j < VEC; j++) own[i + j] = dw[k][j], own[cols + i + j] = db[k][j];
  });
  __syncthreads();
  for (int i = threadIdx.y * 32 + threadIdx.x; i < 2 * cols; i += 32 * WARPS) {
    W sum = sums[i];
#pragma unroll
    for (int k = 1; k < WARPS; k++) sum += sums[k * 2 * cols + i];
    part[2 * (i64)blockIdx.x * cols + i] = sum;
  }
}

// Two blocks run on a multiprocessor where their registers suffice: compilers for sm_100 need more.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
enum { TWO_BLOCKS = 2 };
#else
enum { TWO_BLOCKS = 3 };
#endif

extern "C" __global__ void __launch_bounds__(32 * WARPS, sizeof(T) == 2 && PACKS <= TWO_BLOCKS ? 2 : 1)
norm_grad(T* d, W* part, const T* x, const T* g, const T* w, const W* mean, const W* rstd, i64 rows, int cols, int add) {
  if (mean && add) norm_grads<true, true>(d, part, x, g, w, mean, rstd, rows, cols);
  else if (mean) norm_grads<true, false>(d, part, x, g, w, mean, rstd, rows, cols);
  else if (add) norm_grads<false, true>(d, part, x, g, w, mean, rstd, rows, cols);
  else norm_grads<false, false>(d, part, x, g, w, mean, rstd, rows, cols);
}
#endif
