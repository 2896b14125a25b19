// Functions of two elements, broadcast, and comparisons. T is a number.

enum { VEC = 16 / sizeof(T) };

// zip computes z = f(x, y) over operands 0, 1, 2 of s.
template <class D, class F> __device__ __forceinline__ void zip(D* z, const T* x, const T* y, const Strided& s, F f) {
  i64 done = 0;
  if (s.vec) {
    typedef Pack<T, VEC> P;
    bool many_x = s.stride[1][0] != 0, many_y = s.stride[2][0] != 0;
    for (i64 i = first_item(); i < s.n / VEC; i += all_threads()) {
      Place p = locate(s, i * VEC);
      P a, b;
      Pack<D, VEC> c;
      if (many_x) a = *(const P*)(x + p.at[1]); else a.v[0] = x[p.at[1]];
      if (many_y) b = *(const P*)(y + p.at[2]); else b.v[0] = y[p.at[2]];
#pragma unroll
      for (int k = 0; k < VEC; k++) c.v[k] = f(widen(many_x ? a.v[k] : a.v[0]), widen(many_y ? b.v[k] : b.v[0]));
      *(Pack<D, VEC>*)(z + p.at[0]) = c;
    }
    done = s.n / VEC * VEC;
  }
  for (i64 i = done + first_item(); i < s.n; i += all_threads()) {
    Place p = locate(s, i);
    z[p.at[0]] = f(widen(x[p.at[1]]), widen(y[p.at[2]]));
  }
}

template <class E> __device__ __forceinline__ E quotient(E x, E y) {
  return y == 0 ? 0 : y == (E)-1 && (E)-1 < 0 ? (E)(0 - (U)x) : (E)(x / y);
}
__device__ __forceinline__ float quotient(float x, float y) { return x / y; }
__device__ __forceinline__ double quotient(double x, double y) { return x / y; }

// The result is NaN if x or y is. +0 counts as larger than -0: their sum has the sign.
template <class E> __device__ __forceinline__ E larger(E x, E y) {
  if (x != x || y != y) return x != x ? x : y;
  return x > y ? x : y > x ? y : x == 0 ? (E)(x + y) : x;
}
template <class E> __device__ __forceinline__ E smaller(E x, E y) {
  if (x != x || y != y) return x != x ? x : y;
  return x < y ? x : y < x ? y : x == 0 ? (E)(-(-x + -y)) : x;
}

template <class E> __device__ __forceinline__ E power(E x, E) { return x; }
__device__ __forceinline__ float power(float x, float y) { return powf(x, y); }
__device__ __forceinline__ double power(double x, double y) { return pow(x, y); }

extern "C" __global__ void add(T* z, const T* x, const T* y, const __grid_constant__ Strided s) {
  zip(z, x, y, s, [](W a, W b) { return narrow<T>(plus(a, b)); });
}
extern "C" __global__ void sub(T* z, const T* x, const T* y, const __grid_constant__ Strided s) {
  zip(z, x, y, s, [](W a, W b) { return narrow<T>((U)a - (U)b); });
}
extern "C" __global__ void mul(T* z, const T* x, const T* y, const __grid_constant__ Strided s) {
  zip(z, x, y, s, [](W a, W b) { return narrow<T>((U)a * (U)b); });
}
extern "C" __global__ void div_(T* z, const T* x, const T* y, const __grid_constant__ Strided s) {
  zip(z, x, y, s, [](W a, W b) { return narrow<T>(quotient(a, b)); });
}
extern "C" __global__ void maximum(T* z, const T* x, const T* y, const __grid_constant__ Strided s) {
  zip(z, x, y, s, [](W a, W b) { return narrow<T>(larger(a, b)); });
}
extern "C" __global__ void minimum(T* z, const T* x, const T* y, const __grid_constant__ Strided s) {
  zip(z, x, y, s, [](W a, W b) { return narrow<T>(smaller(a, b)); });
}
extern "C" __global__ void pow_(T* z, const T* x, const T* y, const __grid_constant__ Strided s) {
  zip(z, x, y, s, [](W a, W b) { return narrow<T>(power(a, b)); });
}
extern "C" __global__ void eq(bool* z, const T* x, const T* y, const __grid_constant__ Strided s) {
  zip(z, x, y, s, [](W a, W b) { return a == b; });
}
extern "C" __global__ void ne(bool* z, const T* x, const T* y, const __grid_constant__ Strided s) {
  zip(z, x, y, s, [](W a, W b) { return a != b; });
}
extern "C" __global__ void lt(bool* z, const T* x, const T* y, const __grid_constant__ Strided s) {
  zip(z, x, y, s, [](W a, W b) { return a < b; });
}
extern "C" __global__ void le(bool* z, const T* x, const T* y, const __grid_constant__ Strided s) {
  zip(z, x, y, s, [](W a, W b) { return a <= b; });
}
extern "C" __global__ void gt(bool* z, const T* x, const T* y, const __grid_constant__ Strided s) {
  zip(z, x, y, s, [](W a, W b) { return a > b; });
}
extern "C" __global__ void ge(bool* z, const T* x, const T* y, const __grid_constant__ Strided s) {
  zip(z, x, y, s, [](W a, W b) { return a >= b; });
}

// add_to computes y += x over operands 0 and 1.
extern "C" __global__ void add_to(T* y, const T* x, const __grid_constant__ Strided s) {
  i64 done = 0;
  if (s.vec) {
    typedef Pack<T, VEC> P;
    for (i64 i = first_item(); i < s.n / VEC; i += all_threads()) {
      Place p = locate(s, i * VEC);
      P a = *(const P*)(y + p.at[0]), b = *(const P*)(x + p.at[1]);
#pragma unroll
      for (int k = 0; k < VEC; k++) a.v[k] = narrow<T>(plus(widen(a.v[k]), widen(b.v[k])));
      *(P*)(y + p.at[0]) = a;
    }
    done = s.n / VEC * VEC;
  }
  for (i64 i = done + first_item(); i < s.n; i += all_threads()) {
    Place p = locate(s, i);
    y[p.at[0]] = narrow<T>(plus(widen(y[p.at[0]]), widen(x[p.at[1]])));
  }
}
