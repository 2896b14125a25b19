// Rows that stay in registers: a warp computes a row, or with BLOCK a block. A thread has up to PACKS packs of 16 bytes of it, which it
// loads before it uses the first: so many loads are under way. Rows are whole packs, aligned. blockDim is (32, warps) for warps, (threads)
// for blocks. Every sum has an order that depends on the row's length alone.

enum { MAX_WARPS = 32, VEC = 16 / (int)sizeof(T), LANES = BLOCK ? 512 : 256 };
typedef Pack<T, VEC> P16;

#define ROW_KERNEL extern "C" __global__ void __launch_bounds__(LANES)

// this_row is the row of this thread.
__device__ __forceinline__ i64 this_row() { return BLOCK ? blockIdx.x : (i64)blockIdx.x * blockDim.y + threadIdx.y; }

// of_warp gives each lane what one of the block's warps has: v, which is the same in all its lanes; `none` behind the last. The calls of a
// kernel alternate between memory 0 and 1.
__device__ __forceinline__ W of_warp(W v, W none, int call) {
  __shared__ W ends[2][MAX_WARPS];
  int lane = threadIdx.x & 31;
  if (lane == 0) ends[call][threadIdx.x >> 5] = v;
  __syncthreads();
  return lane < blockDim.x >> 5 ? ends[call][lane] : none;
}

// over_row combines v over the threads of a row.
template <class F> __device__ __forceinline__ W over_row(W v, W none, int call, F f) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) v = f(v, __shfl_xor_sync(FULL_WARP, v, o));
  if (!BLOCK) return v;
  v = of_warp(v, none, call);
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) v = f(v, __shfl_xor_sync(FULL_WARP, v, o));
  return v;
}
__device__ __forceinline__ W row_sum(W v, int call) {
  return over_row(v, 0, call, [](W a, W b) { return a + b; });
}
__device__ __forceinline__ W row_max(W v, int call) {
  return over_row(v, -INFINITY, call, [](W a, W b) { return b > a ? b : a; });
}

// each calls f(k, i) for the packs of this thread: pack k is at element i of the row.
template <class F> __device__ __forceinline__ void each(int cols, F f) {
  int all = BLOCK ? (int)blockDim.x : 32;
#pragma unroll
  for (int k = 0; k < PACKS; k++) {
    int i = ((int)threadIdx.x + k * all) * VEC;
    if (i < cols) f(k, i);
  }
}

// once loads what is read one time: the nearest cache need not keep it. Its asm has no "memory" clobber, which would hold the loads around
// it in place: a row is read before anything is stored to it, and none is read again.
__device__ __forceinline__ P16 once(const T* p) {
#ifdef RINGO_EMU
  return load<VEC>(p);
#else
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return *(P16*)&v;
#endif
}
__device__ __forceinline__ void keep(P16 (&p)[PACKS], const T* row, int cols) {
  each(cols, [&](int k, int i) { p[k] = once(row + i); });
}

// put stores what is not read again soon.
__device__ __forceinline__ void put(T* p, const P16& v) { __stcs((uint4*)p, *(const uint4*)&v); }

// mad is a*b + c: rounded once if T has 16 bits, which rounds the result much more.
__device__ __forceinline__ float mad(float a, float b, float c) { return sizeof(T) == 2 ? fmaf(a, b, c) : a * b + c; }

// opaque makes the compiler forget what it computed from p: it would keep those numbers in registers until the second use.
__device__ __forceinline__ void opaque(P16 (&p)[PACKS]) {
#ifndef RINGO_EMU
#pragma unroll
  for (int k = 0; k < PACKS; k++) {
    u32* w = (u32*)&p[k];
    asm volatile("" : "+r"(w[0]), "+r"(w[1]), "+r"(w[2]), "+r"(w[3]));
  }
#endif
}
