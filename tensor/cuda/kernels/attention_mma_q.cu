#include "attention_mma.cuh"

// The gradient of the queries of attention; see attention_mma_kv.cu.

// own_row is what ds needs of the warp's query number lane % (16*M): lse*log2(e), and the sum of gout*out, less the gradient of lse if
// there is one. It is written for the other kernel, too. Of a query that sees no key, lse is -inf; +inf instead makes P 0.
__device__ __forceinline__ float2 own_row(float2* stats, const T* out, const T* gout, const float* lse, const float* glse, const Head& t, int i0) {
  int i = i0 + first_row() + lane_id() % (16 * M);
  if (i >= t.steps) return make_float2(0, 0);
  const Pack<T, 8> *x = (const Pack<T, 8>*)row(out, t.out, t.width, i), *y = (const Pack<T, 8>*)row(gout, t.out, t.width, i);
  float sum = 0;
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
    Pack<T, 8> a = x[c], b = y[c];
#pragma unroll
    for (int e = 0; e < 8; e++) sum = fmaf(widen(a.v[e]), widen(b.v[e]), sum);
  }
  u64 n = (u64)t.number * t.steps + i;
  float2 stat = make_float2(lse[n] == -INFINITY ? INFINITY : lse[n] * LOG2E, glse ? sum - glse[n] : sum);
  stats[n] = stat;
  return stat;
}

// attention_mma_q: dq = scale * ds k of a tile of queries, and their stats.
extern "C" __global__ void __launch_bounds__(LANES, 1) attention_mma_q(T* grad, float2* stats, const T* queries, const T* keys, const T* values, const T* out,
                                                                     const T* gout, const float* lse, const float* glse, Heads h, Masks masks) {
  Head t = this_head(h, masks);
  int i0 = t.tile * MINE, end = seen_by(t, i0 + MINE), low = i0 + first_row();
  T *q = dynamic_shared<T>(), *g = q + MINE * LD;
  Tiles kv = {g + MINE * LD, keys, values, t.k, t.k, t.kstride, t.kstride, t.keys, 0};
  if (end > 0) {
    fetch<MINE>(q, queries, t.q, t.qstride, i0, t.steps);
    fetch<MINE>(g, gout, t.out, t.width, i0, t.steps);
    kv.fetch(0, 0);
    copies_commit();
  }
  Sums acc = {};
  float l[M][2], dot[M][2], c = h.scale * LOG2E;
  float2 own = own_row(stats, out, gout, lse, glse, t, i0);
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      int row = m * 16 + half * 8 + (lane_id() >> 2);
      l[m][half] = __shfl_sync(FULL_WARP, own.x, row);
      dot[m][half] = __shfl_sync(FULL_WARP, own.y, row);
    }
  for (int j0 = 0; j0 < end; j0 += OTHERS, kv.stage ^= 1) {
    if (kv.next(j0 + OTHERS, end)) copies_commit();
    if (j0 >= low + 16 * M + t.offset) continue;  // none of the warp's queries sees these keys
    Scores s, dp;
    scores(s, Rows{q}, kv.of_x());
    scores(dp, Rows{g}, kv.of_y());
    if (j0 + OTHERS > min(t.keys, low + 1 + t.offset)) mask(s, i0, j0, t);
#if DOCS
    hide_keys(s, masks, h, t, i0, j0);
#endif
    each([&](int m, int n, int e) {
      pair(s[m][n][e], dp[m][n][e], c, l[m][e / 2], dot[m][e / 2], h, t.number, i0 + row_of(m, e), j0 + col_of(n, e));
    });
    add_product(acc, dp, kv.of_x());
  }
  store(grad, t.q, t.qstride, i0, t.steps, q, acc, h.scale);
}
