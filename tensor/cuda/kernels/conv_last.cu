#include "mma.cuh"
#include "conv.cuh"

// Convolution on tensor cores, for T of 16 bits. First pictures and w are written again, so that the channels of a pixel are
// neighbours: those of a group, and zeros up to a multiple of eight. Then 16 bytes are eight neighbours in k (FORWARD, GRAD_X), or in m and
// n (GRAD_W), and copies to shared memory run STAGES-1 steps ahead. The product is c[m, n] = sum over k of a[m, k] b[k, n], as in conv.cu:
//
//   FORWARD  y:  m = channel out, n = (picture, pixel out), k = (tap, channel in);    a = w as [groups*out, tap, in], b = x
//   GRAD_X   dx: m = channel in,  n = (picture, pixel in),  k = (tap, channel out);   a = w as [groups*in, tap, out], b = g
//   GRAD_W   dw: m = channel out, n = (tap, channel in),    k = (picture, pixel out); a = g, b = x; k is cut into parts
//
// For GRAD_X, blockIdx.z also counts classes of pixels, see conv.cu. Tensors have fewer than 2^31 elements, kernels at most MOST taps:
// so many fit beside the tiles, if a multiprocessor of an A100 (164 KiB of shared memory) has two blocks.

enum { DEPTH = 32, STAGES = 4, MOST = 63, TN = 128 };

// Tap is a tap of w: its number, and what it adds to the row, the column and the number of a pixel.
struct __align__(16) Tap { int number, row, col, pixel; };

// padded is the channels of a group of which some are zeros.
__device__ __forceinline__ int padded(i64 n) { return (int)(n + 7) / 8 * 8; }

// channels_last: y [pictures, pixels, groups, padded(channels)] of x [pictures, groups, channels, pixels]. Blocks are (32, 8) threads and
// have 64 pixels (x) of 64 padded channels (y) of a group of a picture (z).
extern "C" __global__ void __launch_bounds__(LANES) channels_last(T* y, const T* x, i64 groups, i64 channels, i64 pixels) {
  __shared__ u16 tile[64][66];
  int wide = padded(channels), p0 = blockIdx.x * 64, c0 = blockIdx.y * 64, across = threadIdx.x, down = threadIdx.y;
  i64 group = blockIdx.z % groups, picture = blockIdx.z / groups;
  const T* from = x + (picture * groups + group) * channels * pixels;
  T* to = y + (picture * pixels * groups + group) * wide;
  if (pixels % 2 == 0 && aligned(x, 4)) {
    int p = p0 + across * 2;
#pragma unroll
    for (int i = 0; i < 64; i += 8) {
      int c = i + down;
      u32 v = c0 + c < channels && p < pixels ? *(const u32*)(from + (i64)(c0 + c) * pixels + p) : 0;
      tile[c][across * 2] = (u16)v, tile[c][across * 2 + 1] = (u16)(v >> 16);
    }
  } else
    for (int i = down; i < 64; i += 8)
      for (int j = across; j < 64; j += 32)
        tile[i][j] = c0 + i < channels && p0 + j < pixels ? from[(i64)(c0 + i) * pixels + p0 + j].bits : 0;
  __syncthreads();
  int c = c0 + across * 2;
#pragma unroll
  for (int i = 0; i < 64; i += 8) {
    int p = i + down;
    if (c < wide && p0 + p < pixels)
      *(u32*)(to + (i64)(p0 + p) * groups * wide + c) = tile[across * 2][p] | (u32)tile[across * 2 + 1][p] << 16;
  }
}

// weights_last: y [groups*out, tap, padded(in)] of w [groups*out, in, tap] or, if back, [groups*in, tap, padded(out)].
extern "C" __global__ void weights_last(T* y, const T* w, i64 groups, i64 out, i64 in, i64 taps, int back) {
  i64 inner = back ? out : in, outer = back ? in : out, wide = padded(inner);
  for (i64 e = first_item(); e < groups * outer * taps * wide; e += all_threads()) {
    i64 i = e % wide, t = e / wide % taps, o = e / wide / taps, g = o / outer;
    o -= g * outer;
    y[e] = i < inner ? w[((g * out + (back ? i : o)) * in + (back ? o : i)) * taps + t] : narrow<T>(W(0));
  }
}

// Product is what a block has to do: TM x TN elements.
template <int MODE, int TM> struct Product {
  static constexpr int PM = TM / 32, PN = TN / 32;  // fragments of a warp
  static constexpr bool LONG = MODE != GRAD_W;      // tiles have rows of DEPTH elements, else DEPTH rows
  static constexpr int LDA = (LONG ? DEPTH : TM) + 8, LDB = (LONG ? DEPTH : TN) + 8;
  static constexpr int A_SIZE = (LONG ? TM : DEPTH) * LDA, B_SIZE = (LONG ? TN : DEPTH) * LDB;

  int h, w, oh, ow, sh, sw, ph, pw, in8, out8, groups, group, all;  // all: taps of a kernel
  int bh, bw, cr, cc, nh, nw;  // pictures of b; GRAD_X: the class; and its pixels, or those of the output
  int count, M, N, inner, m0, n0, from, end;

  __device__ __forceinline__ void begin(const Conv& v, Tap* taps, int* counted, int len) {
    h = (int)v.h, w = (int)v.w, oh = (int)v.oh, ow = (int)v.ow, sh = (int)v.sh, sw = (int)v.sw, ph = (int)v.ph, pw = (int)v.pw;
    in8 = padded(v.in), out8 = padded(v.out), groups = (int)v.groups, all = (int)(v.kh * v.kw);
    int number = blockIdx.z / groups;  // of the class or the part
    group = blockIdx.z % groups;
    bh = MODE == GRAD_X ? oh : h, bw = MODE == GRAD_X ? ow : w;
    cr = MODE == GRAD_X ? number / sw : 0, cc = MODE == GRAD_X ? number % sw : 0;
    nh = MODE == GRAD_X ? (h - cr + sh - 1) / sh : oh, nw = MODE == GRAD_X ? (w - cc + sw - 1) / sw : ow;
    if (threadIdx.x == 0) *counted = list(v, taps);
    __syncthreads();
    count = *counted, M = MODE == GRAD_X ? (int)v.in : (int)v.out, inner = MODE == GRAD_X ? out8 : in8;
    int pixels = (int)v.n * nh * nw;
    N = LONG ? pixels : all * in8, from = 0, end = LONG ? count * inner : pixels;
    if (MODE == GRAD_W) from = number * len, end = from + len < end ? from + len : end;
    m0 = blockIdx.y * TM, n0 = blockIdx.x * TN;
  }
  // list lists the taps that reach the pixels.
  __device__ __forceinline__ int list(const Conv& v, Tap* taps) const {
    int n = 0;
    for (int i = 0; i < (int)v.kh; i++)
      for (int j = 0; j < (int)v.kw; j++) {
        int r = i * (int)v.dh, q = j * (int)v.dw;
        if (MODE == GRAD_X) {
          r = cr + ph - r, q = cc + pw - q;
          if (r % sh || q % sw) continue;
          r /= sh, q /= sw;
        }
        taps[n++] = {i * (int)v.kw + j, r, q, r * bw + q};
      }
    return n;
  }
  // place is a pixel's window: row, column and number of the pixel of b where it begins.
  __device__ __forceinline__ Tap place(int n) const {
    if (n >= (LONG ? N : end)) return {0, OUTSIDE, OUTSIDE, 0};
    int m = n / (nh * nw), p = n - m * (nh * nw), r = p / nw, q = p - r * nw;
    if (MODE != GRAD_X) r = r * sh - ph, q = q * sw - pw;
    return {0, r, q, (m * bh + r) * bw + q};
  }
  __device__ __forceinline__ bool inside(const Tap& p, const Tap& tap) const {
    return (u32)(p.row + tap.row) < (u32)bh && (u32)(p.col + tap.col) < (u32)bw;
  }
  __device__ __forceinline__ void multiply(float (&acc)[PM][PN][4], const T* A, const T* B) const {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, wm = warp / 4 * (TM / 2), wn = warp % 4 * (TN / 4);
#pragma unroll
    for (int k = 0; k < DEPTH; k += 16) {
      u32 x[PM][4];
#pragma unroll
      for (int m = 0; m < PM; m++)
        if (LONG) ldmatrix(x[m], A + (wm + m * 16 + (lane & 15)) * LDA + k + (lane >> 4) * 8);
        else ldmatrix_trans(x[m], A + (k + (lane & 7) + (lane & 16) / 2) * LDA + wm + m * 16 + (lane & 8));
#pragma unroll
      for (int n = 0; n < PN; n += 2) {
        u32 y[4];  // b of columns n*8.. and n*8+8..
        if (LONG) ldmatrix(y, B + (wn + n * 8 + (lane & 7) + (lane & 16) / 2) * LDB + k + (lane & 8));
        else ldmatrix_trans(y, B + (k + (lane & 15)) * LDB + wn + n * 8 + (lane >> 4) * 8);
#pragma unroll
        for (int m = 0; m < PM; m++) mma<T>(acc[m][n], x[m], y[0], y[1]), mma<T>(acc[m][n + 1], x[m], y[2], y[3]);
      }
    }
  }
  // store_parts writes the sums of a part of GRAD_W: part [parts, groups, M, N].
  __device__ __forceinline__ void store_parts(W* part, const float (&acc)[PM][PN][4]) const {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, row0 = m0 + warp / 4 * (TM / 2) + lane / 4;
    int col0 = n0 + warp % 4 * (TN / 4) + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < PN; n++)
#pragma unroll
      for (int m = 0; m < PM; m++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          int row = row0 + m * 16 + e * 8, col = col0 + n * 8;
          if (row >= M || col >= N) continue;
          Pack<W, 2> p = {{acc[m][n][2 * e], acc[m][n][2 * e + 1]}};
          *(Pack<W, 2>*)(part + ((i64)blockIdx.z * M + row) * N + col) = p;
        }
  }
  // store writes y or dx, with channels before pixels.
  __device__ __forceinline__ void store(T* c, const T* bias, const float (&acc)[PM][PN][4]) const {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, row0 = m0 + warp / 4 * (TM / 2) + lane / 4;
    int col0 = n0 + warp % 4 * (TN / 4) + lane % 4 * 2, size = MODE == FORWARD ? oh * ow : h * w, channels = groups * M;
    bool dense = (MODE == FORWARD || sh == 1 && sw == 1) && size % 2 == 0 && aligned(c, 4);
#pragma unroll
    for (int n = 0; n < PN; n++) {
      int col = col0 + n * 8;
      if (col >= N) continue;
      i64 to[2];
#pragma unroll
      for (int e = 0; e < 2; e++) {
        int picture = (col + e) / (nh * nw), p = col + e - picture * (nh * nw);
        if (MODE == GRAD_X) p = (p / nw * sh + cr) * w + p % nw * sw + cc;
        to[e] = (i64)picture * channels * size + p;
      }
#pragma unroll
      for (int m = 0; m < PM; m++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          int row = row0 + m * 16 + e * 8;
          if (row >= M) continue;
          float lo = acc[m][n][2 * e], hi = acc[m][n][2 * e + 1];
          i64 o = group * M + row;
          if (bias) lo += widen(bias[o]), hi += widen(bias[o]);
          if (dense) *(u32*)(c + to[0] + o * size) = pack<T>(lo, hi);
          else {
            c[to[0] + o * size] = narrow<T>(lo);
            if (col + 1 < N) c[to[1] + o * size] = narrow<T>(hi);
          }
        }
    }
  }
};

template <int MODE, int TM>
__device__ __forceinline__ void product(T* c, W* part, const T* a, const T* b, const T* bias, const Conv& v, int len) {
  typedef Product<MODE, TM> P;
  __shared__ Tap taps[MOST];
  __shared__ int counted;
  T *as = dynamic_shared<T>(), *bs = as + STAGES * P::A_SIZE;
  P w;
  w.begin(v, taps, &counted, len);
  int t = threadIdx.x, steps = (w.end - w.from + DEPTH - 1) / DEPTH, row_a = w.groups * w.out8, row_b = w.groups * w.inner;
  // FORWARD and GRAD_X: this thread has eight numbers of k of the rows t/4 and t/4 + 64 of both tiles; (tap, at) is where it is in k.
  // GRAD_W: it has eight columns of rows of k.
  int chunk = t % 4 * 8, tap = 0, at = chunk, am = t % (TM / 8) * 8, bn = t % (TN / 8) * 8, column = 0;
  Tap mine[2], tap_b = {0, OUTSIDE, OUTSIDE, 0};
  if (MODE == GRAD_W) {
    if (w.n0 + bn < w.N) tap_b = taps[(w.n0 + bn) / w.in8], column = w.group * w.in8 + (w.n0 + bn) % w.in8;
  } else {
    mine[0] = w.place(w.n0 + t / 4), mine[1] = w.place(w.n0 + t / 4 + 64);
    while (at >= w.inner) at -= w.inner, tap++;
  }
  auto columns = [&](int step, T* A, T* B) {
    constexpr int DOWN_A = LANES / (TM / 8), DOWN_B = LANES / (TN / 8);
    int k0 = w.from + step * DEPTH, m = w.m0 + am;
#pragma unroll
    for (int i = 0; i < DEPTH / DOWN_A; i++) {
      int r = t / (TM / 8) + i * DOWN_A;
      bool real = k0 + r < w.end && m < w.out8;
      copy16(A + r * P::LDA + am, real ? a + (i64)(k0 + r) * row_a + w.group * w.out8 + m : a, real);
    }
#pragma unroll
    for (int i = 0; i < DEPTH / DOWN_B; i++) {
      int r = t / (TN / 8) + i * DOWN_B;
      Tap p = w.place(k0 + r);
      bool real = w.inside(p, tap_b);
      copy16(B + r * P::LDB + bn, real ? b + (i64)(p.pixel + tap_b.pixel) * row_b + column : b, real);
    }
  };
  auto rows = [&](T* A, T* B) {
    bool there = tap < w.count;
    Tap u = taps[there ? tap : 0];
#pragma unroll
    for (int i = 0; i < TM / 64; i++) {
      int m = w.m0 + t / 4 + 64 * i;
      bool real = there && m < w.M;
      copy16(A + (t / 4 + 64 * i) * P::LDA + chunk, real ? a + ((i64)(w.group * w.M + m) * w.all + u.number) * w.inner + at : a, real);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
      bool real = there && w.inside(mine[i], u);
      const T* from = real ? b + (i64)(mine[i].pixel + u.pixel) * row_b + w.group * w.inner + at : b;
      copy16(B + (t / 4 + 64 * i) * P::LDB + chunk, from, real);
    }
    at += DEPTH;
    while (at >= w.inner) at -= w.inner, tap++;
  };
  auto fetch = [&](int step) {
    T *A = as + step % STAGES * P::A_SIZE, *B = bs + step % STAGES * P::B_SIZE;
    if (step < steps) {
      if (MODE == GRAD_W) columns(step, A, B);
      else rows(A, B);
    }
    copies_commit();
  };
  float acc[P::PM][P::PN][4] = {};
#pragma unroll
  for (int s = 0; s < STAGES - 1; s++) fetch(s);
#pragma unroll 1
  for (int s = 0; s < steps; s++) {
    copies_wait<STAGES - 2>();
    __syncthreads();
    fetch(s + STAGES - 1);
    w.multiply(acc, as + s % STAGES * P::A_SIZE, bs + s % STAGES * P::B_SIZE);
  }
  copies_wait<0>();
  if (MODE == GRAD_W) w.store_parts(part, acc);
  else w.store(c, bias, acc);
}

#define CONV(TM)                                                                                                                  \
  extern "C" __global__ void __launch_bounds__(LANES, 2) conv_last_##TM(T* y, const T* x, const T* w, const T* b, Conv c) {       \
    product<FORWARD, TM>(y, nullptr, w, x, b, c, 0);                                                                              \
  }                                                                                                                               \
  extern "C" __global__ void __launch_bounds__(LANES, 2) conv_last_grad_x_##TM(T* d, const T* g, const T* w, const T* b, Conv c) { \
    product<GRAD_X, TM>(d, nullptr, w, g, b, c, 0);                                                                               \
  }                                                                                                                               \
  extern "C" __global__ void __launch_bounds__(LANES, 2) conv_last_grad_w_##TM(W* part, const T* x, const T* g, Conv c, int len) { \
    product<GRAD_W, TM>(nullptr, part, g, x, nullptr, c, len);                                                                    \
  }
CONV(64)
CONV(128)

// conv_last_ends: d [rows, in, tap] = the sum of the parts, [parts, rows, tap, padded(in)], added to d if add. rows is groups*out.
extern "C" __global__ void conv_last_ends(T* d, const W* part, i64 rows, i64 in, i64 taps, i64 parts, int add) {
  i64 wide = padded(in), all = rows * taps * wide;
  for (i64 e = first_item(); e < rows * in * taps; e += all_threads()) {
    i64 o = e / (in * taps), i = e / taps % in, t = e % taps;
    const W* from = part + (o * taps + t) * wide + i;
    W sum = 0;
#pragma unroll 8
    for (i64 p = 0; p < parts; p++) sum += from[p * all];
    d[e] = narrow<T>(add ? widen(d[e]) + sum : sum);
  }
}
