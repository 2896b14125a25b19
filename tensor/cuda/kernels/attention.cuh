// What the kernels of attention share. Queries are [batch, steps, heads, hd], keys and values [batch, keys, kv, hd], where positions
// are qstep and kstep elements apart: in qkv [batch, steps, 3, heads, hd] they are all. out is [batch, steps, heads, hd] and lse
// [batch, heads, steps]. Scores, probabilities and sums are in W.

struct Heads {
  i64 steps, heads, hd;
  int tile, causal;
  W scale;
  // dropout of the probabilities [batch, heads, steps, keys], as of kernel.Dropout: row k of `elems` elements
  // begins at element first + stride*k of the whole; `limit` is what a random word must reach. keep is 0 without dropout.
  W keep;
  u64 limit, key;
  i64 first, stride, elems;
  // heads/kv heads of queries share one of keys and values; with causal, query i sees keys 0 to i + offset.
  i64 keys, kv, qstep, kstep, offset;
  // A window other than 0 leaves query i the last so many of these; a soft_cap other than 0 makes soft_cap * tanh(s / soft_cap) of score s.
  i64 window;
  W soft_cap;
};

// Masks are those of kernel.AttentionMasks: numbers of keys that count [batch], documents of queries [batch, steps] and of keys
// [batch, keys]; null if absent. A number out of range is noted in *bad, for operation op.
struct Masks {
  const i64 *lengths, *qdocs, *kdocs;
  u64* bad;
  u32 op;
};
// keys_of is the number of keys of sequence b that count.
__device__ __forceinline__ i64 keys_of(const Masks& m, const Heads& h, i64 b) {
  i64 n = m.lengths ? m.lengths[b] : h.keys;
  return n < 0 ? 0 : n < h.keys ? n : h.keys;
}
// check_lengths is called by one thread of a block of sequence b.
__device__ __forceinline__ void check_lengths(const Masks& m, const Heads& h, i64 b) {
  if (m.lengths) check_index(m.bad, m.op, m.lengths[b], h.keys + 1);
}

// dropout_mask is the factor of the probability of query i and key j of a head: 0, or 1/(1-p) where it is kept.
__device__ __forceinline__ W dropout_mask(const Heads& h, i64 head, i64 i, i64 j) {
  if (h.keep == 0) return 1;
  i64 e = (head * h.steps + i) * h.keys + j;
  i64 at = h.first + h.stride * (e / h.elems) + e % h.elems;
  return word(philox(h.key, (u64)at >> 2), at) >= h.limit ? h.keep : W(0);
}
