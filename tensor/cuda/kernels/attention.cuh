// What the kernels of attention share. qkv is [batch, steps, 3, heads, hd], out [batch, steps, heads, hd] and lse
// [batch, heads, steps]. Scores, probabilities and sums are in W.

struct Heads {
  i64 steps, heads, hd;
  int tile, causal;
  W scale;
  // dropout of the probabilities [batch, heads, steps, steps], as of kernel.Dropout: row k of `elems` elements is
  // elements col and following of the `row` elements of row first + stride*k; `limit` is what a random word must reach. keep is 0 without dropout.
  W keep;
  u64 limit, key;
  i64 first, stride, elems, row, col;
};

// kept is what the probability of query i and key j of a head is multiplied by.
__device__ __forceinline__ W kept(const Heads& h, i64 head, i64 i, i64 j) {
  if (h.keep == 0) return 1;
  i64 e = (head * h.steps + i) * h.steps + j;
  i64 at = (h.first + h.stride * (e / h.elems)) * h.row + h.col + e % h.elems;
  return word(philox(h.key, (u64)at >> 2), at) >= h.limit ? h.keep : W(0);
}
