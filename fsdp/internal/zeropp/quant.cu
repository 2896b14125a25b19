// Integers with a scale for each block of 256, as in quant.go: a block of threads for each of them. Scales lie at any address.

enum { BLOCK = 256 };

__device__ __forceinline__ i64 blocks_of(i64 n) { return (n + BLOCK - 1) / BLOCK; }

__device__ __forceinline__ float scale_at(const u8* p) {
  return __uint_as_float(p[0] | (u32)p[1] << 8 | (u32)p[2] << 16 | (u32)p[3] << 24);
}

// scale_for is the scale of a block with this largest magnitude, whose integers go up to top.
__device__ __forceinline__ float scale_for(T most, int top) {
  const float largest = __uint_as_float(0x7f7fffffu);
  float scale = (float)((double)most / top);
  if (scale < __uint_as_float(0x00800000u)) return 0;  // integers would not fit: such a scale has few bits
  if (scale > largest) return __uint_as_float(0x7fc00000u);
  if ((T)top * (T)scale == (T)INFINITY) return __uint_as_float(__float_as_uint(scale) - 1);  // it was rounded up
  return scale;
}

// largest returns the largest magnitude of this block; a NaN is larger than all.
__device__ __forceinline__ T largest(T v) {
  __shared__ T shared[BLOCK];
  int t = threadIdx.x;
  shared[t] = v < 0 ? -v : v;
  __syncthreads();
  for (int far = BLOCK / 2; far > 0; far /= 2) {
    if (t < far) {
      T other = shared[t + far];
      if (other > shared[t] || other != other) shared[t] = other;
    }
    __syncthreads();
  }
  return shared[0];
}

// scaled writes the scale of this block, and returns the integer of the number v.
__device__ __forceinline__ int scaled(u8* y, T v, int top) {
  float scale = scale_for(largest(v), top);
  if (threadIdx.x < 4) y[4 * blockIdx.x + threadIdx.x] = __float_as_uint(scale) >> 8 * threadIdx.x;
  return scale > 0 ? (int)rint((double)v * (1 / (double)scale)) : 0;
}

extern "C" __global__ void encode8(u8* y, const T* x, i64 n) {
  i64 i = (i64)blockIdx.x * BLOCK + threadIdx.x;
  int code = scaled(y, i < n ? x[i] : T(0), 127);
  if (i < n) y[4 * blocks_of(n) + i] = (u8)code;
}

extern "C" __global__ void encode4(u8* y, const T* x, i64 n) {
  __shared__ u8 codes[BLOCK];
  i64 i = (i64)blockIdx.x * BLOCK + threadIdx.x;
  codes[threadIdx.x] = scaled(y, i < n ? x[i] : T(0), 7) & 15;
  __syncthreads();
  if (threadIdx.x % 2 == 0 && i < n) y[4 * blocks_of(n) + i / 2] = codes[threadIdx.x] | codes[threadIdx.x + 1] << 4;
}

extern "C" __global__ void decode8(T* y, const u8* x, i64 n) {
  const u8* codes = x + 4 * blocks_of(n);
  for (i64 i = first_item(); i < n; i += all_threads()) y[i] = (T)(signed char)codes[i] * (T)scale_at(x + i / BLOCK * 4);
}

extern "C" __global__ void add4(T* y, const u8* x, i64 n) {
  const u8* codes = x + 4 * blocks_of(n);
  for (i64 i = first_item(); i < n; i += all_threads()) {
    int code = (signed char)(codes[i / 2] >> i % 2 * 4 << 4) >> 4;
    y[i] += (T)code * (T)scale_at(x + i / BLOCK * 4);
  }
}
