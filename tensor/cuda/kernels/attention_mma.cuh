#include "mma.cuh"
#include "attention.cuh"

// Attention on tensor cores: what attention_mma.cu, attention_mma_q.cu and attention_mma_kv.cu share. T is a 16-bit float; HD,
// the features of a head, is a multiple of 16 up to 128. With DROP, probabilities are dropped; with DOCS, queries see keys of their
// own document only.
//
// A block is four warps, each with M*16 rows of the block's tile: queries, or keys in the gradient of keys and values. It goes
// through tiles of BLOCK_N rows in shared memory; the next tile is copied meanwhile. M and BLOCK_N are chosen in
// attention_mma.go.

enum { LANES = 128, BLOCK_M = 64 * M, CHUNKS = HD / 8, LD = HD + 8, TILE = BLOCK_N * LD };

#define LOG2E 1.44269504f

__device__ __forceinline__ int lane_id() { return threadIdx.x & 31; }

// at is where eight features, chunk c, of row r of a tile are. Rows are an odd number of chunks apart, so that ldmatrix finds
// eight rows in different banks.
__device__ __forceinline__ int at(int r, int c) { return r * LD + c * 8; }

// Head is one head of queries and a tile: where the head's queries, keys and outputs are and how far apart their rows, in UNITs of 16
// elements, how many queries there are, and keys that count, and the number of the tile. Query i sees keys 0 to i + offset, which is
// behind all keys if attention is not causal.
enum { UNIT = 16, UNITS = HD / UNIT, NOT_CAUSAL = 1 << 29 };
struct Head {
  u32 number, q, k, out, qstride, kstride, width;
  int steps, keys, offset, tile;
};
__device__ __forceinline__ Head head_of(const Heads& h, const Masks& m, u32 number, int tile) {
  u32 steps = (u32)h.steps, heads = (u32)h.heads, b = number / heads, n = number % heads, qstride = (u32)(h.qstep / UNIT), kstride = (u32)(h.kstep / UNIT);
  return {number, b * steps * qstride + n * UNITS, b * (u32)h.keys * kstride + n / (heads / (u32)h.kv) * UNITS, (b * steps * heads + n) * UNITS, qstride,
          kstride, heads * UNITS, (int)steps, (int)keys_of(m, h, b), h.causal ? (int)h.offset : NOT_CAUSAL, tile};
}
// this_head is that of a block for each tile of queries. The tiles that see most keys begin first.
__device__ __forceinline__ Head this_head(const Heads& h, const Masks& m) {
  u32 tiles = ((u32)h.steps + BLOCK_M - 1) / BLOCK_M, n = blockIdx.x / tiles;
  return head_of(h, m, n, (int)(tiles - 1 - (blockIdx.x - n * tiles)));
}
// seen_by is how many keys the queries before number `i` see.
__device__ __forceinline__ int seen_by(const Head& t, int i) { return max(0, min(i + t.offset, t.keys)); }

// row is the elements of row r of those that begin at `from` and are `stride` apart, in 16 elements.
template <class E> __device__ __forceinline__ E* row(E* x, u32 from, u32 stride, int r) { return x + (u64)(from + r * stride) * UNIT; }

// fetch begins to copy ROWS rows from row `first` on; rows behind the last step are 0. Each thread copies a chunk at a time.
template <int ROWS> __device__ __forceinline__ void fetch(T* tile, const T* x, u32 from, u32 stride, int first, int steps) {
  constexpr u32 ALL = ROWS * CHUNKS;
#pragma unroll
  for (u32 i = 0; i < (ALL + LANES - 1) / LANES; i++) {
    // The compiler does not see that with whole rows in a round c is the same for all i.
    constexpr bool WHOLE = LANES % CHUNKS == 0;
    u32 e = threadIdx.x + i * LANES, r = WHOLE ? threadIdx.x / CHUNKS + i * (LANES / CHUNKS) : e / CHUNKS, c = WHOLE ? threadIdx.x % CHUNKS : e % CHUNKS;
    if (ALL % LANES == 0 || e < ALL) copy16(tile + at(r, c), row(x, from, stride, min(first + (int)r, steps - 1)) + c * 8, first + (int)r < steps);
  }
}

// warp_row is the warp's first row in the block's tile, of M*16.
__device__ __forceinline__ int warp_row() { return (threadIdx.x >> 5) * (16 * M); }

// SharedRows reads the warp's own rows, operands of mma, from shared memory; RegisterRows has them in registers.
struct SharedRows {
  const T* tile;
  __device__ __forceinline__ void operator()(u32 (&a)[4], int m, int k) const {
    ldmatrix(a, tile + at(warp_row() + m * 16 + (lane_id() & 15), 2 * k + (lane_id() >> 4)));
  }
};
struct RegisterRows {
  u32 r[M][HD / 16][4];
  __device__ __forceinline__ void load(const T* tile) {
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
      for (int k = 0; k < HD / 16; k++) SharedRows{tile}(r[m][k], m, k);
  }
  __device__ __forceinline__ void operator()(u32 (&a)[4], int m, int k) const {
#pragma unroll
    for (int i = 0; i < 4; i++) a[i] = r[m][k][i];
  }
};

// Scores are of the warp's rows and the rows of a tile of BLOCK_N; each calls f(m, n, e) for the lane's own ones.
typedef float Scores[M][BLOCK_N / 8][4];
template <class F> __device__ __forceinline__ void each(F f) {
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int n = 0; n < BLOCK_N / 8; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) f(m, n, e);
}

// scores is s = a bᵀ: the warp's rows with the rows of tile b.
template <class A> __device__ __forceinline__ void scores(Scores& s, const A& rows, const T* b) {
  each([&](int m, int n, int e) { s[m][n][e] = 0; });
#pragma unroll
  for (int k = 0; k < HD / 16; k++) {
    u32 a[M][4];
#pragma unroll
    for (int m = 0; m < M; m++) rows(a[m], m, k);
#pragma unroll
    for (int n = 0; n < BLOCK_N / 16; n++) {
      u32 r[4];
      ldmatrix(r, b + at(n * 16 + (lane_id() & 7) + (lane_id() & 16) / 2, 2 * k + (lane_id() >> 3 & 1)));
#pragma unroll
      for (int m = 0; m < M; m++) {
        mma<T>(s[m][2 * n], a[m], r[0], r[1]);
        mma<T>(s[m][2 * n + 1], a[m], r[2], r[3]);
      }
    }
  }
}

// Sums are of the warp's rows and the features of a head.
typedef float Sums[M][HD / 8][4];

// add_product is acc += p b, of the rows of tile b.
__device__ __forceinline__ void add_product(Sums& acc, const Scores& p, const T* b) {
#pragma unroll
  for (int k = 0; k < BLOCK_N / 16; k++) {
    u32 a[M][4];
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
      for (int i = 0; i < 4; i++) a[m][i] = pack<T>(p[m][2 * k + i / 2][i % 2 * 2], p[m][2 * k + i / 2][i % 2 * 2 + 1]);
#pragma unroll
    for (int n = 0; n < HD / 16; n++) {
      u32 r[4];
      ldmatrix_trans(r, b + at(k * 16 + (lane_id() & 15), 2 * n + (lane_id() >> 4)));
#pragma unroll
      for (int m = 0; m < M; m++) {
        mma<T>(acc[m][2 * n], a[m], r[0], r[1]);
        mma<T>(acc[m][2 * n + 1], a[m], r[2], r[3]);
      }
    }
  }
}

// row_of and col_of are the row of element e of s[m][n] in the block's tile, and its column: the row of the tile of BLOCK_N.
__device__ __forceinline__ int row_of(int m, int e) { return warp_row() + m * 16 + e / 2 * 8 + (lane_id() >> 2); }
__device__ __forceinline__ int col_of(int n, int e) { return n * 8 + (lane_id() & 3) * 2 + e % 2; }

// store writes scale[m][half] * acc to the rows from `first` on that there are, through the warp's own rows of a tile, which
// nobody else reads.
__device__ __forceinline__ void store(T* x, u32 from, u32 stride, int first, int steps, T* tile, const Sums& acc, const float (&scale)[M][2]) {
  __syncwarp();
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int n = 0; n < HD / 8; n++)
#pragma unroll
      for (int e = 0; e < 4; e += 2)
        *(u32*)(tile + at(row_of(m, e), n) + (lane_id() & 3) * 2) = pack<T>(acc[m][n][e] * scale[m][e / 2], acc[m][n][e + 1] * scale[m][e / 2]);
  __syncwarp();  // until the rows are there
#pragma unroll
  for (int i = lane_id(); i < 16 * M * CHUNKS; i += 32) {
    int r = warp_row() + i / CHUNKS, c = i % CHUNKS;
    if (first + r < steps) *(vec16*)(row(x, from, stride, first + r) + c * 8) = *(const vec16*)(tile + at(r, c));
  }
}

// The same with one scale for all rows.
__device__ __forceinline__ void store(T* x, u32 from, u32 stride, int first, int steps, T* tile, const Sums& acc, float scale) {
  float all[M][2];
#pragma unroll
  for (int m = 0; m < M; m++) all[m][0] = all[m][1] = scale;
  store(x, from, stride, first, steps, tile, acc, all);
}

// Tiles are what a block goes through: BLOCK_N rows of x, whose first is at from_x, and the same rows of y. While a tile of each is read,
// the next one is copied: smem has room for two of each.
struct Tiles {
  T* smem;
  const T *x, *y;
  u32 from_x, from_y, stride_x, stride_y;
  int rows, stage;  // that there are; stage says which tiles are read, 0 or 1
  __device__ __forceinline__ T* of_x() const { return smem + stage * TILE; }
  __device__ __forceinline__ T* of_y() const { return smem + 2 * TILE + stage * TILE; }
  __device__ __forceinline__ T* end() const { return smem + 4 * TILE; }

  // fetch begins to copy the rows from `first` on to tiles 0 or 1.
  __device__ __forceinline__ void fetch(int first, int to) const {
    ::fetch<BLOCK_N>(smem + to * TILE, x, from_x, stride_x, first, rows);
    ::fetch<BLOCK_N>(smem + 2 * TILE + to * TILE, y, from_y, stride_y, first, rows);
  }

  // next waits for the tiles that are being copied, and for the other threads, which read those before. It begins to copy the rows
  // from `first` on, if that is before end, and reports whether it did: the caller commits.
  __device__ __forceinline__ bool next(int first, int end) const {
    copies_wait<0>();
    __syncthreads();
    if (first < end) fetch(first, stage ^ 1);
    return first < end;
  }
};

// mask makes the scores -inf of keys that a query does not see. Rows are queries.
__device__ __forceinline__ void mask(Scores& s, int i0, int j0, const Head& t) {
  each([&](int m, int n, int e) {
    if (j0 + col_of(n, e) >= min(t.keys, i0 + row_of(m, e) + 1 + t.offset)) s[m][n][e] = -INFINITY;
  });
}

// Documents are those of the block's rows and of the columns, of which it needs only some tiles: in a tile without a document of the rows
// all scores would be -inf, which leave nothing.
#if DOCS
struct Documents {
  const i64 *rows, *cols;  // their numbers, of n_rows and n_cols
  int n_rows, n_cols;
  i64 low, high;  // the range of those of the block's rows, which each warp finds for itself

  __device__ __forceinline__ Documents(const i64* of_rows, int rows_end, int first, const i64* of_cols, int cols_end)
      : rows(of_rows), cols(of_cols), n_rows(rows_end), n_cols(cols_end), low(~0ull >> 1), high(~low) {
    for (int i = first + lane_id(); i < min(first + BLOCK_M, n_rows); i += 32) low = min(low, rows[i]), high = max(high, rows[i]);
    for (int o = 16; o > 0; o >>= 1) {
      low = min(low, __shfl_xor_sync(FULL_WARP, low, o));
      high = max(high, __shfl_xor_sync(FULL_WARP, high, o));
    }
  }

  // next is where the first tile begins that has a number in the range from column j on; it is end, or more, if there is none before end.
  // Tiles begin at multiples of BLOCK_N, the first one maybe before j.
  __device__ __forceinline__ int next(int j, int end) const {
    constexpr int LOADS = 8;  // at a time, so that the wait for one is that for all
    for (; j < end; j += 32 * LOADS) {
      bool found[LOADS];
#pragma unroll
      for (int i = 0; i < LOADS; i++) {
        i64 id = cols[min(j + 32 * i + lane_id(), end - 1)];
        found[i] = low <= id && id <= high;
      }
#pragma unroll
      for (int i = 0; i < LOADS; i++)
        if (u32 lanes = __ballot_sync(FULL_WARP, found[i])) return (j + 32 * i + __ffs((int)lanes) - 1) / BLOCK_N * BLOCK_N;
    }
    return end;
  }

  // mask makes the scores -inf where the documents of the row and of the column differ. The first row is number i0, the first column j0.
  __device__ __forceinline__ void mask(Scores& s, int i0, int j0) const {
    each([&](int m, int n, int e) {
      if (rows[min(i0 + row_of(m, e), n_rows - 1)] != cols[min(j0 + col_of(n, e), n_cols - 1)]) s[m][n][e] = -INFINITY;
    });
  }
};
#else
struct Documents {
  __device__ __forceinline__ Documents(const i64*, int, int, const i64*, int) {}
  __device__ __forceinline__ int next(int j, int) const { return j; }
  __device__ __forceinline__ void mask(Scores&, int, int) const {}
};
#endif
// documents are those of a block whose rows are queries from number i0 on, and columns keys.
__device__ __forceinline__ Documents documents(const Masks& m, const Heads& h, const Head& t, int i0) {
  i64 b = t.number / (u32)h.heads;
  return Documents(m.qdocs + b * h.steps, t.steps, i0, m.kdocs + b * h.keys, t.keys);
}

// probability_and_dS turns the score s and dO vᵀ, in dp, of query i and key j into D*P and dS. lse2 is lse*log2(e).
__device__ __forceinline__ void probability_and_dS(float& s, float& dp, float scale_log2, float lse2, float delta, const Heads& h, u32 head, int i, int j) {
  float p = exp2_(fmaf(s, scale_log2, -lse2));
#if DROP
  float mask = dropout_mask(h, head, i, j);
  s = mask * p;
  dp = p * fmaf(mask, dp, -delta);
#else
  s = p;
  dp = p * (dp - delta);
#endif
}
