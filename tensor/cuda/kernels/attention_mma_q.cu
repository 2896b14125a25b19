#include "attention_mma.cuh"

// The gradient of the queries of attention; see attention_mma_kv.cu.

// row_stats is what dS needs of the warp's query number lane % (16*M): lse*log2(e), and delta, the sum of dO*O less
// the gradient of lse if there is one. Both are also written for attention_mma_kv. Of a query that sees no key, lse is -inf; +inf in its place makes P 0.
__device__ __forceinline__ float2 row_stats(float2* stats, const T* out, const T* dout, const float* lse, const float* dlse, const Head& t, int i0) {
  int i = i0 + warp_row() + lane_id() % (16 * M);
  if (i >= t.steps) return make_float2(0, 0);
  const Pack<T, 8> *x = (const Pack<T, 8>*)row(out, t.out, t.width, i), *y = (const Pack<T, 8>*)row(dout, t.out, t.width, i);
  float sum = 0;
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
    Pack<T, 8> a = x[c], b = y[c];
#pragma unroll
    for (int e = 0; e < 8; e++) sum = fmaf(widen(a.v[e]), widen(b.v[e]), sum);
  }
  u64 n = (u64)t.number * t.steps + i;
  float2 stat = make_float2(lse[n] == -INFINITY ? INFINITY : lse[n] * LOG2E, dlse ? sum - dlse[n] : sum);
  stats[n] = stat;
  return stat;
}

// attention_mma_q: dq = scale * dS k of a tile of queries, and their stats.
extern "C" __global__ void __launch_bounds__(LANES, 1) attention_mma_q(T* grad_q, float2* stats, const T* queries, const T* keys, const T* values, const T* out,
                                                                     const T* dout, const float* lse, const float* dlse, Heads h, Masks masks) {
  Head t = this_head(h, masks);
  int i0 = t.tile * BLOCK_M, end = seen_by(t, i0 + BLOCK_M), warp_first = i0 + warp_row();
  T *q = dynamic_shared<T>(), *dO = q + BLOCK_M * LD;
  Tiles kv = {dO + BLOCK_M * LD, keys, values, t.k, t.k, t.kstride, t.kstride, t.keys, 0};
  Documents docs = documents(masks, h, t, i0);
  int first = docs.next(0, end);
  if (first < end) {
    fetch<BLOCK_M>(q, queries, t.q, t.qstride, i0, t.steps);
    fetch<BLOCK_M>(dO, dout, t.out, t.width, i0, t.steps);
    kv.fetch(first, 0);
    copies_commit();
  }
  Sums dq = {};
  float lse2[M][2], delta[M][2], scale_log2 = h.scale * LOG2E;
  float2 row = row_stats(stats, out, dout, lse, dlse, t, i0);
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      int r = m * 16 + half * 8 + (lane_id() >> 2);
      lse2[m][half] = __shfl_sync(FULL_WARP, row.x, r);
      delta[m][half] = __shfl_sync(FULL_WARP, row.y, r);
    }
  for (int j0 = first, next; j0 < end; j0 = next, kv.stage ^= 1) {
    next = docs.next(j0 + BLOCK_N, end);
    if (kv.next(next, end)) copies_commit();
    if (j0 >= warp_first + 16 * M + t.offset) continue;  // none of the warp's queries sees these keys
    Scores p, dS;
    scores(p, SharedRows{q}, kv.of_x());
    scores(dS, SharedRows{dO}, kv.of_y());
    if (j0 + BLOCK_N > min(t.keys, warp_first + 1 + t.offset)) mask(p, i0, j0, t);
    docs.mask(p, i0, j0);
    each([&](int m, int n, int e) {
      probability_and_dS(p[m][n][e], dS[m][n][e], scale_log2, lse2[m][e / 2], delta[m][e / 2], h, t.number, i0 + row_of(m, e), j0 + col_of(n, e));
    });
    add_product(dq, dS, kv.of_x());
  }
  store(grad_q, t.q, t.qstride, i0, t.steps, q, dq, h.scale);
}
