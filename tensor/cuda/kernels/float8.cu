// 8-bit floats.

// Format describes float8_e4m3fn or float8_e5m2: mantissa bits, exponent bias, and the bits of the largest number.
struct Format {
  u32 mantissa, bias, most;
};
__device__ __forceinline__ Format format_of(int e5m2) { return e5m2 ? Format{2, 15, 0x47600000} : Format{3, 7, 0x43e00000}; }

// magic is added to a number below the smallest normal one: then the hardware rounds the sum to a multiple of the smallest number.
__device__ __forceinline__ float magic(const Format& f) { return __uint_as_float((151 - f.bias - f.mantissa) << 23); }

// rounded is the number of a format that is nearest to x, ties to even. Values above the largest number become the largest number. NaN
// stays NaN.
__device__ __forceinline__ float rounded(float x, const Format& f) {
  u32 u = __float_as_uint(x), sign = u & 0x80000000u, mag = u & 0x7fffffffu, shift = 23 - f.mantissa;
  if (mag > 0x7f800000u) return x;
  if (mag > f.most) mag = f.most;
  if (mag >= (128 - f.bias) << 23)  // normal: the bits behind the mantissa go
    mag = (mag + (1u << (shift - 1)) - 1 + (mag >> shift & 1)) & ~((1u << shift) - 1);
  else
    mag = __float_as_uint(__uint_as_float(mag) + magic(f) - magic(f));
  return __uint_as_float(sign | mag);
}

// code_of is the bits of a number of a format.
__device__ __forceinline__ u32 code_of(float x, const Format& f) {
  u32 u = __float_as_uint(x), sign = u >> 24 & 0x80, mag = u & 0x7fffffffu;
  if (mag > 0x7f800000u) return sign | 0x7f;
  if (mag >= (128 - f.bias) << 23) return sign | ((mag >> (23 - f.mantissa)) - ((127 - f.bias) << f.mantissa));
  return sign | (__float_as_uint(__uint_as_float(mag) + magic(f)) - __float_as_uint(magic(f)));
}

// number_of is the number of a code. The code is not an infinity.
__device__ __forceinline__ float number_of(u32 code, const Format& f) {
  u32 sign = (code & 0x80) << 24, mag = code & 0x7f;
  if (mag == 0x7f) return __uint_as_float(sign | 0x7fc00000u);
  if (mag >> f.mantissa) return __uint_as_float(sign | ((mag << (23 - f.mantissa)) + ((127 - f.bias) << 23)));
  return __uint_as_float(sign | __float_as_uint(__uint_as_float(__float_as_uint(magic(f)) + mag) - magic(f)));
}

// round8 rounds n numbers.
extern "C" __global__ void round8(float* y, const float* x, i64 n, int e5m2) {
  Format f = format_of(e5m2);
  for (i64 i = first_item(); i < n; i += all_threads()) y[i] = rounded(x[i], f);
}

// quantize8 writes the codes of x times its scales, four at a time: element (r, c) of rows of cols elements, a multiple of four, has
// scale r*by_row + c*by_col.
extern "C" __global__ void quantize8(u32* y, const T* x, const float* scale, i64 n, i64 cols, i64 by_row, i64 by_col, int e5m2) {
  Format f = format_of(e5m2);
  for (i64 i = first_item(); i < n / 4; i += all_threads()) {
    i64 r = i * 4 / cols, c = i * 4 - r * cols;
    u32 codes = 0;
#pragma unroll
    for (int k = 0; k < 4; k++) codes |= code_of(rounded((float)widen(x[i * 4 + k]) * scale[r * by_row + (c + k) * by_col], f), f) << 8 * k;
    y[i] = codes;
  }
}

// numbers8 writes the numbers of n codes.
extern "C" __global__ void numbers8(float* y, const u8* x, i64 n, int e5m2) {
  Format f = format_of(e5m2);
  for (i64 i = first_item(); i < n; i += all_threads()) y[i] = number_of(x[i], f);
}

// unscale8 computes y = x times the scale of its row and the scale of its column. Without per_row, there is one scale for all rows and one
// for all columns.
extern "C" __global__ void unscale8(T* y, const float* x, const float* rows, const float* cols, i64 n, i64 width, int per_row) {
  for (i64 i = first_item(); i < n; i += all_threads()) {
    i64 r = per_row ? i / width : 0, c = per_row ? i % width : 0;
    y[i] = narrow<T>((W)(x[i] * rows[r] * cols[c]));
  }
}
