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
__device__ __forceinline__ void mask(float (&s)[M][OTHERS / 8][4], int i0, int j0) {
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int n = 0; n < OTHERS / 8; n++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        if (j0 + row_of(m, e) > i0 + col_of(n, e)) s[m][n][e] = -INFINITY;
}

// attention_mma_kv: dv = (D*P)ᵀ gout and dk = scale * dsᵀ q of a tile of keys. Scores are transposed here: rows are keys.
extern "C" __global__ void __launch_bounds__(LANES) attention_mma_kv(T* grad, const T* qkv, const T* gout, const float2* stats, Heads h) {
  Head t = this_head(h);
  int j0 = t.tile * MINE, from = h.causal ? j0 : 0, low = j0 + first_row(), stage = 0;
  T *k = shared_tiles(), *v = k + MINE * LD, *q = v + MINE * LD, *g = q + 2 * OTHERS * LD;
  float2* stat = (float2*)(g + 2 * OTHERS * LD);
  fetch<MINE>(k, qkv, t.qkv + t.width, t.stride, j0, t.steps);
  fetch<MINE>(v, qkv, t.qkv + 2 * t.width, t.stride, j0, t.steps);
  fetch<OTHERS>(q, qkv, t.qkv, t.stride, from, t.steps);
  fetch<OTHERS>(g, gout, t.out, t.width, from, t.steps);
  fetch_stats(stat, stats, t, from);
  copies_commit();
  float dk[M][HD / 8][4] = {}, dv[M][HD / 8][4] = {}, c = h.scale * LOG2E;
  for (int i0 = from; i0 < t.steps; i0 += OTHERS, stage ^= 1) {
    copies_wait<0>();
    __syncthreads();
    if (i0 + OTHERS < t.steps) {
      fetch<OTHERS>(q + (stage ^ 1) * OTHERS * LD, qkv, t.qkv, t.stride, i0 + OTHERS, t.steps);
      fetch<OTHERS>(g + (stage ^ 1) * OTHERS * LD, gout, t.out, t.width, i0 + OTHERS, t.steps);
      fetch_stats(stat + (stage ^ 1) * OTHERS, stats, t, i0 + OTHERS);
      copies_commit();
    }
    if (h.causal && i0 + OTHERS <= low) continue;  // none of these queries sees the warp's keys
    float s[M][OTHERS / 8][4], dp[M][OTHERS / 8][4];
    scores(s, Rows{k}, q + stage * OTHERS * LD);
    scores(dp, Rows{v}, g + stage * OTHERS * LD);
    if (h.causal && i0 < low + 16 * M - 1) mask(s, i0, j0);
#pragma unroll
    for (int n = 0; n < OTHERS / 8; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        float2 of = stat[stage * OTHERS + col_of(n, e)];
#pragma unroll
        for (int m = 0; m < M; m++) pair(s[m][n][e], dp[m][n][e], c, of.x, of.y, h, t.number, i0 + col_of(n, e), j0 + row_of(m, e));
      }
    add_product(dv, s, g + stage * OTHERS * LD);
    add_product(dk, dp, q + stage * OTHERS * LD);
  }
  float one[M][2], scale[M][2];
#pragma unroll
  for (int m = 0; m < M; m++) one[m][0] = one[m][1] = 1, scale[m][0] = scale[m][1] = h.scale;
  store(grad, t.qkv + t.width, t.stride, j0, t.steps, k, dk, scale);
  store(grad, t.qkv + 2 * t.width, t.stride, j0, t.steps, v, dv, one);
}
