// Conversions from T to every element type.

// Limits of integers, and the largest value plus one as a double.
template <class D> struct Limits;
template <> struct Limits<int> {
  static constexpr int lo = -2147483647 - 1, hi = 2147483647;
  static constexpr double end = 2147483648.0;
};
template <> struct Limits<i64> {
  static constexpr i64 lo = -9223372036854775807ll - 1, hi = 9223372036854775807ll;
  static constexpr double end = 9223372036854775808.0;
};
template <> struct Limits<u8> {
  static constexpr u8 lo = 0, hi = 255;
  static constexpr double end = 256.0;
};

// truncated rounds v towards zero to an integer. Values out of range become the nearest limit, NaN becomes 0.
template <class D> __device__ __forceinline__ D truncated(double v) {
  typedef Limits<D> L;
  return v >= L::end ? L::hi : v >= (double)L::lo ? (D)v : v != v ? (D)0 : L::lo;
}

template <class D> struct To {
  static __device__ __forceinline__ D of(W v) { return IsFloat<T>::value ? truncated<D>((double)v) : (D)v; }
};
template <> struct To<float> { static __device__ __forceinline__ float of(W v) { return (float)v; } };
template <> struct To<double> { static __device__ __forceinline__ double of(W v) { return (double)v; } };
template <> struct To<bf16> { static __device__ __forceinline__ bf16 of(W v) { return from_float<bf16>((float)v); } };
template <> struct To<f16> { static __device__ __forceinline__ f16 of(W v) { return from_float<f16>((float)v); } };
template <> struct To<bool> { static __device__ __forceinline__ bool of(W v) { return v != 0; } };

template <class D> __device__ __forceinline__ void cast(D* y, const T* x, i64 n) {
  constexpr int N = 16 / (sizeof(T) > sizeof(D) ? sizeof(T) : sizeof(D));
  i64 done = 0;
  if (aligned(y, N * sizeof(D)) && aligned(x, N * sizeof(T))) {
    for (i64 i = first_item(); i < n / N; i += all_threads()) {
      Pack<T, N> p = ((const Pack<T, N>*)x)[i];
      Pack<D, N> q;
#pragma unroll
      for (int k = 0; k < N; k++) q.v[k] = To<D>::of(widen(p.v[k]));
      ((Pack<D, N>*)y)[i] = q;
    }
    done = n / N * N;
  }
  for (i64 i = done + first_item(); i < n; i += all_threads()) y[i] = To<D>::of(widen(x[i]));
}

extern "C" __global__ void cast_to_float32(float* y, const T* x, i64 n) { cast(y, x, n); }
extern "C" __global__ void cast_to_float64(double* y, const T* x, i64 n) { cast(y, x, n); }
extern "C" __global__ void cast_to_bfloat16(bf16* y, const T* x, i64 n) { cast(y, x, n); }
extern "C" __global__ void cast_to_float16(f16* y, const T* x, i64 n) { cast(y, x, n); }
extern "C" __global__ void cast_to_int32(int* y, const T* x, i64 n) { cast(y, x, n); }
extern "C" __global__ void cast_to_int64(i64* y, const T* x, i64 n) { cast(y, x, n); }
extern "C" __global__ void cast_to_uint8(u8* y, const T* x, i64 n) { cast(y, x, n); }
extern "C" __global__ void cast_to_bool(bool* y, const T* x, i64 n) { cast(y, x, n); }
