#include "attention_mma.cuh"

// The gradient of attention (Dao, "FlashAttention-2", 2023, algorithm 2): probabilities are computed again from lse. With
// P = exp(score - lse), mask D of dropout, dP = D*(gout vᵀ) and dots = the row sums of gout*out, ds = P*(dP - dots). Queries
// are one kernel and keys and values another, so that every sum has one block and a fixed order; ds and P are computed in both,
// seven products instead of five.

// fetch_stats begins to copy what attention_mma_q wrote; behind the last step are zeros, which leave nothing of a query.
__device__ __forceinline__ void fetch_stats(float2* to, const float2* stats, const Head& t, int first) {
  int i = first + threadIdx.x;
  if (threadIdx.x < OTHERS) copy8(to + threadIdx.x, stats + (u64)t.number * t.steps + (i < t.steps ? i : 0), i < t.steps);
}

// mask makes the scores -inf of queries that do not see a key. Rows are keys.
__device__ __forceinline__ void mask(Scores& s, int i0, int j0) {
  each([&](int m, int n, int e) {
    if (j0 + row_of(m, e) > i0 + col_of(n, e)) s[m][n][e] = -INFINITY;
  });
}

// attention_mma_kv: dv = (D*P)ᵀ gout and dk = scale * dsᵀ q of a tile of keys. Scores are transposed here: rows are keys.
extern "C" __global__ void __launch_bounds__(LANES) attention_mma_kv(T* grad, const T* qkv, const T* gout, const float2* stats, Heads h) {
  Head t = this_head(h);
  int j0 = t.tile * MINE, from = h.causal ? j0 : 0, low = j0 + first_row();
  T *k = dynamic_shared<T>(), *v = k + MINE * LD;
  Tiles qg = {v + MINE * LD, qkv, gout, t.qkv, t.out, t.stride, t.width, t.steps, 0};
  float2* stat = (float2*)qg.behind();
  fetch<MINE>(k, qkv, t.qkv + t.width, t.stride, j0, t.steps);
  fetch<MINE>(v, qkv, t.qkv + 2 * t.width, t.stride, j0, t.steps);
  qg.fetch(from, 0);
  fetch_stats(stat, stats, t, from);
  copies_commit();
  Sums dk = {}, dv = {};
  float c = h.scale * LOG2E;
  for (int i0 = from; i0 < t.steps; i0 += OTHERS, qg.stage ^= 1) {
    if (qg.next(i0 + OTHERS, t.steps)) {
      fetch_stats(stat + (qg.stage ^ 1) * OTHERS, stats, t, i0 + OTHERS);
      copies_commit();
    }
    if (h.causal && i0 + OTHERS <= low) continue;  // none of these queries sees the warp's keys
    Scores s, dp;
    scores(s, Rows{k}, qg.of_x());
    scores(dp, Rows{v}, qg.of_y());
    if (h.causal && i0 < low + 16 * M - 1) mask(s, i0, j0);
#pragma unroll
    for (int n = 0; n < OTHERS / 8; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        float2 of = stat[qg.stage * OTHERS + col_of(n, e)];
#pragma unroll
        for (int m = 0; m < M; m++) pair(s[m][n][e], dp[m][n][e], c, of.x, of.y, h, t.number, i0 + col_of(n, e), j0 + row_of(m, e));
      }
    add_product(dv, s, qg.of_y());
    add_product(dk, dp, qg.of_x());
  }
  store(grad, t.qkv + t.width, t.stride, j0, t.steps, k, dk, h.scale);
  store(grad, t.qkv + 2 * t.width, t.stride, j0, t.steps, v, dv, 1.f);
}
