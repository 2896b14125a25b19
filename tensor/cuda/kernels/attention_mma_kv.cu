#include "attention_mma.cuh"

// The gradient of attention (Dao, "FlashAttention-2", 2023, algorithm 2): probabilities are computed again from lse. With
// P = exp(score - lse), mask D of dropout, dP = D*(gout vᵀ) and dots = the row sums of gout*out, ds = P*(dP - dots). Queries
// are one kernel and keys and values another, so that every sum has one block and a fixed order; ds and P are computed in both,
// seven products instead of five.

// fetch_stats begins to copy what attention_mma_q wrote of a head's queries; behind the last one are zeros, which leave nothing of a query.
__device__ __forceinline__ void fetch_stats(float2* to, const float2* stats, int steps, int first) {
  int i = first + threadIdx.x;
  if (threadIdx.x < OTHERS) copy8(to + threadIdx.x, stats + (i < steps ? i : 0), i < steps);
}

// mask makes the scores -inf of keys that do not count, and of queries that do not see a key. Rows are keys.
__device__ __forceinline__ void mask(Scores& s, const Head& t, int i0, int j0) {
  each([&](int m, int n, int e) {
    if (j0 + row_of(m, e) >= min(t.keys, i0 + col_of(n, e) + 1 + t.offset)) s[m][n][e] = -INFINITY;
  });
}

// key_head is the first head of queries that share the keys of a block for each tile of keys.
__device__ __forceinline__ Head key_head(const Heads& h, const Masks& m) {
  u32 tiles = ((u32)h.keys + MINE - 1) / MINE, n = blockIdx.x / tiles;
  return head_of(h, m, n * ((u32)h.heads / (u32)h.kv), (int)(blockIdx.x - n * tiles));
}

// attention_mma_kv: dv = (D*P)ᵀ gout and dk = scale * dsᵀ q of a tile of keys, over the heads of queries that share them, one after the
// other. Scores are transposed here: rows are keys.
extern "C" __global__ void __launch_bounds__(LANES, 1) attention_mma_kv(T* gk, T* gv, const T* queries, const T* keys, const T* values, const T* gout,
                                                                      const float2* stats, Heads h, Masks masks) {
  Head t = key_head(h, masks);
  int j0 = t.tile * MINE, from = max(0, j0 - t.offset), low = j0 + first_row();  // queries before see none of the keys
  u32 number = t.number, last = j0 < t.keys && from < t.steps ? number + (u32)(h.heads / h.kv) : number;
  T *k = dynamic_shared<T>(), *v = k + MINE * LD;
  Tiles qg = {v + MINE * LD, queries, gout, t.q, t.out, t.qstride, t.width, t.steps, 0};
  float2* stat = (float2*)qg.behind();
  stats += (u64)number * t.steps;
  if (number < last) {
    fetch<MINE>(k, keys, t.k, t.kstride, j0, t.keys);
    fetch<MINE>(v, values, t.k, t.kstride, j0, t.keys);
    qg.fetch(from, 0);
    fetch_stats(stat, stats, t.steps, from);
    copies_commit();
  }
  Sums dk = {}, dv = {};
  float c = h.scale * LOG2E;
  int i0 = from;
  auto advance = [&] {
    qg.stage ^= 1;
    i0 += OTHERS;
    if (i0 >= t.steps) i0 = from, number++;
  };
  for (; number < last; advance()) {
    int next = i0 + OTHERS, end = t.steps;
    if (next >= end) {  // the next head's, if there is one
      next = from;
      if (number + 1 == last) end = 0;
      qg.from_x += UNITS;
      qg.from_y += UNITS;
      stats += t.steps;
    }
    if (qg.next(next, end)) {
      fetch_stats(stat + (qg.stage ^ 1) * OTHERS, stats, t.steps, next);
      copies_commit();
    }
    if (i0 + OTHERS + t.offset <= low) continue;  // none of these queries sees the warp's keys
    Scores s, dp;
    scores(s, Rows{k}, qg.of_x());
    scores(dp, Rows{v}, qg.of_y());
    if (low + 16 * M > min(t.keys, i0 + 1 + t.offset)) mask(s, t, i0, j0);
#if DOCS
    i64 b = number / (u32)h.heads;
    hide(s, masks.kdocs + b * h.keys, j0, t.keys, masks.qdocs + b * h.steps, i0, t.steps);
#endif
#pragma unroll
    for (int n = 0; n < OTHERS / 8; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        float2 of = stat[qg.stage * OTHERS + col_of(n, e)];
#pragma unroll
        for (int m = 0; m < M; m++) pair(s[m][n][e], dp[m][n][e], c, of.x, of.y, h, number, i0 + col_of(n, e), j0 + row_of(m, e));
      }
    add_product(dv, s, qg.of_y());
    add_product(dk, dp, qg.of_x());
  }
  store(gk, t.k, t.kstride, j0, (int)h.keys, k, dk, h.scale);
  store(gv, t.k, t.kstride, j0, (int)h.keys, v, dv, 1.f);
}
