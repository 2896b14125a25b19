// Layer norm and RMS norm: a block for each row, or a warp if rows are short. T is a float; statistics and sums are in W and have a
// fixed order.

enum { MAX_WARPS = 16, COLS = 32, ROWS = 8, ENDS = 32, WARPS = 8, WARP_ROW = 1024 };

// weights loads elements of w. If there is no w, they are v.
template <int N> __device__ __forceinline__ Pack<W, N> weights(const T* w, i64 i, W v) {
  Pack<W, N> r;
  if (w) {
    auto p = load<N>(w + i);
#pragma unroll
    for (int k = 0; k < N; k++) r.v[k] = widen(p.v[k]);
  } else {
#pragma unroll
    for (int k = 0; k < N; k++) r.v[k] = v;
  }
  return r;
}

// Pair is two sums.
struct Pair { W a, b; };

// row is the row of this block, or of this warp in a block of several.
__device__ __forceinline__ i64 row() { return (i64)blockIdx.x * blockDim.y + threadIdx.y; }

// block sums v over the threads of a row: a block or a warp. The calls in a kernel alternate between memory 0 and 1.
__device__ __forceinline__ Pair block(Pair v, int call) {
  __shared__ W as[2][MAX_WARPS], bs[2][MAX_WARPS];
  W *a = as[call], *b = bs[call];
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) v.a += __shfl_xor_sync(FULL_WARP, v.a, o), v.b += __shfl_xor_sync(FULL_WARP, v.b, o);
  if (blockDim.x == 32) return v;
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  if (lane == 0) a[warp] = v.a, b[warp] = v.b;
  __syncthreads();
  v = {0, 0};
  for (int i = 0; i < warps; i++) v.a += a[i], v.b += b[i];
  return v;
}

// squares is the sum of (x-center)^2.
__device__ __forceinline__ W squares(const T* x, W center, i64 cols, bool vec) {
  Pair s = {0, 0};
  pieces(cols, vec, [&](i64 i, auto n) {
    auto p = load<n.value>(x + i);
#pragma unroll
    for (int k = 0; k < n.value; k++) s.a += (widen(p.v[k]) - center) * (widen(p.v[k]) - center);
  });
  return block(s, 1).a;
}

// normalize is y = (x-mean)*rstd*w + b.
__device__ __forceinline__ void normalize(T* y, const T* x, const T* w, const T* b, W mean, W rstd, i64 cols, bool vec) {
  pieces(cols, vec, [&](i64 i, auto n) {
    auto p = load<n.value>(x + i);
    auto ws = weights<n.value>(w, i, 1), bs = weights<n.value>(b, i, 0);
#pragma unroll
    for (int k = 0; k < n.value; k++) p.v[k] = narrow<T>((widen(p.v[k]) - mean) * rstd * ws.v[k] + bs.v[k]);
    *(decltype(p)*)(y + i) = p;
  });
}

extern "C" __global__ void layer_norm(T* y, W* mean, W* rstd, const T* x, const T* w, const T* b, i64 cols, W eps) {
  i64 r = row();
  bool vec = whole(y, cols) && whole(x, cols) && whole(w, cols) && whole(b, cols);
  x += r * cols;
  Pair s = {0, 0};
  pieces(cols, vec, [&](i64 i, auto n) {
    auto p = load<n.value>(x + i);
#pragma unroll
    for (int k = 0; k < n.value; k++) s.a += widen(p.v[k]);
  });
  W m = block(s, 0).a / cols, d = 1 / sqrt_(squares(x, m, cols, vec) / cols + eps);
  if (threadIdx.x == 0) mean[r] = m, rstd[r] = d;
  normalize(y + r * cols, x, w, b, m, d, cols, vec);
}

extern "C" __global__ void rms_norm(T* y, W* rstd, const T* x, const T* w, i64 cols, W eps) {
  i64 r = row();
  bool vec = whole(y, cols) && whole(x, cols) && whole(w, cols);
  x += r * cols;
  W d = 1 / sqrt_(squares(x, 0, cols, vec) / cols + eps);
  if (threadIdx.x == 0) rstd[r] = d;
  normalize(y + r * cols, x, w, nullptr, 0, d, cols, vec);
}

// grad_x: with h = (x-mean)*rstd and u = g*w, d = rstd*(u - mean(u) - h*mean(u*h)), without mean(u) if not centered; added to
// d if add.
__device__ __forceinline__ void grad_x(T* d, const T* x, const T* g, const T* w, W mean, W rstd, i64 cols, bool centered, int add) {
  i64 at = row() * cols;
  bool vec = whole(d, cols) && whole(x, cols) && whole(g, cols) && whole(w, cols);
  d += at, x += at, g += at;
  Pair s = {0, 0};
  pieces(cols, vec, [&](i64 i, auto n) {
    auto p = load<n.value>(x + i), q = load<n.value>(g + i);
    auto ws = weights<n.value>(w, i, 1);
#pragma unroll
    for (int k = 0; k < n.value; k++) {
      W u = widen(q.v[k]) * ws.v[k];
      s.a += u, s.b += u * ((widen(p.v[k]) - mean) * rstd);
    }
  });
  s = block(s, 0);
  W a = centered ? s.a / cols : W(0), b = s.b / cols;
  pieces(cols, vec, [&](i64 i, auto n) {
    auto p = load<n.value>(x + i), q = load<n.value>(g + i);
    auto ws = weights<n.value>(w, i, 1);
    decltype(p) old;
    if (add) old = load<n.value>(d + i);
#pragma unroll
    for (int k = 0; k < n.value; k++) {
      W v = rstd * (widen(q.v[k]) * ws.v[k] - a - (widen(p.v[k]) - mean) * rstd * b);
      p.v[k] = narrow<T>(add ? widen(old.v[k]) + v : v);
    }
    *(decltype(p)*)(d + i) = p;
  });
}

extern "C" __global__ void layer_norm_grad_x(T* d, const T* x, const T* g, const T* w, const W* mean, const W* rstd, i64 cols, int add) {
  grad_x(d, x, g, w, mean[row()], rstd[row()], cols, true, add);
}
extern "C" __global__ void rms_norm_grad_x(T* d, const T* x, const T* g, const T* w, const W* rstd, i64 cols, int add) {
  grad_x(d, x, g, w, 0, rstd[row()], cols, false, add);
}

// grad_w_parts: part[p, i] = the sum over rows p*len on of g*(x-mean)*rstd. Blocks are COLS columns by ROWS; x across the
// columns, y over parts. mean may be null.
extern "C" __global__ void grad_w_parts(W* part, const T* x, const T* g, const W* mean, const W* rstd, i64 rows, i64 cols, i64 len) {
  __shared__ W sums[ROWS][COLS];
  i64 i = (i64)blockIdx.x * COLS + threadIdx.x, from = blockIdx.y * len, to = from + len < rows ? from + len : rows;
  W sum = 0;
  if (i < cols)
    for (i64 r = from + threadIdx.y; r < to; r += ROWS) {
      W m = mean ? mean[r] : W(0);
      sum += widen(g[r * cols + i]) * ((widen(x[r * cols + i]) - m) * rstd[r]);
    }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y || i >= cols) return;
  for (int k = 1; k < ROWS; k++) sum += sums[k][threadIdx.x];
  part[blockIdx.y * cols + i] = sum;
}

// grad_w_ends: d = the sum of the parts, added to d if acc.
extern "C" __global__ void grad_w_ends(T* d, const W* part, i64 parts, i64 cols, int acc) {
  for (i64 i = first_item(); i < cols; i += all_threads()) {
    W sum = 0;
    for (i64 p = 0; p < parts; p++) sum += part[p * cols + i];
    d[i] = narrow<T>(acc ? widen(d[i]) + sum : sum);
  }
}

// store_sums writes a block's part of the gradients of w and b, which are [cols], from N columns that a thread has.
template <int N> __device__ __forceinline__ void store_sums(W* part, i64 i, i64 cols, const W* dw, const W* db) {
  part += 2 * (i64)blockIdx.x * cols + i;
#pragma unroll
  for (int k = 0; k < N; k++) part[k] = dw[k], part[cols + k] = db[k];
}

// norm_grad is layer_norm_grad_x, or rms_norm_grad_x if there is no mean, of the rows blockIdx.x*len on, and their part of the
// gradients of w and b, in one pass: part[2*blockIdx.x] and part[2*blockIdx.x + 1]. A block computes a row. A thread has 16 bytes
// of it, and loads those of the next row before it waits for the others.
extern "C" __global__ void __launch_bounds__(32 * MAX_WARPS)
norm_grad(T* d, W* part, const T* x, const T* g, const T* w, const W* mean, const W* rstd, i64 rows, i64 cols, i64 len, int add) {
  constexpr int N = 16 / sizeof(T);
  i64 i = (i64)threadIdx.x * N, from = blockIdx.x * len, to = from + len < rows ? from + len : rows;
  bool active = i < cols;
  x += i, g += i, d += i;
  Pack<T, N> p, q, old, ws;
  W dw[N] = {}, db[N] = {};
  if (active) p = load<N>(x + from * cols), q = load<N>(g + from * cols);
  if (active && w) ws = load<N>(w + i);
#pragma unroll 1
  for (i64 r = from; r < to; r++) {
    Pack<T, N> next_p = p, next_q = q;
    if (active && r + 1 < to) next_p = load<N>(x + (r + 1) * cols), next_q = load<N>(g + (r + 1) * cols);
    if (active && add) old = load<N>(d + r * cols);
    W m = mean ? mean[r] : W(0), s = rstd[r];
    Pair sum = {0, 0};
    if (active) {
#pragma unroll
      for (int k = 0; k < N; k++) {
        W h = (widen(p.v[k]) - m) * s, u = w ? widen(q.v[k]) * widen(ws.v[k]) : widen(q.v[k]);
        sum.a += u, sum.b += u * h;
        dw[k] += widen(q.v[k]) * h, db[k] += widen(q.v[k]);
      }
    }
    sum = block(sum, (int)(r & 1));
    if (active) {
      W a = mean ? sum.a / cols : W(0), b = sum.b / cols;
#pragma unroll
      for (int k = 0; k < N; k++) {
        W u = w ? widen(q.v[k]) * widen(ws.v[k]) : widen(q.v[k]), v = s * (u - a - (widen(p.v[k]) - m) * s * b);
        p.v[k] = narrow<T>(add ? widen(old.v[k]) + v : v);
      }
      *(Pack<T, N>*)(d + r * cols) = p;
    }
    p = next_p, q = next_q;
  }
  if (active) store_sums<N>(part, i, cols, dw, db);
}

// each_pack calls f(k, i) for the packs of N columns that a lane has of a row of at most WARP_ROW: pack k begins i columns after the
// first one.
template <int N, class F> __device__ __forceinline__ void each_pack(i64 cols, F f) {
  int left = (int)cols - (int)threadIdx.x * N;
#pragma unroll
  for (int k = 0; k < WARP_ROW / (32 * N); k++)
    if (32 * N * k < left) f(k, 32 * N * k);
}

// warp_norm_grads is norm_grad for short rows: a warp computes a row, and waits for no other until the end of the part. Its rows
// of the part are threadIdx.y, threadIdx.y + WARPS and so on. Lanes have the row and their sums in registers; where the row does
// not fit beside the sums, they read it again. sums is [2, cols].
template <int N>
__device__ __forceinline__ void warp_norm_grads(T* d, W* part, W (*sums)[WARP_ROW], const T* x, const T* g, const T* w, const W* mean,
                                                const W* rstd, i64 rows, i64 cols, i64 len, int add) {
  constexpr int PACKS = WARP_ROW / (32 * N), KEPT = N > 1 && sizeof(T) < 8 ? PACKS : 1;
  i64 from = blockIdx.x * len, to = from + len < rows ? from + len : rows, lane = (i64)threadIdx.x * N;
  Pack<T, N> p[KEPT], q[KEPT];
  W dw[PACKS][N] = {}, db[PACKS][N] = {};
  if (w) w += lane;
#pragma unroll 1
  for (i64 r = from + threadIdx.y; r < to; r += WARPS) {
    const T *xr = x + r * cols + lane, *gr = g + r * cols + lane;
    T* dr = d + r * cols + lane;
    auto read = [&](int k, int i) { p[k % KEPT] = load<N>(xr + i), q[k % KEPT] = load<N>(gr + i); };
    if (KEPT > 1) each_pack<N>(cols, read);
    W m = mean ? mean[r] : W(0), s = rstd[r];
    Pair sum = {0, 0};
    each_pack<N>(cols, [&](int k, int i) {
      if (KEPT == 1) read(k, i);
      auto ws = weights<N>(w, i, 1);
#pragma unroll
      for (int e = 0; e < N; e++) {
        W v = widen(q[k % KEPT].v[e]), h = (widen(p[k % KEPT].v[e]) - m) * s, u = v * ws.v[e];
        sum.a += u, sum.b += u * h;
        dw[k][e] += v * h, db[k][e] += v;
      }
    });
    W a = mean ? warp_sum(sum.a) / cols : W(0), b = warp_sum(sum.b) / cols;
    each_pack<N>(cols, [&](int k, int i) {
      if (KEPT == 1) read(k, i);
      auto ws = weights<N>(w, i, 1);
      Pack<T, N> old, out;
      if (add) old = load<N>(dr + i);
#pragma unroll
      for (int e = 0; e < N; e++) {
        W v = s * (widen(q[k % KEPT].v[e]) * ws.v[e] - a - (widen(p[k % KEPT].v[e]) - m) * s * b);
        out.v[e] = narrow<T>(add ? widen(old.v[e]) + v : v);
      }
      *(Pack<T, N>*)(dr + i) = out;
    });
  }
  W *w_sums = sums[0] + lane, *b_sums = sums[1] + lane;
#pragma unroll 1
  for (int turn = 0; turn < WARPS; turn++) {  // the warps add their sums in order
    if (threadIdx.y == turn)
      each_pack<N>(cols, [&](int k, int i) {
#pragma unroll
        for (int e = 0; e < N; e++) {
          if (turn) dw[k][e] += w_sums[i + e], db[k][e] += b_sums[i + e];
          w_sums[i + e] = dw[k][e], b_sums[i + e] = db[k][e];
        }
        if (turn == WARPS - 1) store_sums<N>(part, lane + i, cols, dw[k], db[k]);
      });
    __syncthreads();
  }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
warp_norm_grad(T* d, W* part, const T* x, const T* g, const T* w, const W* mean, const W* rstd, i64 rows, i64 cols, i64 len, int add, int vec) {
  __shared__ W sums[2][WARP_ROW];
  if (vec) warp_norm_grads<16 / sizeof(T)>(d, part, sums, x, g, w, mean, rstd, rows, cols, len, add);
  else warp_norm_grads<1>(d, part, sums, x, g, w, mean, rstd, rows, cols, len, add);
}

// norm_grad_ends adds up the parts: blockIdx.y is 0 for w and 1 for b, of which one may be missing. Blocks are COLS
// columns by ENDS.
extern "C" __global__ void __launch_bounds__(COLS * ENDS) norm_grad_ends(T* dw, T* db, const W* part, i64 parts, i64 cols, int add_w, int add_b) {
  __shared__ W sums[ENDS][COLS];
  i64 i = (i64)blockIdx.x * COLS + threadIdx.x;
  T* d = blockIdx.y ? db : dw;
  W sum = 0;
  if (i < cols)
    for (i64 p = threadIdx.y; p < parts; p += ENDS) sum += part[(2 * p + blockIdx.y) * cols + i];
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y || i >= cols || !d) return;
  for (int k = 1; k < ENDS; k++) sum += sums[k][threadIdx.x];
  d[i] = narrow<T>((blockIdx.y ? add_b : add_w) ? widen(d[i]) + sum : sum);
}
