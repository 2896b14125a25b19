#include "conv.cuh"

// Convolution, pooling and batch norm of pictures, a thread for each element or a block for each channel. Sums have a fixed order.

// conv2d: y [n, groups*out, oh, ow] of x [n, groups*in, h, w], w [groups*out, in, kh, kw] and the bias b, which may be null.
extern "C" __global__ void conv2d(T* y, const T* x, const T* w, const T* b, Conv c) {
  i64 pixels = c.oh * c.ow, all = c.n * c.groups * c.out * pixels;
  for (i64 e = first_item(); e < all; e += all_threads()) {
    i64 col = e % c.ow, row = e / c.ow % c.oh, o = e / pixels % (c.groups * c.out), n = e / pixels / (c.groups * c.out);
    const T* from = x + (n * c.groups + o / c.out) * c.in * c.h * c.w;
    const T* weight = w + o * c.in * c.kh * c.kw;
    W sum = 0;
    for (i64 k = 0; k < c.in; k++)
      for (i64 i = 0; i < c.kh; i++)
        for (i64 j = 0; j < c.kw; j++, weight++) {
          i64 r = row * c.sh - c.ph + i * c.dh, q = col * c.sw - c.pw + j * c.dw;
          if (r >= 0 && r < c.h && q >= 0 && q < c.w) sum += widen(from[(k * c.h + r) * c.w + q]) * widen(*weight);
        }
    y[e] = narrow<T>(b ? sum + widen(b[o]) : sum);
  }
}

// conv2d_grad_x: each pixel of x gets a part of the gradients g of the outputs that read it, and as a transposed convolution the bias b,
// which may be null.
extern "C" __global__ void conv2d_grad_x(T* d, const T* g, const T* w, const T* b, Conv c) {
  i64 pixels = c.h * c.w, all = c.n * c.groups * c.in * pixels;
  for (i64 e = first_item(); e < all; e += all_threads()) {
    i64 col = e % c.w, row = e / c.w % c.h, k = e / pixels % (c.groups * c.in), n = e / pixels / (c.groups * c.in), group = k / c.in;
    W sum = 0;
    for (i64 o = group * c.out; o < (group + 1) * c.out; o++)
      for (i64 i = 0; i < c.kh; i++) {
        i64 r = row + c.ph - i * c.dh;
        if (r < 0 || r % c.sh || r / c.sh >= c.oh) continue;
        for (i64 j = 0; j < c.kw; j++) {
          i64 q = col + c.pw - j * c.dw;
          if (q < 0 || q % c.sw || q / c.sw >= c.ow) continue;
          sum += widen(g[((n * c.groups * c.out + o) * c.oh + r / c.sh) * c.ow + q / c.sw]) * widen(w[((o * c.in + k % c.in) * c.kh + i) * c.kw + j]);
        }
      }
    d[e] = narrow<T>(b ? sum + widen(b[k]) : sum);
  }
}

enum { THREADS = 256 };

// total sums v over the block, in a fixed order.
template <class E> __device__ __forceinline__ E total(E v, E* shared) {
  shared[threadIdx.x] = v;
  __syncthreads();
  for (int distance = THREADS / 2; distance > 0; distance /= 2) {
    if (threadIdx.x < distance) shared[threadIdx.x] += shared[threadIdx.x + distance];
    __syncthreads();
  }
  v = shared[0];
  __syncthreads();
  return v;
}

// conv2d_grad_w: a block for each weight; added to d if add.
extern "C" __global__ void conv2d_grad_w(T* d, const T* x, const T* g, Conv c, int add) {
  __shared__ W shared[THREADS];
  i64 e = blockIdx.x, j = e % c.kw, i = e / c.kw % c.kh, k = e / (c.kw * c.kh) % c.in, o = e / (c.kw * c.kh * c.in), pixels = c.oh * c.ow;
  W sum = 0;
  for (i64 p = threadIdx.x; p < c.n * pixels; p += THREADS) {
    i64 n = p / pixels, r = p / c.ow % c.oh * c.sh - c.ph + i * c.dh, q = p % c.ow * c.sw - c.pw + j * c.dw;
    if (r >= 0 && r < c.h && q >= 0 && q < c.w)
      sum += widen(x[(((n * c.groups + o / c.out) * c.in + k) * c.h + r) * c.w + q]) * widen(g[(n * c.groups * c.out + o) * pixels + p % pixels]);
  }
  sum = total(sum, shared);
  if (threadIdx.x == 0) d[e] = narrow<T>(add ? widen(d[e]) + sum : sum);
}

// Pool is the sizes of a pooling.
struct Pool {
  i64 planes, h, w, oh, ow, kh, kw, sh, sw, ph, pw;
};

// divide is i / n and the rest, by 32 bits where these are enough: divisions of 64 bits are slow, and there are several for each element.
struct Divided { i64 q, rest; };
__device__ __forceinline__ Divided divide(i64 i, i64 n) {
  if ((i | n) >> 32) {
    i64 q = i / n;
    return {q, i - q * n};
  }
  u32 q = (u32)i / (u32)n;
  return {q, (u32)i - q * (u32)n};
}
// Spot is element i of planes of h x w.
struct Spot { i64 plane, row, col; };
__device__ __forceinline__ Spot spot(i64 i, i64 h, i64 w) {
  Divided line = divide(i, w), plane = divide(line.q, h);
  return {plane.q, plane.rest, line.rest};
}

__device__ __forceinline__ i64 max_(i64 a, i64 b) { return a > b ? a : b; }
__device__ __forceinline__ i64 min_(i64 a, i64 b) { return a < b ? a : b; }

extern "C" __global__ void max_pool2d(T* y, int* places, const T* x, Pool p) {
  for (i64 e = first_item(); e < p.planes * p.oh * p.ow; e += all_threads()) {
    Spot out = spot(e, p.oh, p.ow);
    i64 top = out.row * p.sh - p.ph, left = out.col * p.sw - p.pw;
    const T* in = x + out.plane * p.h * p.w;
    i64 at = max_(top, 0) * p.w + max_(left, 0);
    W best = widen(in[at]);
    for (i64 r = max_(top, 0); r < min_(top + p.kh, p.h); r++)
      for (i64 q = max_(left, 0); q < min_(left + p.kw, p.w); q++) {
        W v = widen(in[r * p.w + q]);
        if (v > best || (v != v && best == best)) best = v, at = r * p.w + q;
      }
    y[e] = narrow<T>(best);
    places[e] = (int)at;
  }
}

// windows calls f(output) for the windows that have a pixel, in their order.
template <class F> __device__ __forceinline__ void windows(const Pool& p, const Spot& at, F f) {
  i64 row = at.row + p.ph, col = at.col + p.pw;
  i64 r0 = row < p.kh ? 0 : divide(row - p.kh, p.sh).q + 1, r1 = min_(divide(row, p.sh).q, p.oh - 1);
  i64 q0 = col < p.kw ? 0 : divide(col - p.kw, p.sw).q + 1, q1 = min_(divide(col, p.sw).q, p.ow - 1);
  for (i64 r = r0; r <= r1; r++)
    for (i64 q = q0; q <= q1; q++) f((at.plane * p.oh + r) * p.ow + q);
}

extern "C" __global__ void max_pool2d_grad(T* d, const T* g, const int* places, Pool p) {
  for (i64 e = first_item(); e < p.planes * p.h * p.w; e += all_threads()) {
    W sum = 0;
    Spot at = spot(e, p.h, p.w);
    windows(p, at, [&](i64 out) {
      if (places[out] == at.row * p.w + at.col) sum += widen(g[out]);
    });
    d[e] = narrow<T>(sum);
  }
}

extern "C" __global__ void avg_pool2d(T* y, const T* x, Pool p) {
  for (i64 e = first_item(); e < p.planes * p.oh * p.ow; e += all_threads()) {
    Spot out = spot(e, p.oh, p.ow);
    i64 top = out.row * p.sh - p.ph, left = out.col * p.sw - p.pw;
    const T* in = x + out.plane * p.h * p.w;
    W sum = 0;
    for (i64 r = max_(top, 0); r < min_(top + p.kh, p.h); r++)
      for (i64 q = max_(left, 0); q < min_(left + p.kw, p.w); q++) sum += widen(in[r * p.w + q]);
    y[e] = narrow<T>(sum / (W)(p.kh * p.kw));
  }
}

extern "C" __global__ void avg_pool2d_grad(T* d, const T* g, Pool p) {
  for (i64 e = first_item(); e < p.planes * p.h * p.w; e += all_threads()) {
    W sum = 0;
    windows(p, spot(e, p.h, p.w), [&](i64 out) { sum += widen(g[out]) / (W)(p.kh * p.kw); });
    d[e] = narrow<T>(sum);
  }
}

// Planes is the sizes of small planes, h x w, and large ones, height x width, and whether pixels between others are bilinear.
struct Planes {
  i64 n, h, w, height, width, bilinear;
};

// Pixels is from which pixels another one is made: 1-weight of the first, and weight of the second.
struct Pixels {
  i64 first, second;
  double weight;
  // of returns the weight of pixel i.
  __device__ __forceinline__ double of(i64 i) const { return (first == i ? 1 - weight : 0) + (second == i ? weight : 0); }
};

// between returns from which of n pixels pixel i of out is made.
__device__ __forceinline__ Pixels between(i64 i, i64 n, i64 out, i64 bilinear) {
  if (!bilinear) return {i * n / out, i * n / out, 0};
  double at = (i + 0.5) * (double)n / (double)out - 0.5;
  if (at < 0) at = 0;
  i64 first = (i64)at;
  return {first, min_(first + 1, n - 1), at - (double)first};
}

extern "C" __global__ void upsample2d(T* y, const T* x, Planes p) {
  for (i64 e = first_item(); e < p.n * p.height * p.width; e += all_threads()) {
    Pixels r = between(e / p.width % p.height, p.h, p.height, p.bilinear), c = between(e % p.width, p.w, p.width, p.bilinear);
    const T* in = x + e / (p.height * p.width) * p.h * p.w;
    i64 at[4] = {r.first * p.w + c.first, r.first * p.w + c.second, r.second * p.w + c.first, r.second * p.w + c.second};
    double weight[4] = {(1 - r.weight) * (1 - c.weight), (1 - r.weight) * c.weight, r.weight * (1 - c.weight), r.weight * c.weight}, sum = 0;
    for (int k = 0; k < 4; k++)
      if (weight[k] != 0) sum += weight[k] * (double)widen(in[at[k]]);
    y[e] = narrow<T>((W)sum);
  }
}

// near_first and near_last are the range of pixels of out that may be made of pixel i of n.
__device__ __forceinline__ i64 near_first(i64 i, i64 n, i64 out) { return max_((2 * i - 1) * out / (2 * n) - 1, 0); }
__device__ __forceinline__ i64 near_last(i64 i, i64 n, i64 out) { return min_((2 * i + 3) * out / (2 * n) + 1, out - 1); }

extern "C" __global__ void upsample2d_grad(T* d, const T* g, Planes p) {
  for (i64 e = first_item(); e < p.n * p.h * p.w; e += all_threads()) {
    i64 row = e / p.w % p.h, col = e % p.w;
    const T* from = g + e / (p.h * p.w) * p.height * p.width;
    double sum = 0;
    for (i64 i = near_first(row, p.h, p.height); i <= near_last(row, p.h, p.height); i++) {
      double down = between(i, p.h, p.height, p.bilinear).of(row);
      if (down == 0) continue;
      for (i64 j = near_first(col, p.w, p.width); j <= near_last(col, p.w, p.width); j++) {
        double weight = down * between(j, p.w, p.width, p.bilinear).of(col);
        if (weight != 0) sum += weight * (double)widen(from[i * p.width + j]);
      }
    }
    d[e] = narrow<T>((W)sum);
  }
}

// The channels of x [rows, channels, size]: a block for each. Sums are in double.

// Sums of a channel.
struct Sums { double a, b; };

// over sums f(i) over the elements i of this block's channel.
template <class F> __device__ __forceinline__ Sums channel(i64 rows, i64 channels, i64 size, F f) {
  __shared__ double shared[THREADS];
  Sums s = {0, 0};
  for (i64 k = threadIdx.x; k < rows * size; k += THREADS) {
    Divided row = divide(k, size);
    Sums v = f((row.q * channels + blockIdx.x) * size + row.rest);
    s.a += v.a, s.b += v.b;
  }
  s.a = total(s.a, shared);
  s.b = total(s.b, shared);
  return s;
}

extern "C" __global__ void channel_sums(double* sums, const T* x, i64 rows, i64 channels, i64 size) {
  Sums s = channel(rows, channels, size, [&](i64 i) {
    double v = (double)widen(x[i]);
    return Sums{v, v * v};
  });
  if (threadIdx.x) return;
  sums[blockIdx.x] = s.a, sums[channels + blockIdx.x] = s.b;
  if (blockIdx.x == 0) sums[2 * channels] = (double)(rows * size);
}

extern "C" __global__ void channel_sums_grad(T* d, const T* x, const double* g, i64 rows, i64 channels, i64 size) {
  for (i64 i = first_item(); i < rows * channels * size; i += all_threads()) {
    i64 c = divide(divide(i, size).q, channels).rest;
    d[i] = narrow<T>((W)(g[c] + 2 * g[channels + c] * (double)widen(x[i])));
  }
}

// Moments of a channel.
struct Moments { double mean, variance; };

__device__ __forceinline__ Moments moments(const double* sums, i64 channels, i64 c) {
  double n = sums[2 * channels], mean = sums[c] / n, v = sums[channels + c] / n - mean * mean;
  return {mean, v > 0 ? v : 0};
}

extern "C" __global__ void batch_norm(T* y, const T* x, const double* sums, const T* w, const T* b, i64 rows, i64 channels, i64 size, double eps) {
  for (i64 i = first_item(); i < rows * channels * size; i += all_threads()) {
    i64 c = divide(divide(i, size).q, channels).rest;
    Moments m = moments(sums, channels, c);
    W scale = (W)((w ? (double)widen(w[c]) : 1.0) / sqrt(m.variance + eps));
    y[i] = narrow<T>((widen(x[i]) - (W)m.mean) * scale + (b ? widen(b[c]) : (W)0));
  }
}

extern "C" __global__ void batch_norm_grad(T* dx, double* ds, T* dw, T* db, const T* x, const T* g, const double* sums, const T* w, i64 rows,
                                           i64 channels, i64 size, double eps) {
  i64 c = blockIdx.x;
  Moments m = moments(sums, channels, c);
  double rstd = 1 / sqrt(m.variance + eps), weight = w ? (double)widen(w[c]) : 1.0, n = sums[2 * channels];
  W scale = (W)(weight * rstd);
  Sums s = channel(rows, channels, size, [&](i64 i) {
    double v = (double)widen(g[i]);
    dx[i] = narrow<T>(widen(g[i]) * scale);
    return Sums{v, v * ((double)widen(x[i]) - m.mean)};
  });
  if (threadIdx.x) return;
  double dot = s.b * rstd, square = -0.5 * weight * rstd * rstd * dot / n;
  if (dw) dw[c] = narrow<T>((W)dot);
  if (db) db[c] = narrow<T>((W)s.a);
  ds[c] = -weight * rstd * s.a / n - 2 * m.mean * square;
  ds[channels + c] = square;
  if (c == 0) ds[2 * channels] = 0;
}

extern "C" __global__ void running_stats(T* means, T* variances, const double* sums, i64 channels, double momentum) {
  for (i64 c = first_item(); c < channels; c += all_threads()) {
    Moments m = moments(sums, channels, c);
    double n = sums[2 * channels];
    means[c] = narrow<T>((W)((1 - momentum) * (double)widen(means[c]) + momentum * m.mean));
    variances[c] = narrow<T>((W)((1 - momentum) * (double)widen(variances[c]) + momentum * m.variance * n / (n > 2 ? n - 1 : 1)));
  }
}
