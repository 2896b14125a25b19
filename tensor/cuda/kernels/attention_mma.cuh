#include "mma.cuh"
#include "attention.cuh"

// Attention on tensor cores: what attention_mma.cu and attention_mma_grad.cu share. T is a 16-bit float; HD, the features of a
// head, is a multiple of 16 up to 128. With DROP, probabilities are dropped.
//
// A block is four warps, each with M*16 rows of the block's tile: queries, or keys in the gradient of keys and values. It meets
// tiles of OTHERS rows one after the other in shared memory, where the next one is copied meanwhile. M and OTHERS are chosen in
// attention_mma.go.

enum { LANES = 128, MINE = 64 * M, CHUNKS = HD / 8, LD = HD + 8 };

__device__ __forceinline__ int lane_id() { return threadIdx.x & 31; }

// at is where eight features, chunk c, of row r of a tile are. Rows are an odd number of chunks apart, so that ldmatrix finds
// eight rows in different banks.
__device__ __forceinline__ int at(int r, int c) { return r * LD + c * 8; }

// Head is one head and tile: where the head's rows are, how far apart, and the number of the tile.
struct Head {
  i64 number, qkv, out;
  u32 stride, width;
  int steps, tile;
};
__device__ __forceinline__ Head this_head(const Heads& h, int rows) {
  u32 tiles = ((u32)h.steps + rows - 1) / rows, n = blockIdx.x / tiles, heads = (u32)h.heads, b = n / heads, k = n % heads;
  return {n, ((i64)b * h.steps * 3 * heads + k) * HD, ((i64)b * h.steps * heads + k) * HD, 3 * heads * HD, heads * HD, (int)h.steps,
          (int)(blockIdx.x % tiles)};
}

// fetch begins to copy ROWS rows from row `first` on; rows behind the last step are 0.
template <int ROWS> __device__ __forceinline__ void fetch(T* tile, const T* from, u32 stride, int first, int steps) {
#pragma unroll
  for (int e = threadIdx.x; e < ROWS * CHUNKS; e += LANES) {
    int r = e / CHUNKS, c = e % CHUNKS;
    bool real = first + r < steps;
    copy16(tile + at(r, c), from + (u64)(real ? first + r : 0) * stride + c * 8, real);
  }
}

// first_row is the warp's first row in the block's tile, of M*16.
__device__ __forceinline__ int first_row() { return (threadIdx.x >> 5) * (16 * M); }

// Rows gives the warp's own rows as operands; Held is the same in registers.
struct Rows {
  const T* tile;
  __device__ __forceinline__ void operator()(u32 (&a)[4], int m, int k) const {
    ldmatrix(a, tile + at(first_row() + m * 16 + (lane_id() & 15), 2 * k + (lane_id() >> 4)));
  }
};
struct Held {
  u32 r[M][HD / 16][4];
  __device__ __forceinline__ void load(const T* tile) {
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
      for (int k = 0; k < HD / 16; k++) Rows{tile}(r[m][k], m, k);
  }
  __device__ __forceinline__ void operator()(u32 (&a)[4], int m, int k) const {
#pragma unroll
    for (int i = 0; i < 4; i++) a[i] = r[m][k][i];
  }
};

// scores is s = a bᵀ: the warp's rows with the rows of tile b.
template <class A> __device__ __forceinline__ void scores(float (&s)[M][OTHERS / 8][4], const A& rows, const T* b) {
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int n = 0; n < OTHERS / 8; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) s[m][n][e] = 0;
#pragma unroll
  for (int k = 0; k < HD / 16; k++) {
    u32 a[M][4];
#pragma unroll
    for (int m = 0; m < M; m++) rows(a[m], m, k);
#pragma unroll
    for (int n = 0; n < OTHERS / 16; n++) {
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

// add_product is acc += p b, of the rows of tile b.
__device__ __forceinline__ void add_product(float (&acc)[M][HD / 8][4], const float (&p)[M][OTHERS / 8][4], const T* b) {
#pragma unroll
  for (int k = 0; k < OTHERS / 16; k++) {
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

// row_of and col_of are the place of element e of s[m][n] in the block's tile and in the tile of the others.
__device__ __forceinline__ int row_of(int m, int e) { return first_row() + m * 16 + e / 2 * 8 + (lane_id() >> 2); }
__device__ __forceinline__ int col_of(int n, int e) { return n * 8 + (lane_id() & 3) * 2 + e % 2; }

// store writes scale[m][half] * acc to the rows from `first` on that there are, through the warp's own rows of a tile, which
// nobody else reads.
__device__ __forceinline__ void store(T* to, u32 stride, int first, int steps, T* tile, const float (&acc)[M][HD / 8][4], const float (&scale)[M][2]) {
  __syncwarp();
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int n = 0; n < HD / 8; n++)
#pragma unroll
      for (int e = 0; e < 4; e += 2)
        *(u32*)(tile + at(row_of(m, e), n) + (lane_id() & 3) * 2) = pack<T>(acc[m][n][e] * scale[m][e / 2], acc[m][n][e + 1] * scale[m][e / 2]);
  __syncwarp();
#pragma unroll
  for (int i = lane_id(); i < 16 * M * CHUNKS; i += 32) {
    int r = first_row() + i / CHUNKS, c = i % CHUNKS;
    if (first + r < steps) *(vec16*)(to + (u64)(first + r) * stride + c * 8) = *(const vec16*)(tile + at(r, c));
  }
}

__device__ __forceinline__ T* shared_tiles() {
  extern __shared__ vec16 shared[];
  return (T*)shared;
}

#define LOG2E 1.44269504f

// pair turns a score and gout vᵀ of query i and key j into D*P and ds. l is lse*log2(e).
__device__ __forceinline__ void pair(float& s, float& dp, float c, float l, float dot, const Heads& h, i64 head, int i, int j, bool hidden) {
  float p = hidden ? 0.f : exp2_(fmaf(s, c, -l));
#if DROP
  float keep = kept(h, head, i, j);
  s = keep * p;
  dp = p * fmaf(keep, dp, -dot);
#else
  s = p;
  dp = p * (dp - dot);
#endif
}
