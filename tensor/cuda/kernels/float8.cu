// Rounding to 8-bit floats.

// Format is what float8_e4m3fn and float8_e5m2 differ in: mantissa bits, exponent bias, and the bits of the largest number.
struct Format {
  u32 mantissa, bias, most;
};

// rounded is the number of a format that is nearest to x, ties to even; what is larger than the largest becomes that. NaN stays.
__device__ __forceinline__ float rounded(float x, const Format& f) {
  u32 u = __float_as_uint(x), sign = u & 0x80000000u, mag = u & 0x7fffffffu, shift = 23 - f.mantissa;
  if (mag > 0x7f800000u) return x;
  if (mag > f.most) mag = f.most;
  if (mag >= (128 - f.bias) << 23) {  // normal: the bits behind the mantissa go
    mag = (mag + (1u << (shift - 1)) - 1 + (mag >> shift & 1)) & ~((1u << shift) - 1);
    return __uint_as_float(sign | mag);
  }
  float step = __uint_as_float((128 - f.bias + shift) << 23);  // adding it lets the hardware round to a multiple of the smallest number
  return __uint_as_float(sign | __float_as_uint(__uint_as_float(mag) + step - step));
}

// round8 rounds n numbers to float8_e4m3fn, or to float8_e5m2 if so.
extern "C" __global__ void round8(float* y, const float* x, i64 n, int e5m2) {
  Format f = e5m2 ? Format{2, 15, 0x47600000} : Format{3, 7, 0x43e00000};
  for (i64 i = first_item(); i < n; i += all_threads()) y[i] = rounded(x[i], f);
}
