// Functions of one element, and their gradients: y = f(x), d = f(g, s), on contiguous operands. T is a float.

enum { VEC = 16 / sizeof(T) };

// map computes y[i] = f(x[i]), 16 bytes at a time where both are aligned to that. y may be x.
template <class F> __device__ __forceinline__ void map(T* y, const T* x, i64 n, F f) {
  typedef Pack<T, VEC> P;
  i64 done = 0;
  if (aligned(y, 16) && aligned(x, 16)) {
    for (i64 i = first_item(); i < n / VEC; i += all_threads()) {
      P p = ((const P*)x)[i];
#pragma unroll
      for (int k = 0; k < VEC; k++) p.v[k] = narrow<T>(f(widen(p.v[k])));
      ((P*)y)[i] = p;
    }
    done = n / VEC * VEC;
  }
  for (i64 i = done + first_item(); i < n; i += all_threads()) y[i] = narrow<T>(f(widen(x[i])));
}

// map2 computes d[i] = f(g[i], s[i]). d may be g or s.
template <class F> __device__ __forceinline__ void map2(T* d, const T* g, const T* s, i64 n, F f) {
  typedef Pack<T, VEC> P;
  i64 done = 0;
  if (aligned(d, 16) && aligned(g, 16) && aligned(s, 16)) {
    for (i64 i = first_item(); i < n / VEC; i += all_threads()) {
      P p = ((const P*)g)[i], q = ((const P*)s)[i];
#pragma unroll
      for (int k = 0; k < VEC; k++) p.v[k] = narrow<T>(f(widen(p.v[k]), widen(q.v[k])));
      ((P*)d)[i] = p;
    }
    done = n / VEC * VEC;
  }
  for (i64 i = done + first_item(); i < n; i += all_threads()) d[i] = narrow<T>(f(widen(g[i]), widen(s[i])));
}

// Functions in both precisions.
__device__ __forceinline__ float sin_(float x) { return sinf(x); }
__device__ __forceinline__ double sin_(double x) { return sin(x); }
__device__ __forceinline__ float cos_(float x) { return cosf(x); }
__device__ __forceinline__ double cos_(double x) { return cos(x); }
__device__ __forceinline__ float erfc_(float x) { return erfcf(x); }
__device__ __forceinline__ double erfc_(double x) { return erfc(x); }
__device__ __forceinline__ float abs_(float x) { return fabsf(x); }
__device__ __forceinline__ double abs_(double x) { return fabs(x); }

// within brings x into [-limit, limit]. NaN stays NaN.
__device__ __forceinline__ W within(W x, W limit) { return x > limit ? limit : x < -limit ? -limit : x; }

// The standard normal distribution function. Its lower tail has no cancellation.
__device__ __forceinline__ W normal(W x) { return W(0.5) * erfc_(x * W(-0.70710678118654752440)); }

#define GELU_SCALE W(2 * 0.7978845608028653558798921198687637369517)  // 2*sqrt(2/pi)
#define GELU_CUBIC W(2 * 0.7978845608028653558798921198687637369517 * 0.044715)

// gelu_tanh is x*sigmoid(u), u = x*(scale + cubic*x*x); the slope is s + x*s*(1-s)*u', where 1-s is exp(-u)*s.
__device__ __forceinline__ W gelu_tanh_slope(W x) {
  x = within(x, sizeof(W) == 4 ? 10 : 20);  // beyond this range the result is that at its end
  W q = x * x, e = exp_(x * (-GELU_CUBIC * q - GELU_SCALE)), s = over(1, 1 + e);
  return s + x * s * (e * s) * (3 * GELU_CUBIC * q + GELU_SCALE);
}

__device__ __forceinline__ W silu_slope(W x) {
  x = within(x, sizeof(W) == 4 ? 80 : 700);
  W e = exp_(-x), s = over(1, 1 + e);
  return s + x * s * (e * s);
}

__device__ __forceinline__ W gelu_slope(W x) {
  return normal(x) + x * (exp_(x * x * W(-0.5)) * W(0.39894228040143267794));
}

extern "C" __global__ void neg(T* y, const T* x, i64 n) { map(y, x, n, [](W v) { return -v; }); }
extern "C" __global__ void abs_value(T* y, const T* x, i64 n) { map(y, x, n, [](W v) { return abs_(v); }); }
extern "C" __global__ void exponential(T* y, const T* x, i64 n) { map(y, x, n, [](W v) { return exp_(v); }); }
extern "C" __global__ void logarithm(T* y, const T* x, i64 n) { map(y, x, n, [](W v) { return log_(v); }); }
extern "C" __global__ void square_root(T* y, const T* x, i64 n) { map(y, x, n, [](W v) { return sqrt_(v); }); }
extern "C" __global__ void square(T* y, const T* x, i64 n) { map(y, x, n, [](W v) { return v * v; }); }
extern "C" __global__ void recip(T* y, const T* x, i64 n) { map(y, x, n, [](W v) { return 1 / v; }); }
extern "C" __global__ void sine(T* y, const T* x, i64 n) { map(y, x, n, [](W v) { return sin_(v); }); }
extern "C" __global__ void cosine(T* y, const T* x, i64 n) { map(y, x, n, [](W v) { return cos_(v); }); }
extern "C" __global__ void hyperbolic_tangent(T* y, const T* x, i64 n) { map(y, x, n, [](W v) { return tanh_(v); }); }
extern "C" __global__ void sigmoid(T* y, const T* x, i64 n) { map(y, x, n, [](W v) { return over(1, 1 + exp_(-v)); }); }
extern "C" __global__ void relu(T* y, const T* x, i64 n) { map(y, x, n, [](W v) { return v <= 0 ? W(0) : v; }); }
extern "C" __global__ void gelu(T* y, const T* x, i64 n) { map(y, x, n, [](W v) { return v * normal(v); }); }
extern "C" __global__ void gelu_tanh(T* y, const T* x, i64 n) {
  map(y, x, n, [](W v) { return over(v, 1 + exp_(v * (-GELU_CUBIC * (v * v) - GELU_SCALE))); });
}
extern "C" __global__ void silu(T* y, const T* x, i64 n) { map(y, x, n, [](W v) { return over(v, 1 + exp_(-v)); }); }
extern "C" __global__ void affine(T* y, const T* x, i64 n, W a, W b) { map(y, x, n, [=](W v) { return a * v + b; }); }

// Gradients: g times the slope, given the input x or the output y, whichever is cheaper.
extern "C" __global__ void abs_grad(T* d, const T* g, const T* x, i64 n) {
  map2(d, g, x, n, [](W g, W x) { return x < 0 ? -g : x == 0 ? W(0) : x != x ? x : g; });
}
extern "C" __global__ void sqrt_grad(T* d, const T* g, const T* y, i64 n) {
  map2(d, g, y, n, [](W g, W y) { return g / (2 * y); });
}
extern "C" __global__ void square_grad(T* d, const T* g, const T* x, i64 n) {
  map2(d, g, x, n, [](W g, W x) { return g * (2 * x); });
}
extern "C" __global__ void recip_grad(T* d, const T* g, const T* y, i64 n) {
  map2(d, g, y, n, [](W g, W y) { return -g * (y * y); });
}
extern "C" __global__ void sin_grad(T* d, const T* g, const T* x, i64 n) {
  map2(d, g, x, n, [](W g, W x) { return g * cos_(x); });
}
extern "C" __global__ void cos_grad(T* d, const T* g, const T* x, i64 n) {
  map2(d, g, x, n, [](W g, W x) { return -g * sin_(x); });
}
extern "C" __global__ void tanh_grad(T* d, const T* g, const T* y, i64 n) {
  map2(d, g, y, n, [](W g, W y) { return g * (1 - y * y); });
}
extern "C" __global__ void sigmoid_grad(T* d, const T* g, const T* y, i64 n) {
  map2(d, g, y, n, [](W g, W y) { return g * (1 - y) * y; });
}
extern "C" __global__ void relu_grad(T* d, const T* g, const T* y, i64 n) {
  map2(d, g, y, n, [](W g, W y) { return y <= 0 ? W(0) : g; });
}
extern "C" __global__ void gelu_grad(T* d, const T* g, const T* x, i64 n) {
  map2(d, g, x, n, [](W g, W x) { return g * gelu_slope(x); });
}
extern "C" __global__ void gelu_tanh_grad(T* d, const T* g, const T* x, i64 n) {
  map2(d, g, x, n, [](W g, W x) { return g * gelu_tanh_slope(x); });
}
extern "C" __global__ void silu_grad(T* d, const T* g, const T* x, i64 n) {
  map2(d, g, x, n, [](W g, W x) { return g * silu_slope(x); });
}
