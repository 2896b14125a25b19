#include "attention.cuh"

// Attention in blocks, without the matrix of all probabilities (Dao et al., "FlashAttention", 2022): the plain version, for
// every float, the oracle of attention_mma.cu.
//
// A block of threads has a tile of `tile` queries of one head, and loops over the tiles of keys. In the gradient of keys and values it
// has a tile of keys, and loops over the queries. Each of the `tile` rows has LANES/tile threads, a part of a warp. Thread l of a row
// computes its features l, l + LANES/tile, ...

enum { LANES = 256, FEATURES = 16 };  // features of a thread, at most

// Head is one head of queries and a tile: its number, where its queries, keys and outputs are, the tile's first row, the thread's row of
// the tile and place in the row, and the threads of a row.
struct Head {
  i64 number, q, k, out, width, first;
  int row, lane, lanes;
};
__device__ __forceinline__ Head head_of(const Heads& h, i64 number, i64 first) {
  i64 b = number / h.heads, n = number % h.heads;
  int lanes = LANES / h.tile;
  return {number, b * h.steps * h.qstep + n * h.hd, b * h.keys * h.kstep + n / (h.heads / h.kv) * h.hd, (b * h.steps * h.heads + n) * h.hd,
          h.heads * h.hd, first, (int)threadIdx.x / lanes, (int)threadIdx.x % lanes, lanes};
}
// this_head is the head of this block, if there is a block for each tile of queries.
__device__ __forceinline__ Head this_head(const Heads& h) {
  i64 tiles = (h.steps + h.tile - 1) / h.tile, n = blockIdx.x / tiles;
  return head_of(h, n, (blockIdx.x - n * tiles) * h.tile);
}

// fetch copies `tile` rows of hd features to shared memory, where they are hd + 1 apart; rows from `end` on are 0.
__device__ __forceinline__ void fetch(W* to, const T* from, i64 stride, i64 step, i64 end, const Heads& h) {
  for (int e = threadIdx.x; e < h.tile * h.hd; e += LANES) {
    int r = e / h.hd, d = e % h.hd;
    to[r * (h.hd + 1) + d] = step + r < end ? widen(from[(step + r) * stride + d]) : W(0);
  }
}

__device__ __forceinline__ W dot(const W* a, const W* b, i64 n) {
  W sum = 0;
  for (i64 d = 0; d < n; d++) sum += a[d] * b[d];
  return sum;
}

// Reductions over the threads of a row.
__device__ __forceinline__ W sum_over_row(W v, int lanes) {
  for (int o = lanes / 2; o > 0; o >>= 1) v += __shfl_xor_sync(FULL_WARP, v, o);
  return v;
}
__device__ __forceinline__ W max_over_row(W v, int lanes) {
  for (int o = lanes / 2; o > 0; o >>= 1) {
    W u = __shfl_xor_sync(FULL_WARP, v, o);
    v = u > v ? u : v;
  }
  return v;
}

// add_product is acc += sum over c in [from, to) of p[c] * m[c], for the thread's features of rows m, hd + 1 apart.
__device__ __forceinline__ void add_product(W* acc, const W* p, i64 from, i64 to, const W* m, const Head& t, i64 hd) {
#pragma unroll 1
  for (i64 c = from; c < to; c++) {
    const W *row = m + c * (hd + 1) + t.lane, *end = m + c * (hd + 1) + hd;
#pragma unroll
    for (int k = 0; k < FEATURES; k++)
      if (row + k * t.lanes < end) acc[k] += p[c] * row[k * t.lanes];
  }
}

__device__ __forceinline__ void store(T* to, const W* acc, W scale, const Head& t, i64 hd) {
#pragma unroll
  for (int k = 0; k < FEATURES; k++) {
    i64 d = t.lane + (i64)k * t.lanes;
    if (d < hd) to[d] = narrow<T>(acc[k] * scale);
  }
}

// Sequence is the sequence of a head: its documents, and the number of keys that count.
struct Sequence {
  const i64 *qdocs, *kdocs;
  i64 keys;
};
__device__ __forceinline__ Sequence sequence_of(const Masks& m, const Heads& h, const Head& t) {
  i64 b = t.number / h.heads;
  return {m.kdocs ? m.qdocs + b * h.steps : nullptr, m.kdocs ? m.kdocs + b * h.keys : nullptr, keys_of(m, h, b)};
}

// keys_seen is the number of keys that query i sees, and keys_seen_from the number of them from key j on, at most `tile`. Both count keys
// of other documents, too.
__device__ __forceinline__ i64 keys_seen(const Heads& h, const Sequence& seq, i64 i) {
  i64 end = h.causal ? i + h.offset + 1 : seq.keys;
  return end < 0 ? 0 : end < seq.keys ? end : seq.keys;
}
__device__ __forceinline__ i64 keys_seen_from(const Heads& h, const Sequence& seq, i64 i, i64 j) {
  i64 n = keys_seen(h, seq, i) - j;
  return n < 0 ? 0 : n < h.tile ? n : h.tile;
}

// before_window is the number of keys before those that query i sees, if h has windows.
__device__ __forceinline__ i64 before_window(const Heads& h, i64 i) {
  i64 n = h.window ? i + h.offset + 1 - h.window : 0;
  return n < 0 ? 0 : n;
}
// hides reports whether keys_seen may count keys that a query does not see, and hidden whether key j of query i is one.
__device__ __forceinline__ bool hides(const Heads& h, const Sequence& seq) { return seq.kdocs || h.window; }
__device__ __forceinline__ bool hidden(const Heads& h, const Sequence& seq, i64 i, i64 j) {
  return j < before_window(h, i) || (seq.kdocs && seq.qdocs[i] != seq.kdocs[j]);
}

// score of a query and a key; slope is its derivative by the score without soft_cap.
__device__ __forceinline__ W score(const Heads& h, const W* q, const W* k, W& slope) {
  W s = h.scale * dot(q, k, h.hd);
  slope = 1;
  if (h.soft_cap == 0) return s;
  W t = tanh_(s / h.soft_cap);
  slope = 1 - t * t;
  return h.soft_cap * t;
}

extern "C" __global__ void __launch_bounds__(LANES) attention(T* out, W* lse, const T* queries, const T* keys, const T* values, Heads h, Masks m) {
  Head t = this_head(h);
  Sequence seq = sequence_of(m, h, t);
  if (threadIdx.x == 0) check_lengths(m, h, t.number / h.heads);
  i64 i0 = t.first, i = i0 + t.row, ld = h.hd + 1;
  W *q = dynamic_shared<W>(), *k = q + h.tile * ld, *v = k + h.tile * ld, *p = v + h.tile * ld + t.row * (h.tile + 1);
  fetch(q, queries + t.q, h.qstep, i0, h.steps, h);
  W acc_o[FEATURES] = {}, row_max = -INFINITY, row_sum = 0, unused;
  i64 end = keys_seen(h, seq, i0 + h.tile - 1);
  for (i64 j0 = before_window(h, i0) / h.tile * h.tile; j0 < end; j0 += h.tile) {
    i64 n = i < h.steps ? keys_seen_from(h, seq, i, j0) : 0;
    __syncthreads();
    fetch(k, keys + t.k, h.kstep, j0, seq.keys, h);
    fetch(v, values + t.k, h.kstep, j0, seq.keys, h);
    __syncthreads();
    W new_max = row_max;
    for (i64 c = t.lane; c < n; c += t.lanes) {
      p[c] = score(h, q + t.row * ld, k + c * ld, unused);
      new_max = p[c] > new_max ? p[c] : new_max;
    }
    if (hides(h, seq)) {
      new_max = row_max;
      for (i64 c = t.lane; c < n; c += t.lanes) {
        if (hidden(h, seq, i, j0 + c)) p[c] = -INFINITY;
        new_max = p[c] > new_max ? p[c] : new_max;
      }
    }
    new_max = max_over_row(new_max, t.lanes);
    W rescale = row_max == new_max ? W(1) : exp_(row_max - new_max), tile_sum = 0;
    for (i64 c = t.lane; c < n; c += t.lanes) {
      W e = p[c] == -INFINITY ? W(0) : exp_(p[c] - new_max);
      tile_sum += e;
      p[c] = e * dropout_mask(h, t.number, i, j0 + c);
    }
    row_sum = row_sum * rescale + sum_over_row(tile_sum, t.lanes);
    row_max = new_max;
    __syncwarp();
#pragma unroll
    for (int f = 0; f < FEATURES; f++) acc_o[f] *= rescale;
    add_product(acc_o, p, 0, n, v, t, h.hd);
  }
  if (i >= h.steps) return;
  bool any = keys_seen(h, seq, i) > 0 && !(hides(h, seq) && row_sum == 0);
  store(out + t.out + i * t.width, acc_o, any ? 1 / row_sum : W(0), t, h.hd);
  if (t.lane == 0) lse[t.number * h.steps + i] = any ? row_max + log_(row_sum) : (W)-INFINITY;
}

// attention_delta: delta[head, i] = sum of dO*O of a query, minus the gradient of lse if there is one.
extern "C" __global__ void attention_delta(W* delta, const T* out, const T* dout, const W* dlse, i64 all, Heads h) {
  for (i64 r = first_item(); r < all; r += all_threads()) {
    i64 n = r / h.steps, i = r % h.steps, at = ((n / h.heads * h.steps + i) * h.heads + n % h.heads) * h.hd;
    W sum = 0;
    for (i64 d = 0; d < h.hd; d++) sum += widen(dout[at + d]) * widen(out[at + d]);
    delta[r] = dlse ? sum - dlse[r] : sum;
  }
}

// probability_and_dS: with P = exp(score - lse), the mask D of dropout, and dP = D*(dO vT), it computes D*P and dS = P*(dP - delta) * slope.
__device__ __forceinline__ void probability_and_dS(W& dropped, W& dS, const W* q, const W* k, const W* v, const W* dO, W lse, W delta, i64 i, i64 j, const Head& t, const Heads& h) {
  W slope, p = exp_(score(h, q, k, slope) - lse), mask = dropout_mask(h, t.number, i, j);
  dropped = mask * p;
  dS = p * (mask * dot(dO, v, h.hd) - delta) * slope;
}

// attention_grad_kv: dv = (D*P)T dO and dk = scale * dsT q of a tile of keys, over the heads of queries that share them.
extern "C" __global__ void __launch_bounds__(LANES) attention_grad_kv(T* grad_k, T* grad_v, const T* queries, const T* keys, const T* values, const T* dout,
                                                                      const W* lse, const W* delta, Heads h, Masks m) {
  i64 tiles = (h.keys + h.tile - 1) / h.tile, n = blockIdx.x / tiles, group = h.heads / h.kv;
  Head t = head_of(h, n * group, (blockIdx.x - n * tiles) * h.tile);
  Sequence seq = sequence_of(m, h, t);
  i64 j0 = t.first, j = j0 + t.row, ld = h.hd + 1, part = h.tile * ld;
  W *k = dynamic_shared<W>(), *v = k + part, *q = v + part, *dO = q + part;
  W *p = dO + part + t.row * (h.tile + 1), *dS = p + h.tile * (h.tile + 1);
  fetch(k, keys + t.k, h.kstep, j0, seq.keys, h);
  fetch(v, values + t.k, h.kstep, j0, seq.keys, h);
  W dk[FEATURES] = {}, dv[FEATURES] = {};
  i64 begin = h.causal && j0 > h.offset ? (j0 - h.offset) / h.tile * h.tile : 0;
  if (j0 >= seq.keys) begin = h.steps;
  i64 end = h.window ? j0 + h.tile - 1 - h.offset + h.window : h.steps;  // behind the last query that sees a key of the tile
  if (end > h.steps) end = h.steps;
  for (i64 head = t.number; head < (n + 1) * group; head++) {
    t = head_of(h, head, j0);
    for (i64 i0 = begin; i0 < end; i0 += h.tile) {
      __syncthreads();
      fetch(q, queries + t.q, h.qstep, i0, h.steps, h);
      fetch(dO, dout + t.out, t.width, i0, h.steps, h);
      __syncthreads();
      i64 from = h.causal && j > h.offset + i0 ? j - h.offset - i0 : 0, to = h.steps - i0 < h.tile ? h.steps - i0 : h.tile;
      if (j >= seq.keys) to = 0;
      for (i64 c = t.lane; c < to; c += t.lanes)
        if (c >= from) {
          i64 at = t.number * h.steps + i0 + c;
          probability_and_dS(p[c], dS[c], q + c * ld, k + t.row * ld, v + t.row * ld, dO + c * ld, lse[at], delta[at], i0 + c, j, t, h);
        }
      if (hides(h, seq))
        for (i64 c = t.lane; c < to; c += t.lanes)
          if (c >= from && hidden(h, seq, i0 + c, j)) p[c] = dS[c] = 0;
      __syncwarp();
      add_product(dv, p, from, to, dO, t, h.hd);
      add_product(dk, dS, from, to, q, t, h.hd);
    }
  }
  if (j >= h.keys) return;
  store(grad_k + t.k + j * h.kstep, dk, h.scale, t, h.hd);
  store(grad_v + t.k + j * h.kstep, dv, 1, t, h.hd);
}

// attention_grad_q: dq = scale * dS k of a tile of queries.
extern "C" __global__ void __launch_bounds__(LANES) attention_grad_q(T* grad_q, const T* queries, const T* keys, const T* values, const T* dout, const W* lse,
                                                                     const W* delta, Heads h, Masks m) {
  Head t = this_head(h);
  Sequence seq = sequence_of(m, h, t);
  i64 i0 = t.first, i = i0 + t.row, ld = h.hd + 1, part = h.tile * ld;
  W *q = dynamic_shared<W>(), *dO = q + part, *k = dO + part, *v = k + part, *dS = v + part + t.row * (h.tile + 1);
  fetch(q, queries + t.q, h.qstep, i0, h.steps, h);
  fetch(dO, dout + t.out, t.width, i0, h.steps, h);
  W dq[FEATURES] = {}, unused;
  i64 end = keys_seen(h, seq, i0 + h.tile - 1), at = t.number * h.steps + i;
  for (i64 j0 = before_window(h, i0) / h.tile * h.tile; j0 < end; j0 += h.tile) {
    __syncthreads();
    fetch(k, keys + t.k, h.kstep, j0, seq.keys, h);
    fetch(v, values + t.k, h.kstep, j0, seq.keys, h);
    __syncthreads();
    i64 n = i < h.steps ? keys_seen_from(h, seq, i, j0) : 0;
    for (i64 c = t.lane; c < n; c += t.lanes)
      probability_and_dS(unused, dS[c], q + t.row * ld, k + c * ld, v + c * ld, dO + t.row * ld, lse[at], delta[at], i, j0 + c, t, h);
    if (hides(h, seq))
      for (i64 c = t.lane; c < n; c += t.lanes)
        if (hidden(h, seq, i, j0 + c)) dS[c] = 0;
    __syncwarp();
    add_product(dq, dS, 0, n, k, t, h.hd);
  }
  if (i < h.steps) store(grad_q + t.q + i * h.qstep, dq, h.scale, t, h.hd);
}
