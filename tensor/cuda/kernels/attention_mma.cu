#include "attention_mma.cuh"

// Attention forward (Dao et al., "FlashAttention", 2022; Dao, "FlashAttention-2", 2023): the softmax of a row is corrected when a larger
// score comes. Scores and probabilities stay in registers. An infinity or NaN in a value reaches all queries of a tile that reads the value,
// also queries that do not see its key.

// online_softmax turns scores s into 2^(scale_log2 * (s - row_max)), with the new row_max of each row. It returns whether one has grown.
// scale_log2 is > 0. row_sum is of the lane's own columns. rescale is the factor of older sums and outputs.
__device__ __forceinline__ bool online_softmax(Scores& s, float (&row_max)[M][2], float (&row_sum)[M][2], float (&rescale)[M][2], float scale_log2) {
  bool grown = false;
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float new_max = row_max[m][half];
#pragma unroll
      for (int n = 0; n < BLOCK_N / 8; n++) new_max = fmaxf(new_max, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
      new_max = fmaxf(new_max, __shfl_xor_sync(FULL_WARP, new_max, 1));
      new_max = fmaxf(new_max, __shfl_xor_sync(FULL_WARP, new_max, 2));
      float base = new_max == -INFINITY ? 0.f : new_max * scale_log2, tile_sum = 0;
      rescale[m][half] = exp2_(row_max[m][half] * scale_log2 - base);  // 1 if it has not grown: rounded as base was
      grown |= new_max != row_max[m][half];
      row_max[m][half] = new_max;
#pragma unroll
      for (int n = 0; n < BLOCK_N / 8; n++)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; e++) {
          s[m][n][e] = exp2_(fmaf(s[m][n][e], scale_log2, -base));
          tile_sum += s[m][n][e];
        }
      row_sum[m][half] = fmaf(row_sum[m][half], rescale[m][half], tile_sum);
    }
  return grown;
}

#if DROP
__device__ __forceinline__ void apply_dropout(Scores& s, const Heads& h, u32 head, int i0, int j0) {
  each([&](int m, int n, int e) { s[m][n][e] *= dropout_mask(h, head, i0 + row_of(m, e), j0 + col_of(n, e)); });
}
#endif

// finish writes the warp's rows of the output and of lse.
__device__ __forceinline__ void finish(T* out, float* lse, T* tile, const Head& t, const Heads& h, int i0, const Sums& acc_o,
                                       const float (&row_max)[M][2], const float (&row_sum)[M][2]) {
  float scale[M][2];
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float total = row_sum[m][half];
      total += __shfl_xor_sync(FULL_WARP, total, 1);
      total += __shfl_xor_sync(FULL_WARP, total, 2);
      scale[m][half] = total == 0 ? 0 : 1 / total;  // a query that sees no key
      int i = i0 + row_of(m, 2 * half);
      if ((lane_id() & 3) == 0 && i < t.steps) lse[(u64)t.number * t.steps + i] = fmaf(row_max[m][half], h.scale, logf(total));
    }
  store(out, t.out, t.width, i0, t.steps, tile, acc_o, scale);
}

extern "C" __global__ void __launch_bounds__(LANES, 1) attention_mma(T* out, float* lse, const T* queries, const T* keys, const T* values, Heads h,
                                                                   Masks masks) {
  Head t = this_head(h, masks);
  if (threadIdx.x == 0) check_lengths(masks, h, t.number / (u32)h.heads);
  int i0 = t.tile * BLOCK_M, end = seen_by(t, i0 + BLOCK_M), warp_first = i0 + warp_row();
  T* q = dynamic_shared<T>();
  Tiles kv = {q + BLOCK_M * LD, keys, values, t.k, t.k, t.kstride, t.kstride, t.keys, 0};
  Documents docs = documents(masks, h, t, i0);
  int first = docs.next(0, end);
  if (first < end) {
    fetch<BLOCK_M>(q, queries, t.q, t.qstride, i0, t.steps);
    kv.fetch(first, 0);
    copies_commit();
  }
  constexpr bool Q_IN_REGISTERS = HD <= 64;  // the queries in registers
  RegisterRows q_rows;
  Sums acc_o = {};
  float row_max[M][2], row_sum[M][2] = {}, scale_log2 = h.scale * LOG2E;
#pragma unroll
  for (int m = 0; m < M; m++) row_max[m][0] = row_max[m][1] = -INFINITY;
  for (int j0 = first, next; j0 < end; j0 = next, kv.stage ^= 1) {
    next = docs.next(j0 + BLOCK_N, end);
    if (kv.next(next, end)) copies_commit();
    if (Q_IN_REGISTERS && j0 == first) q_rows.load(q);
    if (j0 >= warp_first + 16 * M + t.offset) continue;  // none of the warp's queries sees these keys
    Scores s;
    float rescale[M][2];
    if constexpr (Q_IN_REGISTERS)
      scores(s, q_rows, kv.of_x());
    else
      scores(s, SharedRows{q}, kv.of_x());
    if (j0 + BLOCK_N > min(t.keys, warp_first + 1 + t.offset)) mask(s, i0, j0, t);
    docs.mask(s, i0, j0);
    if (__any_sync(FULL_WARP, online_softmax(s, row_max, row_sum, rescale, scale_log2))) {
#pragma unroll
      for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < HD / 8; n++)
#pragma unroll
          for (int e = 0; e < 4; e++) acc_o[m][n][e] *= rescale[m][e / 2];
    }
#if DROP
    apply_dropout(s, h, t.number, i0, j0);
#endif
    add_product(acc_o, s, kv.of_y());
  }
  finish(out, lse, q, t, h, i0, acc_o, row_max, row_sum);
}
