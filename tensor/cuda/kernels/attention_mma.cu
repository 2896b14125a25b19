#include "attention_mma.cuh"

// Attention forward (Dao et al., "FlashAttention", 2022; Dao, "FlashAttention-2", 2023): the softmax of a row is corrected as
// larger scores come, and scores and probabilities stay in registers. Infinities and NaN in a value reach all queries of a tile
// that meets it, also those that do not see it.

// soften turns scores into 2^(c (s - top)), with the row's new top; it returns whether a row has one. c is > 0. `sum` is of the
// lane's own columns; factor is what older sums are too large by.
__device__ __forceinline__ bool soften(Scores& s, float (&top)[M][2], float (&sum)[M][2], float (&factor)[M][2], float c) {
  bool higher = false;
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float best = top[m][half];
#pragma unroll
      for (int n = 0; n < OTHERS / 8; n++) best = fmaxf(best, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
      best = fmaxf(best, __shfl_xor_sync(FULL_WARP, best, 1));
      best = fmaxf(best, __shfl_xor_sync(FULL_WARP, best, 2));
      float base = best == -INFINITY ? 0.f : best * c, more = 0;
      factor[m][half] = exp2_(fmaf(top[m][half], c, -base));
      higher |= best != top[m][half];
      top[m][half] = best;
#pragma unroll
      for (int n = 0; n < OTHERS / 8; n++)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; e++) {
          s[m][n][e] = exp2_(fmaf(s[m][n][e], c, -base));
          more += s[m][n][e];
        }
      sum[m][half] = fmaf(sum[m][half], factor[m][half], more);
    }
  return higher;
}

#if DROP
__device__ __forceinline__ void drop(Scores& s, const Heads& h, u32 head, int i0, int j0) {
  each([&](int m, int n, int e) { s[m][n][e] *= kept(h, head, i0 + row_of(m, e), j0 + col_of(n, e)); });
}
#endif

// finish writes the warp's rows of the output and of lse.
__device__ __forceinline__ void finish(T* out, float* lse, T* tile, const Head& t, const Heads& h, int i0, const Sums& acc,
                                       const float (&top)[M][2], const float (&sum)[M][2]) {
  float scale[M][2];
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float all = sum[m][half];
      all += __shfl_xor_sync(FULL_WARP, all, 1);
      all += __shfl_xor_sync(FULL_WARP, all, 2);
      scale[m][half] = all == 0 ? 0 : 1 / all;  // a query that sees no key
      int i = i0 + row_of(m, 2 * half);
      if ((lane_id() & 3) == 0 && i < t.steps) lse[(u64)t.number * t.steps + i] = fmaf(top[m][half], h.scale, logf(all));
    }
  store(out, t.out, t.width, i0, t.steps, tile, acc, scale);
}

extern "C" __global__ void __launch_bounds__(LANES, 1) attention_mma(T* out, float* lse, const T* queries, const T* keys, const T* values, Heads h,
                                                                   Masks masks) {
  Head t = this_head(h, masks);
  if (threadIdx.x == 0) check_lengths(masks, h, t.number / (u32)h.heads);
  int i0 = t.tile * MINE, end = seen_by(t, i0 + MINE), low = i0 + first_row();
  T* q = dynamic_shared<T>();
  Tiles kv = {q + MINE * LD, keys, values, t.k, t.k, t.kstride, t.kstride, t.keys, 0};
  if (end > 0) {
    fetch<MINE>(q, queries, t.q, t.qstride, i0, t.steps);
    kv.fetch(0, 0);
    copies_commit();
  }
  constexpr bool HOLD = HD <= 64;  // the queries in registers
  Held held;
  Sums acc = {};
  float top[M][2], sum[M][2] = {}, c = h.scale * LOG2E;
#pragma unroll
  for (int m = 0; m < M; m++) top[m][0] = top[m][1] = -INFINITY;
  for (int j0 = 0; j0 < end; j0 += OTHERS, kv.stage ^= 1) {
    if (kv.next(j0 + OTHERS, end)) copies_commit();
    if (HOLD && j0 == 0) held.load(q);
    if (j0 >= low + 16 * M + t.offset) continue;  // none of the warp's queries sees these keys
    Scores s;
    float factor[M][2];
    if constexpr (HOLD)
      scores(s, held, kv.of_x());
    else
      scores(s, Rows{q}, kv.of_x());
    if (j0 + OTHERS > min(t.keys, low + 1 + t.offset)) mask(s, i0, j0, t);
#if DOCS
    hide_keys(s, masks, h, t, i0, j0);
#endif
    if (__any_sync(FULL_WARP, soften(s, top, sum, factor, c))) {
#pragma unroll
      for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < HD / 8; n++)
#pragma unroll
          for (int e = 0; e < 4; e++) acc[m][n][e] *= factor[m][e / 2];
    }
#if DROP
    drop(s, h, t.number, i0, j0);
#endif
    add_product(acc, s, kv.of_y());
  }
  finish(out, lse, q, t, h, i0, acc, top, sum);
}
