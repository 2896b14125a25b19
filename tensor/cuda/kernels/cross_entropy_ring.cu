#include "mma.cuh"
#include "hopper.cuh"

// Cross-entropy of long rows, and its gradient: memory is read once, and written once. Each block goes through rows b, b + blocks and so
// on. A row lies in a ring of pieces in shared memory, which one thread more than LANES fills by the copy engine: with the next row, as
// pieces of this one are done with. Rows are whole packs of 16 bytes, aligned, and fit into the ring. Each row is one block's, and the
// order of its sums depends on its length alone.

enum { WARPS = 16, LANES = 32 * WARPS, VEC = 16 / (int)sizeof(T), TURN = 16 * LANES, PIECE = 2 * TURN };
typedef Pack<T, VEC> P16;

// Ring is the pieces in shared memory, each with two barriers: a copy has filled it, and all warps are done with it.
struct Ring {
  u8* at;
  u32 full, empty;  // addresses of the first barriers
  int slots, slot;
  u32 parity;  // of the ring's turn
  __device__ __forceinline__ void next() {
    if (++slot == slots) slot = 0, parity ^= 1;
  }
};

__device__ __forceinline__ Ring new_ring(int slots) {
  u8* at = dynamic_shared<u8>();
  u32 full = shared_address(at + slots * PIECE), empty = full + 8 * slots;
  if (threadIdx.x == 0) {
    for (int i = 0; i < slots; i++) barrier_init(full + 8 * i, 1), barrier_init(empty + 8 * i, WARPS);
    barriers_ready();
  }
  __syncthreads();
  return {at, full, empty, slots, 0, 0};
}

// fill asks for the copies of this block's rows.
__device__ __forceinline__ void fill(Ring r, const T* x, i64 rows, int cols) {
  int bytes = cols * (int)sizeof(T);
  for (i64 row = blockIdx.x; row < rows; row += gridDim.x)
    for (int from = 0; from < bytes; from += PIECE, r.next()) {
      int n = bytes - from < PIECE ? bytes - from : PIECE;
      barrier_wait(r.empty + 8 * r.slot, r.parity ^ 1);  // in the first turn, it is
      barrier_expect(r.full + 8 * r.slot, n);
      copy_bytes(shared_address(r.at + r.slot * PIECE), (const u8*)(x + row * cols) + from, n, r.full + 8 * r.slot);
    }
}

// each calls f(pack, i, h) for the packs of a row that this thread has, two of a piece: pack h of those is at byte i of the row. ready and
// done are called before and after each piece.
template <class R, class F, class D> __device__ __forceinline__ Ring each(Ring r, int bytes, R ready, F f, D done) {
  for (int from = 0; from < bytes; from += PIECE, r.next()) {
    ready(r);
#pragma unroll
    for (int h = 0; h < 2; h++) {
      int i = h * TURN + (int)threadIdx.x * 16;
      if (from + i < bytes) f(*(const P16*)(r.at + r.slot * PIECE + i), from + i, h);
    }
    done(r);
  }
  return r;
}

// max2 is the larger of each of two pairs of 16-bit floats, NaN apart.
#ifdef RINGO_EMU
inline u32 max2(u32 a, u32 b) {
  Pack<T, 2> p = *(Pack<T, 2>*)&a, q = *(Pack<T, 2>*)&b;
  for (int k = 0; k < 2; k++) p.v[k] = narrow<T>(fmaxf(widen(p.v[k]), widen(q.v[k])));
  return *(u32*)&p;
}
#else
__device__ __forceinline__ u32 max2(u32 a, u32 b) {
  u32 r;
  if (IsHalf<T>::value)
    asm("max.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  else
    asm("max.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}
#endif

// Top is the largest element so far, NaN apart.
template <class E> struct Top {
  u32 pair = IsHalf<E>::value ? 0xfc00fc00u : 0xff80ff80u;  // -Inf
  __device__ __forceinline__ void add(const P16& p) {
    const u32* w = (const u32*)&p;
    pair = max2(pair, max2(max2(w[0], w[1]), max2(w[2], w[3])));
  }
  __device__ __forceinline__ float value() {
    const E* v = (const E*)&pair;
    return fmaxf(widen(v[0]), widen(v[1]));
  }
};
template <> struct Top<float> {
  float top = -INFINITY;
  __device__ __forceinline__ void add(const P16& p) {
#pragma unroll
    for (int k = 0; k < VEC; k++) top = fmaxf(top, widen(p.v[k]));
  }
  __device__ __forceinline__ float value() { return top; }
};

template <class E> __device__ __forceinline__ P16 rounded(const float (&v)[8]) {
  u32 w[4] = {pack<E>(v[0], v[1]), pack<E>(v[2], v[3]), pack<E>(v[4], v[5]), pack<E>(v[6], v[7])};
  return *(P16*)w;
}
template <class E> __device__ __forceinline__ P16 rounded(const float (&v)[4]) { return *(const P16*)v; }

// of_all has for each lane what a warp has: v, which is the same in all its lanes. It waits for the LANES threads.
__device__ __forceinline__ float of_all(float (&all)[WARPS], float v) {
  if ((threadIdx.x & 31) == 0) all[threadIdx.x >> 5] = v;
  threads_wait<LANES>(1);
  return all[threadIdx.x % WARPS];
}
__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) v = fmaxf(v, __shfl_xor_sync(FULL_WARP, v, o));
  return v;
}

// cross_entropy_ring is cross_entropy of rows.cu.
extern "C" __global__ void __launch_bounds__(LANES + 32, 1)
    cross_entropy_ring(float* loss, float* lse, T* d, const T* x, const i64* label, i64 rows, int cols, float smoothing, i64 ignore,
                       float scale, u64* bad, u32 op, int slots) {
  __shared__ float maxima[WARPS], sums[WARPS], alls[WARPS];
  Ring ring = new_ring(slots);
  if (threadIdx.x >= LANES) {
    if (threadIdx.x == LANES) fill(ring, x, rows, cols);
    return;
  }
  int bytes = cols * (int)sizeof(T);
  auto nothing = [](const Ring&) {};
  for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
    i64 y = label[row];
    bool has = y >= 0 && y < cols;
    float at = threadIdx.x == 0 && has ? widen(x[row * cols + y]) : 0;  // before anything is written to d, which may be x

    Top<T> most;
    auto filled = [](const Ring& r) { barrier_wait(r.full + 8 * r.slot, r.parity); };
    each(ring, bytes, filled, [&](const P16& p, int, int) { most.add(p); }, nothing);
    float top = warp_max(of_all(maxima, warp_max(most.value())));
    bool infinite = top == INFINITY || top == -INFINITY;  // then that is the logarithm, if no element is NaN
    float less = infinite ? 0 : top;

    float part[2] = {0, 0}, all = 0;
    each(ring, bytes, nothing, [&](const P16& p, int, int h) {
#pragma unroll
      for (int k = 0; k < VEC; k++) part[h] += fast_exp(widen(p.v[k]) - less);  // of the largest, that is 1
      if (smoothing != 0)
#pragma unroll
        for (int k = 0; k < VEC; k++) all += widen(p.v[k]);
    }, nothing);
    float mine = warp_sum(part[0] + part[1]), every = smoothing != 0 ? warp_sum(all) : 0;
    if ((threadIdx.x & 31) == 0) alls[threadIdx.x >> 5] = every;
    float sum = of_all(sums, mine);
    bool once = (threadIdx.x & 31) < WARPS;  // there are twice as many lanes
    sum = warp_sum(once ? sum : 0);
    bool plain = infinite || sum != sum;
    float l = sum != sum ? sum : infinite ? top : top + logf(sum);

    if (smoothing != 0) all = warp_sum(once ? alls[threadIdx.x % WARPS] : 0);
    if (threadIdx.x == 0) {
      lse[row] = l;
      float high = plain ? l : top, rest = plain ? 0 : logf(sum);  // l, without rounding it
      float v = high - at + rest;
      if (smoothing != 0) v = (1 - smoothing) * v + smoothing * (high - all / cols + rest);
      loss[row] = y == ignore || !check_index(bad, op, y, cols) ? 0 : d ? v * scale : v;
    }

    bool none = y == ignore || !has;
    float off = smoothing / cols * scale, hit = (1 - smoothing) * scale;
    ring = each(ring, bytes, nothing, [&](const P16& p, int i, int) {
      if (!d) return;
      float v[VEC];
      u32 of_label = (u32)((int)y - i / (int)sizeof(T));
#pragma unroll
      for (int k = 0; k < VEC; k++) {
        float e = widen(p.v[k]) - l;
        e = sizeof(T) == 2 ? fast_exp(e) : expf(e);
        v[k] = none ? 0 : fmaf(e, scale, -off) - (k == of_label ? hit : 0);
      }
      P16 out = rounded<T>(v);
      __stcs((uint4*)((u8*)(d + row * cols) + i), *(const uint4*)&out);
    }, [](const Ring& r) {
      __syncwarp();
      if ((threadIdx.x & 31) == 0) barrier_arrive(r.empty + 8 * r.slot);
    });
  }
}
