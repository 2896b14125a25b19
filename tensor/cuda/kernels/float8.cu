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

enum { THREADS = 256, VEC = 16 / (int)sizeof(T), TILE = 64 };

__device__ __forceinline__ u32 umax(u32 a, u32 b) { return a > b ? a : b; }
__device__ __forceinline__ u32 magnitude(T x) { return __float_as_uint((float)widen(x)) & 0x7fffffffu; }

__device__ __forceinline__ u32 warp_max(u32 v) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) v = umax(v, __shfl_xor_sync(FULL_WARP, v, o));
  return v;
}
// block_max is the largest v of the block, for all its threads; calls alternate between memory 0 and 1.
__device__ __forceinline__ u32 block_max(u32 v, int call) {
  __shared__ u32 shared[2][32];
  v = warp_max(v);
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  if (lane == 0) shared[call][warp] = v;
  __syncthreads();
  return warp_max(lane < warps ? shared[call][lane] : 0);
}

// codes4 rounds four scaled numbers to codes: from sm_89 on, one instruction for two. Magnitudes above the largest number become it.
template <bool E5M2> __device__ __forceinline__ u32 codes4(float a, float b, float c, float d) {
#if defined(RINGO_EMU) || __CUDA_ARCH__ < 890
  Format f = format_of(E5M2);
  return code_of(rounded(a, f), f) | code_of(rounded(b, f), f) << 8 | code_of(rounded(c, f), f) << 16 | code_of(rounded(d, f), f) << 24;
#else
  u16 lo, hi;
  if (E5M2) {
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(lo) : "f"(b), "f"(a));
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(hi) : "f"(d), "f"(c));
  } else {
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(lo) : "f"(b), "f"(a));
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(hi) : "f"(d), "f"(c));
  }
  return (u32)lo | (u32)hi << 16;
#endif
}

// scale_of is what numbers are multiplied by: the format's largest number by the largest magnitude, whose bits are m.
__device__ __forceinline__ float scale_of(u32 m, int e5m2) {
  float amax = __uint_as_float(m);
  if (amax < 1e-12f) amax = 1e-12f;  // NaN stays
  return (e5m2 ? 57344.0f : 448.0f) / amax;
}

// absmax_parts: part[b] is the largest magnitude of block b's elements, of n: a multiple of VEC. x is aligned to 16 bytes.
extern "C" __global__ void __launch_bounds__(THREADS) absmax_parts(u32* part, const T* x, i64 n) {
  i64 packs = n / VEC, step = all_threads();
  u32 m = 0;
  i64 i = first_item();
  for (; i + 3 * step < packs; i += 4 * step) {  // four loads before the first use
    Pack<T, VEC> p[4];
#pragma unroll
    for (int k = 0; k < 4; k++) p[k] = load<VEC>(x + (i + k * step) * VEC);
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
      for (int j = 0; j < VEC; j++) m = umax(m, magnitude(p[k].v[j]));
  }
  for (; i < packs; i += step) {
    Pack<T, VEC> p = load<VEC>(x + i * VEC);
#pragma unroll
    for (int j = 0; j < VEC; j++) m = umax(m, magnitude(p.v[j]));
  }
  m = block_max(m, 0);
  if (threadIdx.x == 0) part[blockIdx.x] = m;
}

// whole_scale is the scale from the parts, computed by each block; block 0 writes the inverse.
__device__ __forceinline__ float whole_scale(const u32* part, int parts, float* inverse, int e5m2) {
  u32 m = 0;
  for (int i = threadIdx.x; i < parts; i += blockDim.x) m = umax(m, part[i]);
  float s = scale_of(block_max(m, 1), e5m2);
  if (blockIdx.x == 0 && threadIdx.x == 0) *inverse = 1 / s;
  return s;
}

// quantize16 codes 16 elements with one scale.
template <bool E5M2> __device__ __forceinline__ uint4 quantize16(const T* x, float s) {
  Pack<T, VEC> p[16 / VEC];
#pragma unroll
  for (int k = 0; k < 16 / VEC; k++) p[k] = load<VEC>(x + k * VEC);
  u32 c[4];
#pragma unroll
  for (int k = 0; k < 4; k++) {
    float f[4];
#pragma unroll
    for (int j = 0; j < 4; j++) f[j] = (float)widen(p[(4 * k + j) / VEC].v[(4 * k + j) % VEC]) * s;
    c[k] = codes4<E5M2>(f[0], f[1], f[2], f[3]);
  }
  return make_uint4(c[0], c[1], c[2], c[3]);
}

// quantize_whole codes x with one scale, from the parts of absmax_parts.
extern "C" __global__ void __launch_bounds__(THREADS) quantize_whole(u8* y, float* inverse, const T* x, const u32* part, int parts,
                                                                     i64 n, int e5m2) {
  float s = whole_scale(part, parts, inverse, e5m2);
  i64 step = all_threads();
#pragma unroll 2
  for (i64 i = first_item(); i < n / 16; i += step) {
    uint4 c = e5m2 ? quantize16<true>(x + i * 16, s) : quantize16<false>(x + i * 16, s);
    *(uint4*)(y + i * 16) = c;
  }
}

// quantize_tile codes a tile of TILE x TILE elements and writes it transposed to yt [cols, rows] and, if there is y, also as it is. The
// scale of column c is scale[c * by_col]. A thread has 16 elements of a row; they are exchanged in shared memory. A word there has four
// rows of one column.
template <bool E5M2>
__device__ __forceinline__ void quantize_tile(u8* y, u8* yt, const T* x, const float* scale, int by_col, i64 rows, i64 cols,
                                              i64 r0, i64 c0) {
  __shared__ u32 words[TILE][TILE / 4 + 1];  // [column][four rows]
  int t = threadIdx.x, c = t % 4 * 16, r = t / 4;  // 4 threads a row, 64 rows
  i64 row = r0 + r, col = c0 + c;
  uint4 q = make_uint4(0, 0, 0, 0);
  if (row < rows && col < cols) {
    const T* from = x + row * cols + col;
    if (by_col) {
      u32 w[4];
#pragma unroll
      for (int k = 0; k < 4; k++) {
        float f[4];
#pragma unroll
        for (int j = 0; j < 4; j++) f[j] = (float)widen(from[4 * k + j]) * scale[col + 4 * k + j];
        w[k] = codes4<E5M2>(f[0], f[1], f[2], f[3]);
      }
      q = make_uint4(w[0], w[1], w[2], w[3]);
    } else {
      q = quantize16<E5M2>(from, *scale);
    }
    if (y) *(uint4*)(y + row * cols + col) = q;
  }
  // Four neighbouring rows are in lanes that differ in bits 2 and 3: a 4x4 transposition of bytes for each of the four words.
  u32 w[4] = {q.x, q.y, q.z, q.w};
  int sub = r & 3;
  __syncthreads();  // the tile before was read
#pragma unroll
  for (int k = 0; k < 4; k++) {
    // column c+4k+j of rows r..r+3: byte j of the words of the four lanes
    u32 v = w[k];
    u32 o = __shfl_xor_sync(FULL_WARP, v, 4);                 // rows r^1
    v = sub & 1 ? __byte_perm(v, o, 0x3715) : __byte_perm(v, o, 0x6240);  // even rows: columns 0,2 of two rows; odd rows: columns 1,3
    o = __shfl_xor_sync(FULL_WARP, v, 8);                     // rows r^2
    v = sub & 2 ? __byte_perm(v, o, 0x3276) : __byte_perm(v, o, 0x5410);
    // now this lane has column: sub 0 -> 0, 1 -> 1, 2 -> 2, 3 -> 3, rows r&~3 .. +3
    words[c + 4 * k + sub][r >> 2] = v;
  }
  __syncthreads();
  // write: 4 threads a column, 16 rows each
  int oc = t / 4, part = t % 4;
  i64 ocol = c0 + oc, orow = r0 + part * 16;
  if (ocol < cols && orow < rows)
    *(uint4*)(yt + ocol * rows + orow) =
        make_uint4(words[oc][part * 4], words[oc][part * 4 + 1], words[oc][part * 4 + 2], words[oc][part * 4 + 3]);
}

// quantize_both codes x [rows, cols] with one scale, as it is (if there is y) and transposed. rows is a multiple of 16.
extern "C" __global__ void __launch_bounds__(THREADS)
quantize_both(u8* y, u8* yt, float* inverse, const T* x, const u32* part, int parts, i64 rows, i64 cols, int e5m2) {
  __shared__ float scale;
  float s = whole_scale(part, parts, inverse, e5m2);
  if (threadIdx.x == 0) scale = s;
  __syncthreads();
  i64 across = (cols + TILE - 1) / TILE, tiles = across * ((rows + TILE - 1) / TILE);
  for (i64 b = blockIdx.x; b < tiles; b += gridDim.x) {
    i64 r0 = b / across * TILE, c0 = b % across * TILE;
    if (e5m2) quantize_tile<true>(y, yt, x, &scale, 0, rows, cols, r0, c0);
    else quantize_tile<false>(y, yt, x, &scale, 0, rows, cols, r0, c0);
  }
}

// quantize_rows codes each row with its own scale: a block for each row, whose elements stay in registers between the two passes. A thread
// has P packs.
template <int P> __device__ __forceinline__ void quantize_row(u8* y, float* inverse, const T* x, i64 cols, int e5m2) {
  i64 r = blockIdx.x;
  int packs = (int)(cols / VEC);
  Pack<T, VEC> p[P];
  u32 m = 0;
#pragma unroll
  for (int k = 0; k < P; k++)
    if ((int)threadIdx.x + k * (int)blockDim.x < packs) p[k] = load<VEC>(x + r * cols + (threadIdx.x + k * blockDim.x) * VEC);
#pragma unroll
  for (int k = 0; k < P; k++)
    if ((int)threadIdx.x + k * (int)blockDim.x < packs)
#pragma unroll
      for (int j = 0; j < VEC; j++) m = umax(m, magnitude(p[k].v[j]));
  float s = scale_of(block_max(m, 0), e5m2);
  if (threadIdx.x == 0) inverse[r] = 1 / s;
#pragma unroll
  for (int k = 0; k < P; k++)
    if ((int)threadIdx.x + k * (int)blockDim.x < packs) {
      Pack<u32, VEC / 4> c;
#pragma unroll
      for (int j = 0; j < VEC / 4; j++) {
        float f[4];
#pragma unroll
        for (int i = 0; i < 4; i++) f[i] = (float)widen(p[k].v[4 * j + i]) * s;
        c.v[j] = e5m2 ? codes4<true>(f[0], f[1], f[2], f[3]) : codes4<false>(f[0], f[1], f[2], f[3]);
      }
      *(Pack<u32, VEC / 4>*)(y + r * cols + (threadIdx.x + k * blockDim.x) * VEC) = c;
    }
}
extern "C" __global__ void __launch_bounds__(1024) quantize_rows_1(u8* y, float* inverse, const T* x, i64 cols, int e5m2) {
  quantize_row<1>(y, inverse, x, cols, e5m2);
}
extern "C" __global__ void __launch_bounds__(1024) quantize_rows_2(u8* y, float* inverse, const T* x, i64 cols, int e5m2) {
  quantize_row<2>(y, inverse, x, cols, e5m2);
}
extern "C" __global__ void __launch_bounds__(1024) quantize_rows_4(u8* y, float* inverse, const T* x, i64 cols, int e5m2) {
  quantize_row<4>(y, inverse, x, cols, e5m2);
}

// quantize_rows_long is for rows that do not fit: it reads them twice.
extern "C" __global__ void __launch_bounds__(1024) quantize_rows_long(u8* y, float* inverse, const T* x, i64 cols, int e5m2) {
  i64 r = blockIdx.x;
  u32 m = 0;
  for (i64 i = threadIdx.x; i < cols / VEC; i += blockDim.x) {
    Pack<T, VEC> p = load<VEC>(x + r * cols + i * VEC);
#pragma unroll
    for (int j = 0; j < VEC; j++) m = umax(m, magnitude(p.v[j]));
  }
  float s = scale_of(block_max(m, 0), e5m2);
  if (threadIdx.x == 0) inverse[r] = 1 / s;
  for (i64 i = threadIdx.x; i < cols / 16; i += blockDim.x) {
    uint4 c = e5m2 ? quantize16<true>(x + r * cols + i * 16, s) : quantize16<false>(x + r * cols + i * 16, s);
    *(uint4*)(y + r * cols + i * 16) = c;
  }
}

// absmax_cols: part[p, c] is the largest magnitude of column c in rows p*len on. A block has 32 lanes across, of VEC columns each, by 8
// rows.
extern "C" __global__ void __launch_bounds__(THREADS) absmax_cols(u32* part, const T* x, i64 rows, i64 cols, i64 len) {
  __shared__ u32 shared[8][32][VEC + 1];
  i64 c = ((i64)blockIdx.x * 32 + threadIdx.x) * VEC, from = blockIdx.y * len, to = from + len < rows ? from + len : rows;
  u32 m[VEC] = {};
  if (c < cols)
#pragma unroll 4
    for (i64 r = from + threadIdx.y; r < to; r += 8) {
      Pack<T, VEC> p = load<VEC>(x + r * cols + c);
#pragma unroll
      for (int j = 0; j < VEC; j++) m[j] = umax(m[j], magnitude(p.v[j]));
    }
#pragma unroll
  for (int j = 0; j < VEC; j++) shared[threadIdx.y][threadIdx.x][j] = m[j];
  __syncthreads();
  if (threadIdx.y || c >= cols) return;
  for (int k = 1; k < 8; k++)
#pragma unroll
    for (int j = 0; j < VEC; j++) m[j] = umax(m[j], shared[k][threadIdx.x][j]);
#pragma unroll
  for (int j = 0; j < VEC; j++) part[blockIdx.y * cols + c + j] = m[j];
}

// scales_of_cols makes the scales and their inverses of the columns from the parts.
extern "C" __global__ void scales_of_cols(float* scale, float* inverse, const u32* part, int parts, i64 cols, int e5m2) {
  for (i64 c = first_item(); c < cols; c += all_threads()) {
    u32 m = 0;
    for (int p = 0; p < parts; p++) m = umax(m, part[p * cols + c]);
    float s = scale_of(m, e5m2);
    scale[c] = s, inverse[c] = 1 / s;
  }
}

// quantize_cols codes x [rows, cols] with a scale for each column, transposed.
extern "C" __global__ void __launch_bounds__(THREADS) quantize_cols(u8* yt, const T* x, const float* scale, i64 rows, i64 cols, int e5m2) {
  i64 across = (cols + TILE - 1) / TILE, tiles = across * ((rows + TILE - 1) / TILE);
  for (i64 b = blockIdx.x; b < tiles; b += gridDim.x) {
    i64 r0 = b / across * TILE, c0 = b % across * TILE;
    if (e5m2) quantize_tile<true>(nullptr, yt, x, scale, 1, rows, cols, r0, c0);
    else quantize_tile<false>(nullptr, yt, x, scale, 1, rows, cols, r0, c0);
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
