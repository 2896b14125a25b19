#include "mma.cuh"
#include "conv.cuh"

// Convolution as a product of matrices whose elements are found while they are loaded: c[m, n] = sum over k of a[m, k] b[k, n].
//
//   FORWARD  y:  m = channel out, n = (picture, pixel out), k = (channel in, tap);    a = w, b = x
//   GRAD_X   dx: m = channel in,  n = (picture, pixel in),  k = (channel out, tap);   a = w, b = g  (a transposed convolution, too)
//   GRAD_W   dw: m = channel out, n = (channel in, tap),    k = (picture, pixel out); a = g, b = x; k is cut into parts
//
// In all three, b[k, n] is the pixel (row_k + row_n, col_k + col_n) of a picture of b, or 0 outside of it, at offset at_k + at_n. What
// belongs to k is in a table in shared memory, made a step ahead; what belongs to n, each thread knows. For GRAD_X, blockIdx.z also counts
// classes of pixels: those of a class have the same row modulo the stride, and the same column, so the same taps reach them, and no tap is
// tried in vain. A block computes TM x TN elements. Sums have a fixed order: for T of 16 bits on tensor cores (mma), else with fused
// multiply-adds. Tensors have fewer than 2^31 elements, kernels at most MOST rows and columns.

enum { MOST = 32, HALF = sizeof(T) == 2 };

struct __align__(16) At { int a, b, row, col; };  // offsets in a and b; a < 0: there is no such k

// Taps are the taps of a class: the row (or column) of w, and what it adds to the row of g.
struct Taps { int count, at[MOST], add[MOST]; };

__device__ __forceinline__ float fma_(float a, float b, float c) { return fmaf(a, b, c); }
__device__ __forceinline__ double fma_(double a, double b, double c) { return fma(a, b, c); }

template <int MODE> struct Side {
  int in, h, w, out, groups, kh, kw, sh, sw, ph, pw, dh, dw, oh, ow, K, N;
  int cr, cc, ch, cw;  // GRAD_X: the class, and its rows and columns
  const Taps *rows, *cols;

  // of_k is what belongs to k, of_n what belongs to n.
  __device__ __forceinline__ At of_k(int k, int end) const {
    if (k >= end) return {-1, 0, OUTSIDE, OUTSIDE};
    if (MODE == GRAD_W) return pixel(k);
    if (MODE == FORWARD) return tap(k, k);
    int nj = cols->count, taps = rows->count * nj, c = k / taps, t = k - c * taps, i = t / nj, j = t - i * nj;
    int r = rows->add[i], q = cols->add[j];
    return {(c * in * kh + rows->at[i]) * kw + cols->at[j], c * oh * ow + r * ow + q, r, q};
  }
  __device__ __forceinline__ At of_n(int n) const {
    if (n >= N) return {0, 0, OUTSIDE, OUTSIDE};
    if (MODE == FORWARD) return pixel(n);
    if (MODE == GRAD_W) return tap(n, 0);
    int pixels = ch * cw, m = n / pixels, p = n - m * pixels, r = p / cw, q = p - r * cw;
    return {0, m * groups * out * oh * ow + r * ow + q, r, q};
  }
  // tap is element t of (channel, row, col) of a kernel, in x.
  __device__ __forceinline__ At tap(int t, int a) const {
    int taps = kh * kw, c = t / taps, p = t - c * taps, i = p / kw, j = p - i * kw;
    return {a, (c * h + i * dh) * w + j * dw, i * dh, j * dw};
  }
  // pixel is an output's pixel: itself in g, and where its window begins in x.
  __device__ __forceinline__ At pixel(int n) const {
    int pixels = oh * ow, m = n / pixels, p = n - m * pixels, y = p / ow, r = y * sh - ph, q = (p - y * ow) * sw - pw;
    return {m * groups * out * pixels + p, m * groups * in * h * w + r * w + q, r, q};
  }
  __device__ __forceinline__ T b_at(const T* b, const At& k, const At& n) const {
    bool inside = (u32)(k.row + n.row) < (u32)(MODE == GRAD_X ? oh : h) && (u32)(k.col + n.col) < (u32)(MODE == GRAD_X ? ow : w);
    return inside ? b[k.b + n.b] : narrow<T>(W(0));
  }
  __device__ __forceinline__ int pitch() const { return MODE == FORWARD ? K : MODE == GRAD_X ? kh * kw : oh * ow; }  // of a
};

// taps_of lists the taps that reach pixels p with p % stride == class, and (p/stride) + add is their place in g.
__device__ __forceinline__ void taps_of(Taps& t, int cls, int k, int stride, int pad, int dilation) {
  int n = 0;
  for (int i = 0; i < k; i++) {
    int v = cls + pad - i * dilation;
    if (v % stride == 0) t.at[n] = i, t.add[n] = v / stride, n++;
  }
  t.count = n;
}

__device__ __forceinline__ u32 bits_of(bf16 x) { return x.bits; }
__device__ __forceinline__ u32 bits_of(f16 x) { return x.bits; }
__device__ __forceinline__ u32 bits_of(W) { return 0; }  // never called

// Work is what a block has to do.
template <int MODE> struct Work {
  Side<MODE> s;
  int M, m0, n0, from, end, group;
  i64 z;  // of the parts
};

template <int MODE, int TM, int TN>
__device__ __forceinline__ Work<MODE> begin(const Conv& v, const T*& a, const T*& b, int len, Taps (&taps)[2]) {
  Work<MODE> k;
  Side<MODE>& s = k.s;
  s = {(int)v.in, (int)v.h, (int)v.w, (int)v.out, (int)v.groups, (int)v.kh, (int)v.kw, (int)v.sh, (int)v.sw,
       (int)v.ph, (int)v.pw, (int)v.dh, (int)v.dw, (int)v.oh, (int)v.ow};
  int n = (int)v.n, t = s.kh * s.kw;
  k.group = blockIdx.z % s.groups, k.z = blockIdx.z;
  int number = blockIdx.z / s.groups;  // of the class or the part
  k.M = MODE == GRAD_X ? s.in : s.out;
  if (MODE == GRAD_X) {
    s.cr = number / s.sw, s.cc = number % s.sw;
    if (threadIdx.x < 2) {
      if (threadIdx.x == 0) taps_of(taps[0], s.cr, s.kh, s.sh, s.ph, s.dh);
      else taps_of(taps[1], s.cc, s.kw, s.sw, s.pw, s.dw);
    }
    __syncthreads();
    s.rows = &taps[0], s.cols = &taps[1];
    s.ch = (s.h - s.cr + s.sh - 1) / s.sh, s.cw = (s.w - s.cc + s.sw - 1) / s.sw;
    s.K = s.out * s.rows->count * s.cols->count, s.N = n * s.ch * s.cw;
  } else {
    s.K = MODE == FORWARD ? s.in * t : n * s.oh * s.ow;
    s.N = MODE == FORWARD ? n * s.oh * s.ow : s.in * t;
  }
  k.from = 0, k.end = s.K;
  if (MODE == GRAD_W) k.from = number * len, k.end = k.from + len < s.K ? k.from + len : s.K;
  if (MODE != GRAD_W) a += k.group * s.out * s.in * t;
  else a += k.group * s.out * s.oh * s.ow;
  b += MODE == GRAD_X ? k.group * s.out * s.oh * s.ow : k.group * s.in * s.h * s.w;
  k.m0 = blockIdx.y * TM, k.n0 = blockIdx.x * TN;
  return k;
}

// store writes COUNT neighbours of row m, from column n on.
template <int MODE, int COUNT, class V>
__device__ __forceinline__ void store(const Work<MODE>& k, T* c, W* part, const T* bias, int m, int n, const V* v) {
  const Side<MODE>& s = k.s;
  if (m >= k.M || n >= s.N) return;
  if (MODE == GRAD_W) {
    W* to = part + (k.z * k.M + m) * s.N + n;
#pragma unroll
    for (int e = 0; e < COUNT; e++)
      if (n + e < s.N) to[e] = v[e];
    return;
  }
  int o = k.group * k.M + m, channels = s.groups * k.M;
  W extra = bias ? widen(bias[o]) : W(0);
  int width = MODE == FORWARD ? s.ow : s.cw, height = MODE == FORWARD ? s.oh : s.ch, size = MODE == FORWARD ? s.oh * s.ow : s.h * s.w;
  bool dense = MODE == FORWARD || s.sh == 1 && s.sw == 1;
  if (dense && size % COUNT == 0 && aligned(c, COUNT * sizeof(T))) {
    Pack<T, COUNT> p;
#pragma unroll
    for (int e = 0; e < COUNT; e++) p.v[e] = narrow<T>(bias ? v[e] + extra : v[e]);
    int picture = n / size;
    *(Pack<T, COUNT>*)(c + (picture * channels + o) * size + (n - picture * size)) = p;
    return;
  }
#pragma unroll
  for (int e = 0; e < COUNT; e++) {
    if (n + e >= s.N) continue;
    int picture = (n + e) / (width * height), p = (n + e) - picture * (width * height), at = p;
    if (!dense) at = (p / width * s.sh + s.cr) * s.w + p % width * s.sw + s.cc;
    c[(picture * channels + o) * size + at] = narrow<T>(bias ? v[e] + extra : v[e]);
  }
}

// product is for T of 32 and 64 bits: a thread has TM/16 x TN/16 elements.
template <int MODE, int TM, int TN>
__device__ __forceinline__ void product(T* c, W* part, const T* a, const T* b, const T* bias, const Conv& v, int len) {
  constexpr int DEPTH = 16, PM = TM / 16, PN = TN / 16, LA = TM * DEPTH / LANES, LB = TN * DEPTH / LANES;
  __shared__ Pack<W, 4> as[2][DEPTH][TM / 4 + 1], bs[2][DEPTH][TN / 4 + 1];
  __shared__ At table[2][DEPTH];
  __shared__ Taps taps[2];
  auto w = begin<MODE, TM, TN>(v, a, b, len, taps);
  int t = threadIdx.x, steps = (w.end - w.from + DEPTH - 1) / DEPTH;
  int ak = t % DEPTH, am = t / DEPTH, bn = t % TN, bk = t / TN, pitch = w.s.pitch();
  At mine = w.s.of_n(w.n0 + bn);
  const T* rows = a + (w.m0 + am) * pitch;
  T ra[LA], rb[LB];
  auto fetch = [&](int step) {
    const At* at = table[step & 1];
    int k = at[ak].a;
#pragma unroll
    for (int i = 0; i < LA; i++)
      ra[i] = k >= 0 && w.m0 + am + i * (LANES / DEPTH) < w.M ? rows[i * (LANES / DEPTH) * pitch + k] : narrow<T>(W(0));
#pragma unroll
    for (int i = 0; i < LB; i++) rb[i] = w.s.b_at(b, at[bk + i * (LANES / TN)], mine);
  };
  if (t < DEPTH) table[0][t] = w.s.of_k(w.from + t, w.end);
  __syncthreads();
  fetch(0);
  if (t < DEPTH) table[1][t] = w.s.of_k(w.from + DEPTH + t, w.end);
  W acc[PM][PN] = {};
  int tm = t / 16 * 4, tn = t % 16 * 4;
#pragma unroll 1
  for (int step = 0; step < steps; step++) {
    Pack<W, 4>(*A)[TM / 4 + 1] = as[step & 1], (*B)[TN / 4 + 1] = bs[step & 1];
#pragma unroll
    for (int i = 0; i < LA; i++) ((W*)A[ak])[am + i * (LANES / DEPTH)] = widen(ra[i]);
#pragma unroll
    for (int i = 0; i < LB; i++) ((W*)B[bk + i * (LANES / TN)])[bn] = widen(rb[i]);
    __syncthreads();
    if (step + 1 < steps) fetch(step + 1);
    if (t < DEPTH) table[step & 1][t] = w.s.of_k(w.from + (step + 2) * DEPTH + t, w.end);
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
      Pack<W, 4> x[PM / 4], y[PN / 4];
#pragma unroll
      for (int i = 0; i < PM; i += 4) x[i / 4] = A[k][tm / 4 + i * 4];
#pragma unroll
      for (int j = 0; j < PN; j += 4) y[j / 4] = B[k][tn / 4 + j * 4];
#pragma unroll
      for (int i = 0; i < PM; i++)
#pragma unroll
        for (int j = 0; j < PN; j++) acc[i][j] = fma_(x[i / 4].v[i % 4], y[j / 4].v[j % 4], acc[i][j]);
    }
  }
#pragma unroll
  for (int j = 0; j < PN; j += 4)
#pragma unroll
    for (int i = 0; i < PM; i++) store<MODE, 4>(w, c, part, bias, w.m0 + tm + i / 4 * 64 + i % 4, w.n0 + tn + j * 16, &acc[i][j]);
}

// product_mma is for T of 16 bits: a warp has TM/2 x TN/4 elements. a is [m][k] in shared memory, b is [k][n]; a thread loads pairs of
// neighbours.
template <int MODE, int TM, int TN>
__device__ __forceinline__ void product_mma(T* c, W* part, const T* a, const T* b, const T* bias, const Conv& v, int len) {
  constexpr int DEPTH = 32, PM = TM / 32, PN = TN / 32, LA = TM * DEPTH / 2 / LANES, LB = TN * DEPTH / 2 / LANES, LDA = DEPTH + 8,
                LDB = TN + 8;
  T* tiles = dynamic_shared<T>();  // two of a, two of b
  __shared__ At table[2][DEPTH];
  __shared__ Taps taps[2];
  auto w = begin<MODE, TM, TN>(v, a, b, len, taps);
  int t = threadIdx.x, steps = (w.end - w.from + DEPTH - 1) / DEPTH, lane = t & 31, warp = t >> 5;
  constexpr int ACROSS_A = DEPTH / 2, ACROSS_B = TN / 2, DOWN_A = LANES / ACROSS_A, DOWN_B = LANES / ACROSS_B;
  int ak = t % ACROSS_A * 2, am = t / ACROSS_A, bn = t % ACROSS_B * 2, bk = t / ACROSS_B, pitch = w.s.pitch();
  At n0 = w.s.of_n(w.n0 + bn), n1 = w.s.of_n(w.n0 + bn + 1);
  const T* rows = a + (w.m0 + am) * pitch;
  u32 ra[LA], rb[LB];
  auto fetch = [&](int step) {
    const At* at = table[step & 1];
    int k0 = at[ak].a, k1 = at[ak + 1].a;
#pragma unroll
    for (int i = 0; i < LA; i++) {
      bool row = w.m0 + am + i * DOWN_A < w.M;
      u32 lo = row && k0 >= 0 ? bits_of(rows[i * DOWN_A * pitch + k0]) : 0,
          hi = row && k1 >= 0 ? bits_of(rows[i * DOWN_A * pitch + k1]) : 0;
      ra[i] = lo | hi << 16;
    }
#pragma unroll
    for (int i = 0; i < LB; i++) {
      At k = at[bk + i * DOWN_B];
      rb[i] = bits_of(w.s.b_at(b, k, n0)) | bits_of(w.s.b_at(b, k, n1)) << 16;
    }
  };
  if (t < DEPTH) table[0][t] = w.s.of_k(w.from + t, w.end);
  __syncthreads();
  fetch(0);
  if (t < DEPTH) table[1][t] = w.s.of_k(w.from + DEPTH + t, w.end);
  float acc[PM][PN][4] = {};
  int wm = warp / 4 * (TM / 2), wn = warp % 4 * (TN / 4);
#pragma unroll 1
  for (int step = 0; step < steps; step++) {
    T *A = tiles + (step & 1) * TM * LDA, *B = tiles + 2 * TM * LDA + (step & 1) * DEPTH * LDB;
#pragma unroll
    for (int i = 0; i < LA; i++) *(u32*)(A + (am + i * DOWN_A) * LDA + ak) = ra[i];
#pragma unroll
    for (int i = 0; i < LB; i++) *(u32*)(B + (bk + i * DOWN_B) * LDB + bn) = rb[i];
    __syncthreads();
    if (step + 1 < steps) fetch(step + 1);
    if (t < DEPTH) table[step & 1][t] = w.s.of_k(w.from + (step + 2) * DEPTH + t, w.end);
#pragma unroll
    for (int k = 0; k < DEPTH; k += 16) {
      u32 x[PM][4];
#pragma unroll
      for (int m = 0; m < PM; m++) ldmatrix(x[m], A + (wm + m * 16 + (lane & 15)) * LDA + k + (lane >> 4) * 8);
#pragma unroll
      for (int n = 0; n < PN; n += 2) {
        u32 y[4];  // b of columns n*8.. and n*8+8..
        ldmatrix_trans(y, B + (k + (lane & 15)) * LDB + wn + n * 8 + (lane >> 4) * 8);
#pragma unroll
        for (int m = 0; m < PM; m++) mma<T>(acc[m][n], x[m], y[0], y[1]), mma<T>(acc[m][n + 1], x[m], y[2], y[3]);
      }
    }
  }
#pragma unroll
  for (int m = 0; m < PM; m++)
#pragma unroll
    for (int n = 0; n < PN; n++)
#pragma unroll
      for (int e = 0; e < 4; e += 2)
        store<MODE, 2>(w, c, part, bias, w.m0 + wm + m * 16 + lane / 4 + e * 4, w.n0 + wn + n * 8 + lane % 4 * 2, &acc[m][n][e]);
}

template <bool CORES> struct Product {
  template <int MODE, int TM, int TN>
  static __device__ __forceinline__ void run(T* c, W* part, const T* a, const T* b, const T* bias, const Conv& v, int len) {
    product<MODE, TM, TN>(c, part, a, b, bias, v, len);
  }
};
template <> struct Product<true> {
  template <int MODE, int TM, int TN>
  static __device__ __forceinline__ void run(T* c, W* part, const T* a, const T* b, const T* bias, const Conv& v, int len) {
    product_mma<MODE, TM, TN>(c, part, a, b, bias, v, len);
  }
};

// WIDE is the larger tile: of float64 there is only the small one. A tile of 16-bit types has 128 columns.
enum { WIDE = sizeof(W) == 8 ? 64 : 128, BLOCKS = sizeof(W) == 8 ? 1 : 2, BLOCKS_64 = sizeof(T) == 4 ? 3 : BLOCKS };
#define CONV(NAME, TM, MIN)                                                                                                       \
  extern "C" __global__ void __launch_bounds__(LANES, MIN) conv_##NAME(T* y, const T* x, const T* w, const T* b, Conv c) {        \
    Product<HALF>::run<FORWARD, TM, HALF ? 128 : TM>(y, nullptr, w, x, b, c, 0);                                                  \
  }                                                                                                                               \
  extern "C" __global__ void __launch_bounds__(LANES, MIN) conv_grad_x_##NAME(T* d, const T* g, const T* w, const T* b, Conv c) { \
    Product<HALF>::run<GRAD_X, TM, HALF ? 128 : TM>(d, nullptr, w, g, b, c, 0);                                                   \
  }                                                                                                                               \
  extern "C" __global__ void __launch_bounds__(LANES, MIN) conv_grad_w_##NAME(W* part, const T* x, const T* g, Conv c, int len) { \
    Product<HALF>::run<GRAD_W, TM, HALF ? 128 : TM>(nullptr, part, g, x, nullptr, c, len);                                        \
  }
CONV(64, 64, BLOCKS_64)
CONV(128, WIDE, BLOCKS)

// conv_grad_w_ends: d[e] = the sum of the parts of e, of `all` elements, added to d if add.
extern "C" __global__ void conv_grad_w_ends(T* d, const W* part, i64 all, i64 parts, int add) {
  for (i64 e = first_item(); e < all; e += all_threads()) {
    W sum = 0;
#pragma unroll 8
    for (i64 p = 0; p < parts; p++) sum += part[p * all + e];
    d[e] = narrow<T>(add ? widen(d[e]) + sum : sum);
  }
}
