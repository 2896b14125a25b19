#include "mma.cuh"
#include "hopper.cuh"
#include "grouped.cuh"

// Grouped products on the tensor cores of compute capability 9.0: each group of rows is multiplied by its own matrix. T is a 16-bit float,
// sums are float32, and all rows are multiples of 16 bytes.
//
// Two warpgroups compute a tile of TILE_M x TILE_N elements, 64 rows each. One thread of a third one asks the copy engine for the data of
// each step of DEPTH along k, up to STAGES steps ahead. A block computes tiles b, b + blocks and so on; each tile is one block's, with k in
// order, so results do not depend on the number of blocks.

enum { TILE_M = 128, TILE_N = 256, DEPTH = 64, STAGES = 4, LANES = 384 };
enum { BOX = DEPTH * 128, A_BYTES = TILE_M * DEPTH * 2, STAGE = A_BYTES + TILE_N * DEPTH * 2 };

// What is computed: products with b [groups, k, n] or b [groups, n, k], or the gradient of b, which sums over a group's rows.
enum { PLAIN, TRANSPOSED, GRAD };

// Job is a tile: its group, its first row in the group (of the gradient, in the matrix) and column, and its steps along k.
struct Job { int group, first, count, m, n, steps; };

// Tiles goes through the tiles of this block: `before` tiles are in earlier groups, `here` in this one.
template <int MODE> struct Tiles {
  const i64* counts;
  int rows, n, k, groups;
  int group, first, count, before, here, tile;
  __device__ __forceinline__ void begin() { group = -1, first = 0, count = 0, before = 0, here = 0, tile = blockIdx.x; }
  static __device__ __forceinline__ int parts(int n, int of) { return (n + of - 1) / of; }
  __device__ __forceinline__ bool next(Job& j) {
    int across = parts(MODE == GRAD ? k : n, TILE_N);
    while (tile >= before + here) {
      if (++group >= groups) return false;
      before += here, first += count;
      count = (int)size_of_group(counts, group, first, rows);
      here = parts(MODE == GRAD ? n : count, TILE_M) * across;
    }
    int t = tile - before, down = here / across;
    j.group = group, j.first = first, j.count = count;
    j.m = t % down * TILE_M, j.n = t / down * TILE_N;
    j.steps = parts(MODE == GRAD ? count : k, DEPTH);
    tile += gridDim.x;
    return true;
  }
};

// Ring is the place in the stages; each time around, the barriers' parity changes.
struct Ring {
  int slot;
  u32 phase;
  __device__ __forceinline__ void next() {
    if (++slot == STAGES) slot = 0, phase ^= 1;
  }
};

// put_pairs is c = acc + beta*c for a thread's two rows and TILE_N columns, of which `rows` and `cols` exist.
__device__ __forceinline__ void put_pairs(T* c, const float (&acc)[TILE_N / 2], int rows, int width, int cols, int q, float beta) {
#pragma unroll
  for (int i = 0; i < TILE_N / 4; i++) {
    int col = i / 2 * 8 + 2 * q, r = i % 2 * 8;
    if (r < rows && col < cols) {
      T* at = c + (i64)r * width + col;
      Pack<T, 2> old = load<2>(at);
      *(u32*)at = pack<T>(acc[2 * i] + beta * widen(old.v[0]), acc[2 * i + 1] + beta * widen(old.v[1]));
    }
  }
}

// put_lines stores them. The four lanes of a row have two columns each of groups of eight: they exchange them, for a group each, of 16
// bytes.
__device__ __forceinline__ void put_lines(T* c, const float (&acc)[TILE_N / 2], int rows, int width, int cols, int q) {
#pragma unroll
  for (int h = 0; h < 2; h++)
#pragma unroll
    for (int i = 0; i < TILE_N / 32; i++) {
      u32 v[4];
#pragma unroll
      for (int e = 0; e < 4; e++) v[e] = pack<T>(acc[16 * i + 4 * e + 2 * h], acc[16 * i + 4 * e + 2 * h + 1]);
#pragma unroll
      for (int e = 0; e < 4; e += 2) {
        u32 x = __shfl_xor_sync(FULL_WARP, q & 1 ? v[e] : v[e + 1], 1);
        v[e] = q & 1 ? x : v[e], v[e + 1] = q & 1 ? v[e + 1] : x;
      }
#pragma unroll
      for (int e = 0; e < 2; e++) {
        u32 x = __shfl_xor_sync(FULL_WARP, q & 2 ? v[e] : v[e + 2], 2);
        v[e] = q & 2 ? x : v[e], v[e + 2] = q & 2 ? v[e + 2] : x;
      }
      int col = 32 * i + 8 * q;
      if (8 * h < rows && col < cols) *(uint4*)(c + (i64)(8 * h) * width + col) = make_uint4(v[0], v[1], v[2], v[3]);
    }
}

// fetch asks for the data of one step of a tile: of a, rows with k along them, or, for the gradient, boxes of 64 columns; so of b.
template <int MODE> __device__ __forceinline__ void fetch(const TensorMap& a, const TensorMap& b, const Job& j, int at, u32 as, u32 bar) {
  u32 bs = as + A_BYTES;
  if (MODE == GRAD)
    for (int i = 0; i < TILE_M / 64; i++) copy_box(as + i * BOX, a, j.m + i * 64, j.first + at, 0, bar);
  else
    copy_box(as, a, at, j.first + j.m, 0, bar);
  if (MODE == TRANSPOSED)
    for (int i = 0; i < TILE_N / 128; i++) copy_box(bs + i * 2 * BOX, b, at, j.n + i * 128, j.group, bar);
  else
    for (int i = 0; i < TILE_N / 64; i++)
      copy_box(bs + i * BOX, b, j.n + i * 64, MODE == GRAD ? j.first + at : at, MODE == GRAD ? 0 : j.group, bar);
}

// clear_rest clears the rows of a step behind the group's last, which are another group's: in this warpgroup's box of a, and in all of b.
__device__ __forceinline__ void clear_rest(u32 as, u32 bs, int valid, int lane) {
  for (int i = lane; i < (DEPTH - valid) * 8 * 5; i += 128) {
    int chunk = i % 8, box = i / 8 % 5, r = valid + i / 40;
    zero16((box ? bs + (box - 1) * BOX : as) + r * 128 + chunk * 16);
  }
  see_stores();
}

// products computes c = a b + beta c.
template <int MODE>
__device__ __forceinline__ void products(T* c, const TensorMap& a, const TensorMap& b, const i64* counts, i64 rows, i64 n, i64 k,
                                         i64 groups, float beta) {
  constexpr int ACROSS_A = MODE == GRAD, ACROSS_B = MODE != TRANSPOSED;
  __shared__ u64 bars[2 * STAGES];
  u32 base = (shared_address(dynamic_shared<T>()) + 1023) & ~1023u, full = shared_address(bars), empty = full + 8 * STAGES;
  int t = threadIdx.x, role = t >> 7;
  if (t == 0) {
    for (int i = 0; i < STAGES; i++) barrier_init(full + 8 * i, 1), barrier_init(empty + 8 * i, 8);  // 8 warps
    barriers_ready();
  }
  __syncthreads();
  Tiles<MODE> tiles = {counts, (int)rows, (int)n, (int)k, (int)groups};
  tiles.begin();
  Job j;
  Ring ring = {0, 0};
  if (role == 2) {
    fewer_registers<40>();
    if (t == 256) {
      while (tiles.next(j)) {
        for (int s = 0; s < j.steps; s++, ring.next()) {
          barrier_wait(empty + 8 * ring.slot, ring.phase ^ 1);
          barrier_expect(full + 8 * ring.slot, STAGE);
          fetch<MODE>(a, b, j, s * DEPTH, base + ring.slot * STAGE, full + 8 * ring.slot);
        }
      }
    }
  } else {
    more_registers<232>();
    int lane = t & 31, warp = t >> 5 & 3;
    while (tiles.next(j)) {
      float acc[TILE_N / 2];
      int before = -1;
      if (j.steps == 0)
#pragma unroll
        for (int i = 0; i < TILE_N / 2; i++) acc[i] = 0;
      for (int s = 0; s < j.steps; s++) {
        barrier_wait(full + 8 * ring.slot, ring.phase);
        u32 as = base + ring.slot * STAGE + role * (TILE_M / 2 * DEPTH * 2), bs = base + ring.slot * STAGE + A_BYTES;
        if (MODE == GRAD && j.count - s * DEPTH < DEPTH) {
          clear_rest(as, bs, j.count - s * DEPTH, t & 127);
          group_barrier(role + 1);
        }
        u64 da = matrix_at<ACROSS_A>(as, BOX), db = matrix_at<ACROSS_B>(bs, BOX);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < DEPTH / 16; i++)  // 16 of k are 32 bytes of a row, or 16 rows
          wgmma256<ACROSS_A, ACROSS_B>(acc, da + i * (ACROSS_A ? 128 : 2), db + i * (ACROSS_B ? 128 : 2), s > 0 || i > 0);
        wgmma_commit();
        wgmma_wait<1>();  // the step before is done: its stage may be filled again
        if (before >= 0 && lane == 0) barrier_arrive(empty + 8 * before);
        before = ring.slot;
        ring.next();
      }
      wgmma_wait<0>();
      keep(acc);
      if (before >= 0 && lane == 0) barrier_arrive(empty + 8 * before);
      int q = lane & 3, row = j.m + role * 64 + warp * 16 + lane / 4;
      int height = MODE == GRAD ? (int)n : j.count, width = MODE == GRAD ? (int)k : (int)n;
      T* out = c + (MODE == GRAD ? (i64)j.group * n * k : (i64)j.first * n) + (i64)row * width + j.n;
      if (beta != 0) put_pairs(out, acc, height - row, width, width - j.n, q, beta);
      else put_lines(out, acc, height - row, width, width - j.n, q);
    }
  }
}

#define KERNEL(NAME, MODE)                                                                                                          \
  extern "C" __global__ void __launch_bounds__(LANES, 1)                                                                            \
  NAME(T* c, const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, const i64* counts, i64 rows, i64 n, i64 k,   \
       i64 groups, float beta, u64* bad, u32 op) {                                                                                  \
    check_counts(counts, rows, groups, bad, op);                                                                                    \
    products<MODE>(c, a, b, counts, rows, n, k, groups, beta);                                                                      \
  }
KERNEL(grouped_wgmma, PLAIN)
KERNEL(grouped_wgmma_tb, TRANSPOSED)
KERNEL(grouped_wgmma_grad, GRAD)
