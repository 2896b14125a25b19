#include "attention_mma.cuh"

// The gradient of attention (Dao, "FlashAttention-2", 2023, algorithm 2): probabilities are computed again from lse. With
// P = exp(score - lse), mask D of dropout, dP = D*(dO vᵀ) and delta = the row sums of dO*O, dS = P*(dP - delta). Queries
// are one kernel and keys and values another, so that every sum has one block and a fixed order; dS and P are computed in both,
// seven products instead of five.

// fetch_stats begins to copy what attention_mma_q wrote of a head's queries; behind the last one are zeros, which leave nothing of a query.
__device__ __forceinline__ void fetch_stats(float2* to, const float2* stats, int steps, int first) {
  int i = first + threadIdx.x;
  if (threadIdx.x < BLOCK_N) copy8(to + threadIdx.x, stats + (i < steps ? i : 0), i < steps);
}

// mask makes the scores -inf of keys that do not count, and of queries that do not see a key. Rows are keys.
__device__ __forceinline__ void mask(Scores& s, const Head& t, int i0, int j0) {
  each([&](int m, int n, int e) {
    if (j0 + row_of(m, e) >= min(t.keys, i0 + col_of(n, e) + 1 + t.offset)) s[m][n][e] = -INFINITY;
  });
}

// key_head is the first head of queries that share the keys of a block for each tile of keys.
__device__ __forceinline__ Head key_head(const Heads& h, const Masks& m) {
  u32 tiles = ((u32)h.keys + BLOCK_M - 1) / BLOCK_M, n = blockIdx.x / tiles;
  return head_of(h, m, n * ((u32)h.heads / (u32)h.kv), (int)(blockIdx.x - n * tiles));
}

// attention_mma_kv: dv = (D*P)ᵀ dO and dk = scale * dSᵀ q of a tile of keys, over the heads of queries that share them, one after the
// other. Scores are transposed here: rows are keys.
extern "C" __global__ void __launch_bounds__(LANES, 1) attention_mma_kv(T* grad_k, T* grad_v, const T* queries, const T* keys, const T* values, const T* dout,
                                                                      const float2* stats, Heads h, Masks masks) {
  Head t = key_head(h, masks);
  int j0 = t.tile * BLOCK_M, from = max(0, j0 - t.offset), warp_first = j0 + warp_row();  // queries before see none of the keys
  u32 number = t.number;
  i64 b = number / (u32)h.heads;
  Documents docs(masks.kdocs + b * h.keys, t.keys, j0, masks.qdocs + b * h.steps, t.steps);
  int first = docs.next(from, t.steps);
  u32 last = j0 < t.keys && first < t.steps ? number + (u32)(h.heads / h.kv) : number;
  T *k = dynamic_shared<T>(), *v = k + BLOCK_M * LD;
  Tiles q_dO = {v + BLOCK_M * LD, queries, dout, t.q, t.out, t.qstride, t.width, t.steps, 0};
  float2* stat = (float2*)q_dO.end();
  stats += (u64)number * t.steps;
  if (number < last) {
    fetch<BLOCK_M>(k, keys, t.k, t.kstride, j0, t.keys);
    fetch<BLOCK_M>(v, values, t.k, t.kstride, j0, t.keys);
    q_dO.fetch(first, 0);
    fetch_stats(stat, stats, t.steps, first);
    copies_commit();
  }
  Sums dk = {}, dv = {};
  float scale_log2 = h.scale * LOG2E;
  for (int i0 = first, next; number < last; q_dO.stage ^= 1, number += next <= i0, i0 = next) {
    next = docs.next(i0 + BLOCK_N, t.steps);
    int end = t.steps;
    if (next >= end) {  // the next head's, if there is one
      next = first;
      if (number + 1 == last) end = 0;
      q_dO.from_x += UNITS;
      q_dO.from_y += UNITS;
      stats += t.steps;
    }
    if (q_dO.next(next, end)) {
      fetch_stats(stat + (q_dO.stage ^ 1) * BLOCK_N, stats, t.steps, next);
      copies_commit();
    }
    if (i0 + BLOCK_N + t.offset <= warp_first) continue;  // none of these queries sees the warp's keys
    Scores p, dS;
    scores(p, SharedRows{k}, q_dO.of_x());
    scores(dS, SharedRows{v}, q_dO.of_y());
    if (warp_first + 16 * M > min(t.keys, i0 + 1 + t.offset)) mask(p, t, i0, j0);
    docs.mask(p, j0, i0);
#pragma unroll
    for (int n = 0; n < BLOCK_N / 8; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        float2 row = stat[q_dO.stage * BLOCK_N + col_of(n, e)];
#pragma unroll
        for (int m = 0; m < M; m++) probability_and_dS(p[m][n][e], dS[m][n][e], scale_log2, row.x, row.y, h, number, i0 + col_of(n, e), j0 + row_of(m, e));
      }
    add_product(dv, p, q_dO.of_y());
    add_product(dk, dS, q_dO.of_x());
  }
  store(grad_k, t.k, t.kstride, j0, (int)h.keys, k, dk, h.scale);
  store(grad_v, t.k, t.kstride, j0, (int)h.keys, v, dv, 1.f);
}
